//! Owns the weights a plan reads: which tensors of the source make each up, by exact name and shape.

use mettle_tensor::DType;
use serde::{Serialize, Serializer};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct WeightId(pub u32);

/// One tensor of the source, taken whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Its exact name in the source.
    pub tensor: String,
    /// Outermost first: `[n]`, `[rows, columns]` or `[experts, rows, columns]`.
    pub shape: Vec<usize>,
    /// As declared by the config; binding replaces it by what the source holds.
    #[serde(serialize_with = "dtype_name")]
    pub dtype: DType,
}

/// What an op reads: one tensor, or several with equal columns stacked by rows (fused projections).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Weight {
    pub parts: Vec<Part>,
}

impl Weight {
    pub fn columns(&self) -> usize {
        *self.parts[0]
            .shape
            .last()
            .expect("a weight has a dimension")
    }

    /// Rows of all parts together; 1 for a vector.
    pub fn rows(&self) -> usize {
        self.parts
            .iter()
            .map(|p| p.shape[..p.shape.len() - 1].iter().product::<usize>())
            .sum()
    }

    pub fn elements(&self) -> usize {
        self.parts
            .iter()
            .map(|p| p.shape.iter().product::<usize>())
            .sum()
    }

    pub fn bytes(&self) -> usize {
        self.parts
            .iter()
            .map(|p| {
                // A config may declare a type that its shapes do not divide into; then count bits.
                p.dtype.tensor_bytes(&p.shape).unwrap_or_else(|| {
                    (p.shape.iter().product::<usize>() as f64 * p.dtype.bits_per_element() / 8.0)
                        as usize
                })
            })
            .sum()
    }

    /// `a + b + c`, with the common prefix written once.
    pub fn name(&self) -> String {
        let names: Vec<&str> = self.parts.iter().map(|p| p.tensor.as_str()).collect();
        names.join(" + ")
    }
}

fn dtype_name<S: Serializer>(dtype: &DType, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(dtype.name())
}
