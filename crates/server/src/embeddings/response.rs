//! Owns embeddings on the wire: a vector as numbers or as base64, of length 1 or as the model gave it.

use super::base64;
use super::request::Encoding;
use crate::usage::Usage;
use serde::Serialize;
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
pub struct EmbeddingResponse {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub data: Vec<Embedding>,
    pub usage: Usage,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Embedding {
    pub object: &'static str,
    /// Which of the inputs.
    pub index: usize,
    #[schema(schema_with = crate::openapi::vector_schema)]
    pub embedding: Vector,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Vector {
    Numbers(Vec<f32>),
    /// Little-endian f32, one after another.
    Base64(String),
}

impl Embedding {
    pub fn new(
        index: usize,
        mut vector: Vec<f32>,
        normalized: bool,
        encoding: Encoding,
    ) -> Embedding {
        if normalized {
            normalize(&mut vector);
        }
        Embedding {
            object: "embedding",
            index,
            embedding: match encoding {
                Encoding::Float => Vector::Numbers(vector),
                Encoding::Base64 => {
                    let bytes: Vec<u8> = vector.iter().flat_map(|v| v.to_le_bytes()).collect();
                    Vector::Base64(base64::encode(&bytes))
                }
            },
        }
    }
}

/// Length 1; a vector of zeros has no direction and stays.
fn normalize(vector: &mut [f32]) {
    let squares: f64 = vector.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
    if squares > 0.0 {
        let scale = squares.sqrt().recip();
        vector
            .iter_mut()
            .for_each(|v| *v = (f64::from(*v) * scale) as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_get_length_one_and_zeros_stay() {
        let mut vector = [3.0, 0.0, -4.0];
        normalize(&mut vector);
        assert_eq!(vector, [0.6, 0.0, -0.8]);
        // Squares of these are no f32 any more.
        let mut long = [1e30, 1e30];
        normalize(&mut long);
        assert!((long[0] - 0.5_f32.sqrt()).abs() < 1e-6);
        let mut nothing = [0.0; 3];
        normalize(&mut nothing);
        assert_eq!(nothing, [0.0; 3]);
    }
}
