//! Owns the weights a plan reads: which tensors of the source make each up, by exact name and shape.

use mettle_tensor::DType;
use serde::{Serialize, Serializer};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct WeightId(pub u32);

/// Which rows and columns of a tensor a weight takes, where it does not take the tensor whole: one rank's share, or
/// what a checkpoint stores interleaved. A loader cuts once; no op ever sees the rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cut {
    /// The tensor's own shape.
    pub of: Vec<usize>,
    pub take: Take,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Take {
    /// Everything, in other dimensions: a convolution over patches, or a vector, as a projection.
    Flattened,
    /// Rows `start..start + count` of every `period` rows, one after another; of a vector, elements.
    Rows {
        start: usize,
        count: usize,
        period: usize,
    },
    /// The same rows, each run of `count` transposed: absorbed projections of latent attention.
    RowsTransposed {
        start: usize,
        count: usize,
        period: usize,
    },
    Columns {
        start: usize,
        count: usize,
    },
    /// The whole matrix transposed: its rows are the input.
    Transposed,
    /// Of each expert's outputs (rows of a matrix, elements of a bias) the even ones, then the odd ones: gate and up as
    /// gpt-oss mixes them.
    EvenThenOdd,
    /// The same where the rows of each expert's matrix are the input.
    TransposedEvenThenOdd,
}

/// One tensor of the source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Its exact name in the source.
    pub tensor: String,
    /// As the op sees it.
    /// Outermost first: `[n]`, `[rows, columns]` or `[experts, rows, columns]`.
    pub shape: Vec<usize>,
    /// As declared by the config; binding replaces it by what the source holds.
    #[serde(serialize_with = "dtype_name")]
    pub dtype: DType,
    /// Absent: the tensor is taken whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<Cut>,
}

impl Part {
    /// The shape that the source must hold.
    pub fn source_shape(&self) -> &[usize] {
        self.cut.as_ref().map_or(&self.shape, |cut| &cut.of)
    }
}

/// What an op reads: one tensor, or several with equal columns stacked by rows (fused projections; the experts of a
/// mixture one after another).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Weight {
    pub parts: Vec<Part>,
}

impl Weight {
    /// Whether every part is a whole tensor, as it lies in the file.
    pub fn is_uncut(&self) -> bool {
        let is_whole = |cut: &Cut| cut.take == Take::Flattened;
        self.parts
            .iter()
            .all(|p| p.cut.as_ref().is_none_or(is_whole))
    }

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

    /// `a + b + c`; of many (a mixture's experts) the first, the last and the number.
    pub fn name(&self) -> String {
        let names: Vec<&str> = self.parts.iter().map(|p| p.tensor.as_str()).collect();
        match &names[..] {
            [first, .., last] if names.len() > 4 => {
                format!("{first} + ... + {last} ({} tensors)", names.len())
            }
            few => few.join(" + "),
        }
    }
}

fn dtype_name<S: Serializer>(dtype: &DType, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(dtype.name())
}
