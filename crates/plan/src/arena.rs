//! Owns where buffers lie in one block of scratch memory: two share bytes only if they are never alive together.

use crate::buffer::{BufferId, Element, Slice};
use crate::dim::Sizes;
use crate::op::Resource;
use crate::plan::Plan;

/// Byte ranges of a plan's buffers, for the bounds it was planned with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arena {
    /// By buffer number; empty for a buffer that no op touches.
    pub ranges: Vec<std::ops::Range<usize>>,
    pub bytes: usize,
}

/// A cache line, and the widest vector register.
const ALIGNMENT: usize = 64;

/// Half of what can be addressed: an allocation of this size is refused everywhere.
const LARGEST: usize = isize::MAX as usize & !(ALIGNMENT - 1);

impl Arena {
    pub fn new(plan: &Plan, bounds: &Sizes, activation_bytes: usize) -> Arena {
        Arena::lingering(plan, bounds, activation_bytes, 0)
    }

    /// The same for a backend that computes neighbouring ops together: what an op touches keeps its place for `ops` more.
    ///
    /// Places the largest buffers first, each at the lowest offset that is free during its life. Sizes that do not fit a
    /// `usize` saturate: no system has that memory, so asking for it fails.
    pub fn lingering(plan: &Plan, bounds: &Sizes, activation_bytes: usize, ops: usize) -> Arena {
        let mut lives = lifetimes(plan);
        for (_, last) in lives.iter_mut().flatten() {
            *last += ops;
        }
        let sizes: Vec<usize> = plan
            .buffers
            .iter()
            .map(|b| {
                let element = match b.element {
                    Element::Activation => activation_bytes,
                    Element::F32 | Element::U32 => 4,
                };
                let bytes = bounds.get(b.rows).saturating_mul(b.width * element);
                bytes.min(LARGEST).next_multiple_of(ALIGNMENT)
            })
            .collect();
        let mut order: Vec<usize> = (0..plan.buffers.len())
            .filter(|&i| lives[i].is_some())
            .collect();
        order.sort_by_key(|&i| std::cmp::Reverse(sizes[i]));
        let mut ranges = vec![0..0; plan.buffers.len()];
        let mut placed: Vec<usize> = Vec::new();
        for &i in &order {
            let mut taken: Vec<std::ops::Range<usize>> = placed
                .iter()
                .filter(|&&j| intersect(lives[i], lives[j]))
                .map(|&j| ranges[j].clone())
                .collect();
            taken.sort_by_key(|r| r.start);
            let mut offset = 0_usize;
            for range in taken {
                if offset.saturating_add(sizes[i]) <= range.start {
                    break;
                }
                offset = offset.max(range.end);
            }
            ranges[i] = offset..offset.saturating_add(sizes[i]);
            placed.push(i);
        }
        let bytes = ranges.iter().map(|r| r.end).max().unwrap_or(0);
        Arena { ranges, bytes }
    }

    /// Whether writing one slice may change what the other reads.
    pub fn overlaps(&self, a: &Slice, b: &Slice) -> bool {
        if a.buffer == b.buffer {
            return a.overlaps(b);
        }
        let (a, b) = (self.range(a.buffer), self.range(b.buffer));
        a.start < b.end && b.start < a.end
    }

    fn range(&self, id: BufferId) -> &std::ops::Range<usize> {
        &self.ranges[id.0 as usize]
    }
}

/// First and last op that touches each buffer; inputs live from the start, outputs to the end.
fn lifetimes(plan: &Plan) -> Vec<Option<(usize, usize)>> {
    let mut lives: Vec<Option<(usize, usize)>> = vec![None; plan.buffers.len()];
    for (index, node) in plan.nodes.iter().enumerate() {
        let accesses = node.op.accesses();
        for resource in accesses.reads.iter().chain(&accesses.writes) {
            if let Resource::Columns(slice) = resource {
                let life = &mut lives[slice.buffer.0 as usize];
                *life = Some(life.map_or((index, index), |(first, _)| (first, index)));
            }
        }
    }
    for (buffer, life) in plan.buffers.iter().zip(&mut lives) {
        if let Some((first, last)) = life {
            if buffer.is_input {
                *first = 0;
            }
            if buffer.is_output {
                *last = plan.nodes.len();
            }
        }
    }
    lives
}

fn intersect(a: Option<(usize, usize)>, b: Option<(usize, usize)>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.0 <= b.1 && b.0 <= a.1,
        _ => false,
    }
}
