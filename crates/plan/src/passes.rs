//! Owns the list of rewrites. Each has a name and can be switched off, so that a wrong result can be bisected.

mod fuse_linears;
mod gather_early;
mod norm_residual;
mod residual_epilogue;

use crate::buffer::Slice;
use crate::op::{Expr, Op, Resource};
use crate::plan::Plan;

pub struct Pass {
    pub name: &'static str,
    pub about: &'static str,
    apply: fn(&mut Plan) -> usize,
}

/// In the order they run.
pub const ALL: [Pass; 5] = [
    Pass {
        name: "fuse-qkv",
        about: "query, key and value projections of one input become one",
        apply: fuse_linears::qkv,
    },
    Pass {
        name: "fuse-gate-up",
        about: "gate and up projections of one input become one",
        apply: fuse_linears::gate_up,
    },
    Pass {
        name: "residual-epilogue",
        about: "adding to the residual stream happens in the projection before it",
        apply: residual_epilogue::apply,
    },
    Pass {
        name: "norm-residual",
        about: "adding to the residual stream happens in the norm after it",
        apply: norm_residual::apply,
    },
    Pass {
        name: "gather-early",
        about: "behind the last attention only rows whose output is wanted are computed",
        apply: gather_early::apply,
    },
];

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("there is no pass {name}; there are: {}", ALL.map(|p| p.name).join(", "))]
pub struct UnknownPass {
    name: String,
}

/// Runs all passes but the disabled ones; gives the number of rewrites of each.
pub fn apply(
    plan: &mut Plan,
    disabled: &[String],
) -> Result<Vec<(&'static str, usize)>, UnknownPass> {
    if let Some(name) = disabled.iter().find(|d| !ALL.iter().any(|p| p.name == **d)) {
        return Err(UnknownPass { name: name.clone() });
    }
    let done = ALL
        .iter()
        .filter(|pass| !disabled.iter().any(|d| d == pass.name))
        .map(|pass| (pass.name, (pass.apply)(plan)))
        .collect();
    plan.check();
    Ok(done)
}

#[cfg(test)]
mod tests;

/// If op `index` is `stream = stream + added`, and `added` is not read by any later op before it is written again:
/// the two slices.
fn adds_to_stream(plan: &Plan, index: usize) -> Option<(Slice, Slice)> {
    let Op::Elementwise(add) = &plan.nodes[index].op else {
        return None;
    };
    let added = add.b?;
    let is_plain = add.expr == Expr::Add && added.width == add.a.width;
    if !is_plain || add.a != add.out || added.overlaps(&add.a) {
        return None;
    }
    for node in &plan.nodes[index + 1..] {
        let accesses = node.op.accesses();
        let any = |resources: &[Resource], of: fn(&Slice, &Slice) -> bool| {
            resources
                .iter()
                .any(|r| matches!(r, Resource::Columns(s) if of(s, &added)))
        };
        if any(&accesses.reads, Slice::overlaps) {
            return None;
        }
        if any(&accesses.writes, Slice::covers) {
            break;
        }
    }
    Some((add.a, added))
}
