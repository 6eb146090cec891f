//! Owns the move of `h += x` into the norm that follows it (where a projection's epilogue could not take it).

use super::adds_to_stream;
use crate::op::Op;
use crate::plan::Plan;

pub fn apply(plan: &mut Plan) -> usize {
    let mut moved = 0;
    let mut index = 0;
    while index + 1 < plan.nodes.len() {
        if let Some((stream, added)) = adds_to_stream(plan, index)
            && let Op::RmsNorm(norm) = &mut plan.nodes[index + 1].op
            && norm.add.is_none()
            && norm.x == stream
            && !norm.out.overlaps(&stream)
        {
            norm.add = Some(added);
            let taps = plan.nodes.remove(index).taps;
            plan.nodes[index].taps.splice(0..0, taps);
            moved += 1;
        }
        index += 1;
    }
    moved
}
