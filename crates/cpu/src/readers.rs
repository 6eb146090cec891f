//! Owns who reads what an op wrote.

use mettle_plan::{Op, Plan, Resource, Slice};

/// Whether what these columns hold is read by no op behind `reader`, nor by the host.
pub fn is_last_reader(plan: &Plan, reader: usize, columns: Slice) -> bool {
    let any = |resources: &[Resource], is: fn(&Slice, &Slice) -> bool| {
        let mut slices = resources.iter().filter_map(|resource| match resource {
            Resource::Columns(slice) => Some(slice),
            Resource::Kv(_) => None,
        });
        slices.any(|slice| is(slice, &columns))
    };
    for node in &plan.nodes[reader + 1..] {
        let accesses = node.op.accesses();
        if any(&accesses.reads, Slice::overlaps) {
            return false;
        }
        if any(&accesses.writes, Slice::covers) {
            return true;
        }
    }
    !plan.buffer_of(columns).is_output
}

/// Whether an attention's next op takes the rows whose output is wanted, and nobody reads the others.
pub fn only_logit_rows_are_read(plan: &Plan, index: usize) -> bool {
    let out = match &plan.nodes[index].op {
        Op::Attention(o) => o.out,
        Op::CrossAttention(o) => o.out,
        _ => return false,
    };
    match plan.nodes.get(index + 1).map(|node| &node.op) {
        Some(Op::Gather(o)) if Some(o.rows) == plan.logit_rows && o.x == out => {
            is_last_reader(plan, index + 1, out)
        }
        _ => false,
    }
}
