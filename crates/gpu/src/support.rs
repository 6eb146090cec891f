//! Owns what the GPU runner refuses, by name, before gigabytes are read.

use mettle_kernels::select::padded_head_dim;
use mettle_plan::{
    Activation, Attention, BackendError, BoundWeight, Dim, Element, Expr, KvElement, KvSource, Op,
    PageLayout, Plan, PrepareOptions, QkNorm, Retention, Slice,
};
use mettle_tensor::{DType, TensorSource};

/// Every op of the plan has a kernel, for its sizes and for the types that the source stores.
pub fn check(
    backend: &'static str,
    plan: &Plan,
    bound: &[BoundWeight],
    source: &dyn TensorSource,
    options: &PrepareOptions,
) -> Result<(), BackendError> {
    let refuse = |what: String| Err(BackendError::Unsupported { backend, what });
    for weight in bound {
        let name = plan.weight_of(weight.id).name();
        if !plan.weight_of(weight.id).is_uncut() {
            return refuse(format!("weights that are parts of tensors ({name})"));
        }
        if plan.weight_of(weight.id).parts[0].shape.len() > 2 {
            return refuse(format!("experts ({name})"));
        }
    }
    if let Some(what) = cache_fault(plan, &options.page_layout, options.kv_pages) {
        return refuse(what);
    }
    for node in &plan.nodes {
        let rows = plan.buffer_of(node.op.primary()).rows;
        if !matches!(rows, Dim::Tokens | Dim::LogitRows) {
            return refuse(format!("op {} over {rows}", node.op.name()));
        }
        if let Some(what) = op_fault(plan, &node.op) {
            return refuse(what);
        }
        if let Some(what) = alignment_fault(plan, &node.op, bound, source) {
            return refuse(what);
        }
    }
    let known = |name: &String| {
        plan.nodes
            .iter()
            .any(|n| n.taps.iter().any(|t| t.name == *name))
    };
    match options.taps.iter().find(|name| !known(name)) {
        Some(name) => refuse(format!("tap {name} (no op of this plan gives it)")),
        None => Ok(()),
    }
}

fn cache_fault(plan: &Plan, layout: &PageLayout, pages: usize) -> Option<String> {
    for (group, sizes) in plan.kv_groups.iter().zip(&layout.groups) {
        let name = &group.name;
        if !matches!(group.retention, Retention::Full | Retention::Window(_)) {
            return Some(format!("cache that holds no tokens ({name})"));
        }
        let is_16_bit = |element| element == KvElement::F16;
        if !group.planes.iter().all(|p| is_16_bit(p.element)) {
            return Some("KV cache in f32 (--kv-cache-dtype f16)".into());
        }
        match &group.planes[..] {
            [keys, values] if keys == values => {}
            _ => return Some(format!("cache with keys and values of two shapes ({name})")),
        }
        if pages.saturating_mul(sizes.tokens_per_page) > i32::MAX as usize {
            return Some(format!(
                "cache of {pages} pages of {} tokens: at most {} tokens",
                sizes.tokens_per_page,
                i32::MAX
            ));
        }
    }
    None
}

fn op_fault(plan: &Plan, op: &Op) -> Option<String> {
    let is_activation = |slice: Slice| plan.buffer_of(slice).element == Element::Activation;
    match op {
        Op::Embed(o) if Some(o.ids) != plan.token_ids => {
            Some("embedding of other ids than the step's tokens".into())
        }
        Op::Gather(o) if Some(o.rows) != plan.logit_rows => {
            Some("gather of other rows than the step's".into())
        }
        Op::Linear(o) if o.groups > 1 => Some("projections per head (linear groups)".into()),
        Op::Linear(o) if o.adapters.is_some() => Some("adapters (LoRA)".into()),
        Op::Linear(o) if !is_activation(o.out) => Some("projections to other types".into()),
        Op::RopeKvWrite(o) if o.kv_heads == 0 => Some("layers that read another's cache".into()),
        Op::RopeKvWrite(o) if o.v.is_none() => Some("latent attention".into()),
        Op::Attention(o) => attention_fault(o).map(|what| format!("attention {what}")),
        Op::GatedAct(o) if o.activation != Activation::Silu => {
            Some(format!("activation {:?}", o.activation))
        }
        Op::Elementwise(o) if o.expr != Expr::Add || o.b.is_none_or(|b| b.width != o.a.width) => {
            Some(format!("elementwise {:?}", o.expr))
        }
        Op::Embed(_)
        | Op::Gather(_)
        | Op::Linear(_)
        | Op::RopeKvWrite(_)
        | Op::GatedAct(_)
        | Op::Elementwise(_)
        | Op::LmHead(_)
        | Op::RmsNorm(_)
        | Op::QkNorm(QkNorm {
            weight: Some(_), ..
        }) => None,
        other => Some(format!("op {}", other.name())),
    }
}

fn attention_fault(o: &Attention) -> Option<String> {
    if !matches!(o.kv, KvSource::Paged(_)) {
        return Some("without a cache (encoders)".into());
    }
    if o.visible_to.is_some() {
        return Some("between marked tokens (images)".into());
    }
    if o.softcap.is_some() || o.sinks.is_some() || o.bias.is_some() {
        return Some("with a softcap, sinks or a bias".into());
    }
    if o.values_in_keys || o.value_dim != o.head_dim {
        return Some("with values of another width than keys".into());
    }
    if padded_head_dim(o.head_dim as u32).is_none() {
        return Some(format!(
            "with heads of {} (multiples of 8 up to 128)",
            o.head_dim
        ));
    }
    None
}

/// Quantized weights are read sixteen bytes at a time, and so are the rows that meet them.
fn alignment_fault(
    plan: &Plan,
    op: &Op,
    bound: &[BoundWeight],
    source: &dyn TensorSource,
) -> Option<String> {
    let (x, weight) = match op {
        Op::Linear(o) => (o.x, o.weight),
        Op::LmHead(o) => (o.x, o.weight),
        _ => return None,
    };
    let tensors = &bound.iter().find(|b| b.id == weight)?.tensors;
    let is_planes = |t: &&usize| matches!(source.tensors()[**t].dtype, DType::Q8_0 | DType::Q4_1);
    let quantized = tensors.iter().find(is_planes)?;
    let is_aligned = x.start.is_multiple_of(8) && plan.buffer_of(x).width.is_multiple_of(8);
    (!is_aligned).then(|| {
        format!(
            "{} against rows that do not lie at multiples of 16 bytes",
            source.tensors()[*quantized].name
        )
    })
}
