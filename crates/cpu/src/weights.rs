//! Owns the weights of a prepared plan: packed matrices and plain vectors, each read from the source once.

use crate::expert_weights::{for_each_expert, of_experts};
use crate::memory::Shelf;
use crate::pack::{PackedMatrix, read_vector};
use mettle_plan::{BackendError, BoundWeight, Elementwise, Expr, Node, Op, Plan, WeightId};
use mettle_tensor::{TensorSource, TensorView};
use std::collections::HashMap;

pub struct Weights {
    matrices: HashMap<WeightId, Vec<PackedMatrix>>,
    vectors: HashMap<WeightId, Vec<f32>>,
}

impl Weights {
    /// Packs every weight that an op reads and gives the source's memory back as it goes.
    pub fn load(
        plan: &Plan,
        bound: &[BoundWeight],
        source: &dyn TensorSource,
        threads: usize,
    ) -> Result<Weights, BackendError> {
        let mut weights = Weights {
            matrices: HashMap::new(),
            vectors: HashMap::new(),
        };
        let mut shelf = Shelf::default();
        let of_experts = of_experts(plan);
        // Read as they are, since a row of a packed matrix lies scattered.
        let added_row = |node: &Node| match &node.op {
            Op::Elementwise(Elementwise {
                expr: Expr::AddRow(id),
                ..
            }) => Some(*id),
            _ => None,
        };
        let added_rows: Vec<WeightId> = plan.nodes.iter().filter_map(added_row).collect();
        for bound in bound {
            let parts = &plan.weight_of(bound.id).parts;
            let is_vector = parts[0].shape.len() == 1 || added_rows.contains(&bound.id);
            if let Some(&per_expert) = of_experts.get(&bound.id) {
                let name = || plan.weight_of(bound.id).name();
                if per_expert.dims == 1 {
                    let read = |view: TensorView<'_>| read_vector(view);
                    let biases = for_each_expert(parts, &bound.tensors, source, per_expert, read)?;
                    weights.vectors.insert(bound.id, biases.concat());
                } else {
                    let pack = |view: TensorView<'_>| match view.order {
                        None => PackedMatrix::pack(view, threads, &mut shelf),
                        Some(_) => Err(BackendError::Unsupported {
                            backend: "cpu",
                            what: format!(
                                "experts with columns in orders of their own ({})",
                                name()
                            ),
                        }),
                    };
                    let matrices =
                        for_each_expert(parts, &bound.tensors, source, per_expert, pack)?;
                    weights.matrices.insert(bound.id, matrices);
                }
            } else if is_vector {
                let mut vector = Vec::new();
                for &tensor in &bound.tensors {
                    vector.extend(read_vector(source.view(tensor))?);
                }
                weights.vectors.insert(bound.id, vector);
            } else {
                let mut matrices = Vec::new();
                for (part, &tensor) in parts.iter().zip(&bound.tensors) {
                    // A tensor that is taken whole may have other dimensions in the file.
                    let view = TensorView {
                        shape: &part.shape,
                        ..source.view(tensor)
                    };
                    matrices.push(PackedMatrix::pack(view, threads, &mut shelf)?);
                    source.release(tensor);
                }
                weights.matrices.insert(bound.id, matrices);
            }
        }
        Ok(weights)
    }

    /// The parts of a matrix, top to bottom; of experts' matrices those of the first expert, then of the next.
    pub fn matrix(&self, id: WeightId) -> &[PackedMatrix] {
        &self.matrices[&id]
    }

    pub fn vector(&self, id: WeightId) -> &[f32] {
        &self.vectors[&id]
    }

    pub fn bytes(&self) -> usize {
        let matrices = self.matrices.values().flatten().map(PackedMatrix::bytes);
        let vectors = self.vectors.values().map(|v| v.len() * 4);
        matrices.chain(vectors).sum()
    }
}
