//! Owns the choice of kernel and grid: pure functions of shape, type and device profile. Knows no buffer.

mod attention;
mod linear;

pub use attention::{
    DecodeChoice, DecodeShape, PREFILL_TILE, PrefillShape, attention_decode, attention_prefill,
    padded_head_dim,
};
pub use linear::{LinearShape, Weight, linear};

use crate::signature::Signature;

/// What tunes the choice. Numbers, not names: a new chip is a new row of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceProfile {
    /// GPU cores (Apple), streaming multiprocessors (NVIDIA).
    pub cores: u32,
    /// Columns of the output that a simdgroup makes when there is one row: 1 or 4.
    pub columns_per_simdgroup: u32,
    /// Rows up to which lanes split K instead of using matrices.
    pub small_rows: u32,
    pub matrix_tile: MatrixTile,
}

/// Rows, columns and depth of a matrix tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixTile {
    T64x32x32,
    T64x64x16,
    T32x32x32,
}

impl MatrixTile {
    const fn sizes(self) -> (u32, u32, u32) {
        match self {
            MatrixTile::T64x32x32 => (64, 32, 32),
            MatrixTile::T64x64x16 => (64, 64, 16),
            MatrixTile::T32x32x32 => (32, 32, 32),
        }
    }
}

impl DeviceProfile {
    /// Up to 20 cores is a base or Pro chip, above a Max or Ultra. The crossover is a guess until it is measured on one.
    pub const fn apple(cores: u32) -> DeviceProfile {
        DeviceProfile {
            cores,
            columns_per_simdgroup: 4,
            small_rows: 8,
            matrix_tile: if cores <= 20 {
                MatrixTile::T64x32x32
            } else {
                MatrixTile::T64x64x16
            },
        }
    }

    /// Measured on an H200, bf16: GEMV 28672x4096 4.05 TB/s by one column a simdgroup, 3.56 by four; GEMM 8192x4096x4096
    /// 103 TFLOP/s by 64x64x16, 83 by 64x32x32.
    pub const fn nvidia(multiprocessors: u32) -> DeviceProfile {
        DeviceProfile {
            cores: multiprocessors,
            columns_per_simdgroup: 1,
            small_rows: 8,
            matrix_tile: MatrixTile::T64x64x16,
        }
    }
}

/// How a tensor is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    F16,
    Bf16,
    F32,
}

impl Element {
    const fn suffix(self) -> &'static str {
        match self {
            Element::F16 => "f16",
            Element::Bf16 => "bf16",
            Element::F32 => "f32",
        }
    }

    const fn bytes(self) -> usize {
        match self {
            Element::F16 | Element::Bf16 => 2,
            Element::F32 => 4,
        }
    }
}

/// One dispatch, all but its buffers and params.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    pub kernel: &'static Signature,
    pub threadgroups: [u32; 3],
    pub threads: u32,
    pub threadgroup_bytes: usize,
    /// Function constants by name.
    pub constants: Vec<(&'static str, u32)>,
}

/// A name that was put together here and is in no source is a bug, which the tests look for.
fn kernel(host_name: &str) -> &'static Signature {
    let found = crate::signature(host_name);
    found
        .unwrap_or_else(|| panic!("there is no kernel {host_name}"))
        .1
}

/// Root-mean-square norm: a threadgroup a row.
pub fn rms_norm(element: Element, rows: u32, has_add: bool, has_weight: bool) -> Launch {
    Launch {
        kernel: kernel(&format!("rms_norm_{}", element.suffix())),
        threadgroups: [rows, 1, 1],
        threads: 256,
        threadgroup_bytes: 256 / 32 * 4,
        constants: vec![
            ("has_add", has_add.into()),
            ("has_weight", has_weight.into()),
        ],
    }
}

/// `silu_mul`, `embed` and `gather`: a thread an element.
pub fn elementwise(name: &str, element: Element, rows: u32, width: u32) -> Launch {
    Launch {
        kernel: kernel(&format!("{name}_{}", element.suffix())),
        threadgroups: [width.div_ceil(256), rows, 1],
        threads: 256,
        threadgroup_bytes: 0,
        constants: Vec::new(),
    }
}

/// A threadgroup a head and token, keys after queries.
pub fn rope_kv_write(
    element: Element,
    tokens: u32,
    heads: u32,
    kv_heads: u32,
    interleaved: bool,
) -> Launch {
    Launch {
        kernel: kernel(&format!("rope_kv_write_{}", element.suffix())),
        threadgroups: [heads + kv_heads, tokens, 1],
        threads: 64,
        threadgroup_bytes: 0,
        constants: vec![("interleaved", interleaved.into())],
    }
}

/// A simdgroup a head and token.
pub fn head_norm(element: Element, tokens: u32, heads: u32) -> Launch {
    Launch {
        kernel: kernel(&format!("head_norm_{}", element.suffix())),
        threadgroups: [heads, tokens, 1],
        threads: 32,
        threadgroup_bytes: 0,
        constants: Vec::new(),
    }
}

/// The largest k that the kernel takes.
pub const TOP_K_LIMIT: u32 = 256;

/// A threadgroup a row; none for a k beyond the limit or the row's width.
pub fn top_k(rows: u32, width: u32, k: u32) -> Option<Launch> {
    if k == 0 || k > TOP_K_LIMIT.min(width) {
        return None;
    }
    Some(Launch {
        kernel: kernel("top_k_f32"),
        threadgroups: [rows, 1, 1],
        threads: 256,
        threadgroup_bytes: (256 + 16 + 2 * 256) * 4,
        constants: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_kernel_exists() {
        for element in [Element::F16, Element::Bf16] {
            assert_eq!(rms_norm(element, 3, true, true).threadgroups, [3, 1, 1]);
            assert_eq!(
                rope_kv_write(element, 5, 9, 3, false).threadgroups,
                [12, 5, 1]
            );
            assert_eq!(head_norm(element, 5, 9).threadgroups, [9, 5, 1]);
            for name in ["silu_mul", "embed", "gather"] {
                assert_eq!(elementwise(name, element, 7, 257).threadgroups, [2, 7, 1]);
            }
        }
    }

    #[test]
    fn top_k_is_offered_only_where_it_is_right() {
        assert!(top_k(1, 49152, 256).is_some());
        assert!(top_k(1, 49152, 257).is_none());
        assert!(top_k(1, 10, 11).is_none());
    }
}
