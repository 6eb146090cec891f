//! Owns the kinds of quantized files: their names, their numbers in the metadata, and the type of most of their tensors.

use mettle_tensor::DType;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types)]
pub enum FileType {
    F32,
    F16,
    BF16,
    Q8_0,
    Q6_K,
    Q5_K_M,
    Q5_K_S,
    Q4_K_M,
    Q4_K_S,
    Q3_K_L,
    Q3_K_M,
    Q3_K_S,
    Q2_K,
    Q5_1,
    Q5_0,
    Q4_1,
    Q4_0,
    IQ4_NL,
    IQ4_XS,
}

impl FileType {
    pub const ALL: [FileType; 19] = [
        FileType::F32,
        FileType::F16,
        FileType::BF16,
        FileType::Q8_0,
        FileType::Q6_K,
        FileType::Q5_K_M,
        FileType::Q5_K_S,
        FileType::Q4_K_M,
        FileType::Q4_K_S,
        FileType::Q3_K_L,
        FileType::Q3_K_M,
        FileType::Q3_K_S,
        FileType::Q2_K,
        FileType::Q5_1,
        FileType::Q5_0,
        FileType::Q4_1,
        FileType::Q4_0,
        FileType::IQ4_NL,
        FileType::IQ4_XS,
    ];

    /// Its name, its number in `general.file_type`, and the type of tensors that nothing is said of.
    const fn facts(self) -> (&'static str, u32, DType) {
        match self {
            FileType::F32 => ("F32", 0, DType::F32),
            FileType::F16 => ("F16", 1, DType::F16),
            FileType::BF16 => ("BF16", 32, DType::BF16),
            FileType::Q8_0 => ("Q8_0", 7, DType::Q8_0),
            FileType::Q6_K => ("Q6_K", 18, DType::Q6_K),
            FileType::Q5_K_M => ("Q5_K_M", 17, DType::Q5_K),
            FileType::Q5_K_S => ("Q5_K_S", 16, DType::Q5_K),
            FileType::Q4_K_M => ("Q4_K_M", 15, DType::Q4_K),
            FileType::Q4_K_S => ("Q4_K_S", 14, DType::Q4_K),
            FileType::Q3_K_L => ("Q3_K_L", 13, DType::Q3_K),
            FileType::Q3_K_M => ("Q3_K_M", 12, DType::Q3_K),
            FileType::Q3_K_S => ("Q3_K_S", 11, DType::Q3_K),
            FileType::Q2_K => ("Q2_K", 10, DType::Q2_K),
            FileType::Q5_1 => ("Q5_1", 9, DType::Q5_1),
            FileType::Q5_0 => ("Q5_0", 8, DType::Q5_0),
            FileType::Q4_1 => ("Q4_1", 3, DType::Q4_1),
            FileType::Q4_0 => ("Q4_0", 2, DType::Q4_0),
            FileType::IQ4_NL => ("IQ4_NL", 25, DType::IQ4_NL),
            FileType::IQ4_XS => ("IQ4_XS", 30, DType::IQ4_XS),
        }
    }

    pub const fn name(self) -> &'static str {
        self.facts().0
    }

    pub const fn number(self) -> u32 {
        self.facts().1
    }

    pub const fn main(self) -> DType {
        self.facts().2
    }

    /// Upper and lower case are the same.
    pub fn from_name(name: &str) -> Option<FileType> {
        let is_it = |kind: &FileType| kind.name().eq_ignore_ascii_case(name);
        FileType::ALL.into_iter().find(is_it)
    }
}

impl fmt::Display for FileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
