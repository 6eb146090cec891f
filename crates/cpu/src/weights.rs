//! Owns the weights of prepared plans: packed matrices and plain vectors, each read from the source once.

use crate::expert_weights::{for_each_expert, of_experts};
use crate::memory::Shelf;
use crate::pack::{PackedMatrix, read_vector};
use mettle_plan::{BackendError, BoundWeight, Expr, Op, Plan, WeightId};
use mettle_tensor::{TensorSource, TensorView};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Those of one plan; what several plans read is there once.
#[derive(Default)]
pub struct Weights {
    matrices: HashMap<WeightId, Arc<[PackedMatrix]>>,
    vectors: HashMap<WeightId, Arc<[f32]>>,
}

impl Weights {
    /// Packs every weight that an op reads and gives the source's memory back as it goes.
    pub fn load(
        plans: &[Plan],
        bound: &[BoundWeight],
        source: &dyn TensorSource,
        threads: usize,
    ) -> Result<Vec<Weights>, BackendError> {
        let mut all: Vec<Weights> = Vec::new();
        let mut shelf = Shelf::default();
        for (number, plan) in plans.iter().enumerate() {
            let bound = bound.iter().filter(|b| b.plan == number);
            let (mut weights, mut new) = (Weights::default(), Vec::new());
            for bound in bound {
                match earlier(&plans[..number], &all, plan, bound.id) {
                    Some((of, id)) => weights.share(bound.id, of, id),
                    None => new.push(bound),
                }
            }
            weights.load_new(plan, &new, source, threads, &mut shelf)?;
            all.push(weights);
        }
        Ok(all)
    }

    /// Whether any of the matrices needs sums of groups of activations.
    pub fn take_sums(&self) -> bool {
        let mut matrices = self.matrices.values().flat_map(|matrices| matrices.iter());
        matrices.any(|matrix| matrix.takes_sums())
    }

    fn load_new(
        &mut self,
        plan: &Plan,
        bound: &[&BoundWeight],
        source: &dyn TensorSource,
        threads: usize,
        shelf: &mut Shelf,
    ) -> Result<(), BackendError> {
        let weights = self;
        let of_experts = of_experts(plan);
        let plain = plain_matrices(plan);
        for bound in bound {
            let parts = &plan.weight_of(bound.id).parts;
            let is_vector = parts[0].shape.len() == 1 || plain.contains(&bound.id);
            if let Some(&per_expert) = of_experts.get(&bound.id) {
                let name = || plan.weight_of(bound.id).name();
                if per_expert.dims == 1 {
                    let read = |view: TensorView<'_>| read_vector(view);
                    let biases = for_each_expert(parts, &bound.tensors, source, per_expert, read)?;
                    weights.vectors.insert(bound.id, biases.concat().into());
                } else {
                    let pack = |view: TensorView<'_>| match view.order {
                        None => PackedMatrix::pack(view, threads, shelf),
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
                    weights.matrices.insert(bound.id, matrices.into());
                }
            } else if is_vector {
                let mut vector = Vec::new();
                for &tensor in &bound.tensors {
                    vector.extend(read_vector(source.view(tensor))?);
                }
                weights.vectors.insert(bound.id, vector.into());
            } else {
                let mut matrices = Vec::new();
                for (part, &tensor) in parts.iter().zip(&bound.tensors) {
                    // A tensor that is taken whole may have other dimensions in the file.
                    let view = TensorView {
                        shape: &part.shape,
                        ..source.view(tensor)
                    };
                    matrices.push(PackedMatrix::pack(view, threads, shelf)?);
                    source.release(tensor);
                }
                weights.matrices.insert(bound.id, matrices.into());
            }
        }
        Ok(())
    }

    fn share(&mut self, id: WeightId, of: &Weights, other: WeightId) {
        if let Some(matrix) = of.matrices.get(&other) {
            self.matrices.insert(id, matrix.clone());
        }
        if let Some(vector) = of.vectors.get(&other) {
            self.vectors.insert(id, vector.clone());
        }
    }

    /// The parts of a matrix, top to bottom; of experts' matrices those of the first expert, then of the next.
    pub fn matrix(&self, id: WeightId) -> &[PackedMatrix] {
        &self.matrices[&id]
    }

    pub fn vector(&self, id: WeightId) -> &[f32] {
        &self.vectors[&id]
    }

    /// Of all plans together.
    pub fn bytes<'a>(all: impl Iterator<Item = &'a Weights>) -> usize {
        let (mut seen, mut bytes) = (HashSet::new(), 0);
        for weights in all {
            for matrix in weights.matrices.values() {
                if seen.insert(matrix.as_ptr().cast::<u8>()) {
                    bytes += matrix.iter().map(PackedMatrix::bytes).sum::<usize>();
                }
            }
            for vector in weights.vectors.values() {
                if seen.insert(vector.as_ptr().cast()) {
                    bytes += vector.len() * size_of::<f32>();
                }
            }
        }
        bytes
    }
}

/// Where an earlier plan has a weight of the same tensors.
fn earlier<'a>(
    plans: &[Plan],
    loaded: &'a [Weights],
    plan: &Plan,
    id: WeightId,
) -> Option<(&'a Weights, WeightId)> {
    let parts = &plan.weight_of(id).parts;
    plans.iter().zip(loaded).find_map(|(plan, weights)| {
        let at = plan.weights.iter().position(|w| w.parts == *parts)?;
        let id = WeightId(at as u32);
        let has = weights.matrices.contains_key(&id) || weights.vectors.contains_key(&id);
        has.then_some((weights, id))
    })
}

/// Matrices that no product reads, kept as they are, since rows of a packed one lie scattered: biases of scores by distance,
/// rows that are added.
fn plain_matrices(plan: &Plan) -> HashSet<WeightId> {
    let plain = |op: &Op| match op {
        Op::Attention(o) => o.bias.map(|b| b.weight),
        Op::Elementwise(o) => match o.expr {
            Expr::AddRow(id) => Some(id),
            _ => None,
        },
        _ => None,
    };
    plan.nodes.iter().filter_map(|n| plain(&n.op)).collect()
}
