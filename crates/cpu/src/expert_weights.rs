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

/// What `take` makes of every expert's parts, one expert after another. Each tensor is viewed once: a view may be a
/// conversion.
pub fn for_each_expert<T>(
    parts: &[Part],
    tensors: &[usize],
    source: &dyn TensorSource,
    PerExpert { experts, dims }: PerExpert,
    mut take: impl FnMut(TensorView<'_>) -> Result<T, BackendError>,
) -> Result<Vec<T>, BackendError> {
    let in_a_part = if parts[0].shape.len() > dims {
        experts
    } else {
        1
    };
    let mut by_part = Vec::with_capacity(parts.len());
    for (part, &tensor) in parts.iter().zip(tensors) {
        let view = source.view(tensor);
        let shape = &part.shape[part.shape.len() - dims..];
        let of_part = (0..in_a_part).map(|number| {
            let size = view.bytes.len() / in_a_part;
            let bytes = &view.bytes[number * size..(number + 1) * size];
            take(TensorView {
                shape,
                bytes: cut(part, view.dtype, shape, bytes)?,
                dtype: view.dtype,
                order: view.order,
            })
        });
        by_part.push(of_part.collect::<Result<Vec<T>, _>>()?.into_iter());
        source.release(tensor);
    }
    let mut all = Vec::with_capacity(parts.len() * in_a_part);
    for _ in 0..in_a_part {
        all.extend(by_part.iter_mut().filter_map(Iterator::next));
    }
    Ok(all)
}

/// One expert's rows as the op sees them.
fn cut<'a>(
    part: &Part,
    dtype: DType,
    shape: &[usize],
    bytes: &'a [u8],
) -> Result<Cow<'a, [u8]>, BackendError> {
    let (rows, columns) = match shape {
        [rows, columns] => (*rows, *columns),
        // Of a bias, elements.
        _ => (shape[0], 1),
    };
    let refuse = |what: &str| BackendError::Unsupported {
        backend: "cpu",
        what: format!("{dtype} experts that are {what} ({})", part.tensor),
    };
    let row = |row: usize| {
        let size = bytes.len() / rows;
        &bytes[row * size..(row + 1) * size]
    };
    let even_then_odd = || (0..rows).step_by(2).chain((1..rows).step_by(2));
    let transposed = |order: &mut dyn Iterator<Item = usize>| {
        if dtype.is_quantized() {
            return Err(refuse("blocks across the input"));
        }
        let size = dtype.block_bytes();
        let mut turned = Vec::with_capacity(bytes.len());
        for row in order {
            for column in 0..columns {
                let at = (column * rows + row) * size;
                turned.extend_from_slice(&bytes[at..at + size]);
            }
        }
        Ok(turned)
    };
    Ok(match part.cut.as_ref().map(|cut| cut.take) {
        None => Cow::Borrowed(bytes),
        Some(Take::EvenThenOdd) => Cow::Owned(even_then_odd().flat_map(row).copied().collect()),
        Some(Take::Transposed) => Cow::Owned(transposed(&mut (0..rows))?),
        Some(Take::TransposedEvenThenOdd) => Cow::Owned(transposed(&mut even_then_odd())?),
        Some(_) => return Err(refuse("parts of tensors")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mettle_plan::Cut;

    fn cut_of(take: Option<Take>, shape: &[usize], values: &[f32]) -> Vec<f32> {
        let part = Part {
            tensor: "experts".into(),
            shape: shape.to_vec(),
            dtype: DType::F32,
            cut: take.map(|take| Cut {
                of: shape.to_vec(),
                take,
            }),
        };
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let found = cut(&part, DType::F32, shape, &bytes).unwrap();
        let four = found.chunks_exact(4);
        four.map(|b| f32::from_le_bytes(b.try_into().unwrap()))
            .collect()
    }

    #[test]
    fn rows_are_put_in_the_order_of_the_op() {
        let rows = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5];
        assert_eq!(cut_of(None, &[4, 2], &rows), rows);
        let gates_first = [0.0, 0.5, 2.0, 2.5, 1.0, 1.5, 3.0, 3.5];
        let take = Some(Take::EvenThenOdd);
        assert_eq!(cut_of(take, &[4, 2], &rows), gates_first);
        assert_eq!(
            cut_of(take, &[4], &[0.0, 1.0, 2.0, 3.0]),
            [0.0, 2.0, 1.0, 3.0]
        );
        // The same with the two columns as rows of four.
        let turned = [0.0, 1.0, 2.0, 3.0, 0.5, 1.5, 2.5, 3.5];
        assert_eq!(cut_of(Some(Take::Transposed), &[4, 2], &turned), rows);
        let take = Some(Take::TransposedEvenThenOdd);
        assert_eq!(cut_of(take, &[4, 2], &turned), gates_first);
    }
}
