//! Owns the move of `h += projection(x)` into the projection's epilogue.

use super::adds_to_stream;
use crate::op::Op;
use crate::plan::Plan;

pub fn apply(plan: &mut Plan) -> usize {
    let mut moved = 0;
    let mut index = 0;
    while index + 1 < plan.nodes.len() {
        if let Some((stream, added)) = adds_to_stream(plan, index + 1)
            && let Op::Linear(linear) = &mut plan.nodes[index].op
            && linear.residual.is_none()
            && linear.out == added
            && !linear.x.overlaps(&stream)
        {
            linear.residual = Some(stream);
            linear.out = stream;
            let taps = plan.nodes.remove(index + 1).taps;
            plan.nodes[index].taps = taps;
            moved += 1;
        }
        index += 1;
    }
    moved
}
