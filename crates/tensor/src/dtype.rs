//! Owns the list of element types that weights are stored in.

use std::fmt;

/// How the elements of a tensor are stored. Quantized types store rows as blocks of `block_len` elements. All but the last
/// three are ggml's; those hold what quantized safetensors say, which no type of ggml's can hold exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(non_camel_case_types)]
pub enum DType {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
    IQ4_XS,
    MXFP4,
    /// Bytes with a scale and an offset (MLX's 8 bits).
    Affine8,
    /// Nibbles with a scale and an integer that stands for zero (AWQ, GPTQ).
    Zero4,
    /// Floats of 8 bits (e4m3) with a scale.
    F8,
}

impl DType {
    pub const ALL: [DType; 19] = [
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::Q4_0,
        DType::Q4_1,
        DType::Q5_0,
        DType::Q5_1,
        DType::Q8_0,
        DType::Q2_K,
        DType::Q3_K,
        DType::Q4_K,
        DType::Q5_K,
        DType::Q6_K,
        DType::IQ4_NL,
        DType::IQ4_XS,
        DType::MXFP4,
        DType::Affine8,
        DType::Zero4,
        DType::F8,
    ];

    /// Elements in one block; 1 for the dense types.
    pub const fn block_len(self) -> usize {
        match self {
            DType::F32 | DType::F16 | DType::BF16 => 1,
            DType::Q4_0 | DType::Q4_1 | DType::Q5_0 | DType::Q5_1 | DType::Q8_0 => 32,
            DType::IQ4_NL | DType::MXFP4 | DType::Affine8 | DType::Zero4 | DType::F8 => 32,
            DType::Q2_K | DType::Q3_K | DType::Q4_K | DType::Q5_K | DType::Q6_K => 256,
            DType::IQ4_XS => 256,
        }
    }

    /// Bytes of one block as stored in a file.
    pub const fn block_bytes(self) -> usize {
        match self {
            DType::F32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::Q4_0 => 18,
            DType::Q4_1 => 20,
            DType::Q5_0 => 22,
            DType::Q5_1 => 24,
            DType::Q8_0 => 34,
            DType::Q2_K => 84,
            DType::Q3_K => 110,
            DType::Q4_K => 144,
            DType::Q5_K => 176,
            DType::Q6_K => 210,
            DType::IQ4_NL => 18,
            DType::IQ4_XS => 136,
            DType::MXFP4 => 17,
            DType::Affine8 => 36,
            DType::Zero4 => 19,
            DType::F8 => 36,
        }
    }

    pub const fn is_quantized(self) -> bool {
        self.block_len() > 1
    }

    /// Bytes of a row of `columns` elements, or `None` where the row is not a whole number of blocks or too large.
    pub fn row_bytes(self, columns: usize) -> Option<usize> {
        if !columns.is_multiple_of(self.block_len()) {
            return None;
        }
        (columns / self.block_len()).checked_mul(self.block_bytes())
    }

    /// Bytes of a whole tensor (`shape` outermost first), checked for overflow.
    pub fn tensor_bytes(self, shape: &[usize]) -> Option<usize> {
        let (columns, outer) = shape.split_last()?;
        let mut bytes = self.row_bytes(*columns)?;
        for dim in outer {
            bytes = bytes.checked_mul(*dim)?;
        }
        Some(bytes)
    }

    /// Mean bits per element, scales included.
    pub fn bits_per_element(self) -> f64 {
        self.block_bytes() as f64 * 8.0 / self.block_len() as f64
    }

    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "F32",
            DType::F16 => "F16",
            DType::BF16 => "BF16",
            DType::Q4_0 => "Q4_0",
            DType::Q4_1 => "Q4_1",
            DType::Q5_0 => "Q5_0",
            DType::Q5_1 => "Q5_1",
            DType::Q8_0 => "Q8_0",
            DType::Q2_K => "Q2_K",
            DType::Q3_K => "Q3_K",
            DType::Q4_K => "Q4_K",
            DType::Q5_K => "Q5_K",
            DType::Q6_K => "Q6_K",
            DType::IQ4_NL => "IQ4_NL",
            DType::IQ4_XS => "IQ4_XS",
            DType::MXFP4 => "MXFP4",
            DType::Affine8 => "Affine8",
            DType::Zero4 => "Zero4",
            DType::F8 => "F8",
        }
    }

    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL
            .into_iter()
            .find(|d| d.name().eq_ignore_ascii_case(name))
    }

    /// The type number that GGUF files use.
    pub const fn ggml_number(self) -> Option<u32> {
        Some(match self {
            DType::F32 => 0,
            DType::F16 => 1,
            DType::Q4_0 => 2,
            DType::Q4_1 => 3,
            DType::Q5_0 => 6,
            DType::Q5_1 => 7,
            DType::Q8_0 => 8,
            DType::Q2_K => 10,
            DType::Q3_K => 11,
            DType::Q4_K => 12,
            DType::Q5_K => 13,
            DType::Q6_K => 14,
            DType::IQ4_NL => 20,
            DType::IQ4_XS => 23,
            DType::BF16 => 30,
            DType::MXFP4 => 39,
            DType::Affine8 | DType::Zero4 | DType::F8 => return None,
        })
    }

    pub fn from_ggml(number: u32) -> Option<DType> {
        DType::ALL
            .into_iter()
            .find(|d| d.ggml_number() == Some(number))
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_checked() {
        assert_eq!(DType::Q4_1.row_bytes(576), Some(360));
        assert_eq!(DType::Q4_1.row_bytes(33), None);
        assert_eq!(DType::F16.tensor_bytes(&[3, 5]), Some(30));
        assert_eq!(DType::F32.tensor_bytes(&[usize::MAX, 8]), None);
        assert_eq!(DType::F32.tensor_bytes(&[]), None);
        assert_eq!(DType::F32.tensor_bytes(&[0, 4]), Some(0));
    }

    #[test]
    fn names_round_trip() {
        for dtype in DType::ALL {
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
        }
        assert_eq!(DType::from_name("q4_k"), Some(DType::Q4_K));
        assert_eq!(DType::from_name("Q9"), None);
    }
}
