//! Owns where barriers go: computed from what ops read and write, never placed by hand.

use crate::arena::Arena;
use crate::op::{Accesses, Resource};
use crate::plan::Plan;

/// For each op, whether all ops before it must be finished when it starts. With an arena, buffers that share bytes
/// count as the same memory.
pub fn hazards(plan: &Plan, arena: Option<&Arena>) -> Vec<bool> {
    let mut unfinished: Vec<Accesses> = Vec::new();
    plan.nodes
        .iter()
        .map(|node| {
            let accesses = node.op.accesses();
            let barrier = unfinished
                .iter()
                .any(|earlier| conflict(earlier, &accesses, arena));
            if barrier {
                unfinished.clear();
            }
            unfinished.push(accesses);
            barrier
        })
        .collect()
}

/// Read after write, write after read, or write after write.
fn conflict(earlier: &Accesses, later: &Accesses, arena: Option<&Arena>) -> bool {
    let any = |a: &[Resource], b: &[Resource]| {
        a.iter().any(|x| b.iter().any(|y| same_memory(x, y, arena)))
    };
    any(&earlier.writes, &later.reads)
        || any(&earlier.reads, &later.writes)
        || any(&earlier.writes, &later.writes)
}

fn same_memory(a: &Resource, b: &Resource, arena: Option<&Arena>) -> bool {
    match (a, b) {
        (Resource::Kv(a), Resource::Kv(b)) => a == b,
        (Resource::Columns(a), Resource::Columns(b)) => match arena {
            Some(arena) => arena.overlaps(a, b),
            None => a.overlaps(b),
        },
        _ => false,
    }
}
