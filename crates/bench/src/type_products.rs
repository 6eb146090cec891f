//! Owns a plan of nothing but products in one weight type, so that types can be set against each other.

use mettle_plan::{Dim, Element, Embed, KvElement, Linear, Op, Plan};
use mettle_tensor::DType;

/// Tokens that the plan embeds.
pub const VOCABULARY: usize = 64;

/// `count` products with matrices of their own, `rows` outputs of `columns` inputs each.
#[derive(Clone, Copy, Debug)]
pub struct Products {
    pub rows: usize,
    pub columns: usize,
    pub count: usize,
}

impl Products {
    pub fn plan(&self, dtype: DType) -> Plan {
        let mut plan = Plan::new("products", dtype, KvElement::F16);
        let ids = plan.input("tokens", Dim::Tokens, 1, Element::U32);
        plan.token_ids = Some(ids);
        let x = plan.buffer("x", Dim::Tokens, self.columns);
        let out = plan.buffer("out", Dim::Tokens, self.rows);
        let table = plan.weight("table", &[VOCABULARY, self.columns]);
        plan.push(Op::Embed(Embed {
            ids,
            table,
            scale: 1.0,
            out: x,
        }));
        for index in 0..self.count {
            let weight = plan.weight(format!("w{index}"), &[self.rows, self.columns]);
            plan.push(Op::Linear(Linear {
                x,
                weight,
                bias: None,
                residual: None,
                adapters: None,
                groups: 1,
                out,
            }));
        }
        plan.logits = Some(plan.mark_output(out));
        plan
    }
}
