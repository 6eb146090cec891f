//! Owns the reading of experts' weights: from one tensor for all of them, one for gates and one for ups, or one for each
//! expert, to matrices (or biases) one expert after another. What a checkpoint mixes or transposes is set right here.

use mettle_plan::{BackendError, Op, Part, Plan, Take, WeightId};
use mettle_tensor::{DType, TensorSource, TensorView};
use std::borrow::Cow;
use std::collections::HashMap;

/// What a weight holds for each expert of a mixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerExpert {
    pub experts: usize,
    /// 2 of a matrix, 1 of a bias; a part with one more holds all experts.
    pub dims: usize,
}

/// The weights of a plan that belong to experts.
pub fn of_experts(plan: &Plan) -> HashMap<WeightId, PerExpert> {
    let mut found = HashMap::new();
    for node in &plan.nodes {
        if let Op::MoeExperts(op) = &node.op {
            let experts = op.expert_count;
            let matrices = [op.gate_up, op.down].map(|id| (id, PerExpert { experts, dims: 2 }));
            let biases = [op.gate_up_bias, op.down_bias].into_iter().flatten();
            found.extend(matrices);
            found.extend(biases.map(|id| (id, PerExpert { experts, dims: 1 })));
        }
    }
    found
}

/// The weights of one expert in one tensor, as an op sees them.
pub struct ExpertPart<'a> {
    pub dtype: DType,
    pub shape: &'a [usize],
    pub bytes: Cow<'a, [u8]>,
}

impl ExpertPart<'_> {
    pub fn view(&self) -> TensorView<'_> {
        TensorView {
            dtype: self.dtype,
            shape: self.shape,
            bytes: &self.bytes,
        }
    }
}

/// Calls `take` with the parts of every expert, first to last.
pub fn for_each_expert<'a>(
    parts: &'a [Part],
    tensors: &[usize],
    source: &'a dyn TensorSource,
    PerExpert { experts, dims }: PerExpert,
    mut take: impl FnMut(ExpertPart<'a>) -> Result<(), BackendError>,
) -> Result<(), BackendError> {
    let both: Vec<(&Part, usize)> = parts.iter().zip(tensors.iter().copied()).collect();
    let holds_all = both[0].0.shape.len() > dims;
    for expert in 0..experts {
        let (own, number) = match holds_all {
            true => (&both[..], expert),
            false => {
                let each = both.len() / experts;
                (&both[expert * each..(expert + 1) * each], 0)
            }
        };
        for (part, tensor) in own {
            take(cut(part, source.view(*tensor), number, dims)?)?;
        }
    }
    Ok(())
}

fn cut<'a>(
    part: &'a Part,
    view: TensorView<'a>,
    number: usize,
    dims: usize,
) -> Result<ExpertPart<'a>, BackendError> {
    let shape = &part.shape[part.shape.len() - dims..];
    let experts: usize = part.shape[..part.shape.len() - dims].iter().product();
    let size = view.bytes.len() / experts;
    let bytes = &view.bytes[number * size..(number + 1) * size];
    let (rows, columns) = match shape {
        [rows, columns] => (*rows, *columns),
        // Of a bias, elements.
        _ => (shape[0], 1),
    };
    let refuse = |what: &str| BackendError::Unsupported {
        backend: "cpu",
        what: format!("{} that are {what} ({})", view.dtype, part.tensor),
    };
    let row = |row: usize| {
        let size = bytes.len() / rows;
        &bytes[row * size..(row + 1) * size]
    };
    let even_then_odd = || (0..rows).step_by(2).chain((1..rows).step_by(2));
    let transposed = |order: &mut dyn Iterator<Item = usize>| {
        if view.dtype.is_quantized() {
            return Err(refuse("blocks across the input"));
        }
        let size = view.dtype.block_bytes();
        let mut turned = Vec::with_capacity(bytes.len());
        for row in order {
            for column in 0..columns {
                let at = (column * rows + row) * size;
                turned.extend_from_slice(&bytes[at..at + size]);
            }
        }
        Ok(turned)
    };
    let bytes = match part.cut.as_ref().map(|cut| cut.take) {
        None => Cow::Borrowed(bytes),
        Some(Take::EvenThenOdd) => Cow::Owned(even_then_odd().flat_map(row).copied().collect()),
        Some(Take::Transposed) => Cow::Owned(transposed(&mut (0..rows))?),
        Some(Take::TransposedEvenThenOdd) => Cow::Owned(transposed(&mut even_then_odd())?),
        Some(_) => return Err(refuse("parts of experts")),
    };
    Ok(ExpertPart {
        dtype: view.dtype,
        shape,
        bytes,
    })
}
