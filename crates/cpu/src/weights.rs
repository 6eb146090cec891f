//! Owns the weights of a prepared plan: packed matrices and plain vectors, each read from the source once.

use crate::memory::Shelf;
use crate::pack::{PackedMatrix, read_vector};
use mettle_plan::{BackendError, BoundWeight, Plan, WeightId};
use mettle_tensor::TensorSource;
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
        for bound in bound {
            let is_vector = plan.weight_of(bound.id).parts[0].shape.len() == 1;
            if is_vector {
                let mut vector = Vec::new();
                for &tensor in &bound.tensors {
                    vector.extend(read_vector(source.view(tensor))?);
                }
                weights.vectors.insert(bound.id, vector);
            } else {
                let mut parts = Vec::new();
                for &tensor in &bound.tensors {
                    parts.push(PackedMatrix::pack(
                        source.view(tensor),
                        threads,
                        &mut shelf,
                    )?);
                    source.release(tensor);
                }
                weights.matrices.insert(bound.id, parts);
            }
        }
        Ok(weights)
    }

    /// The parts of a matrix, top to bottom.
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
