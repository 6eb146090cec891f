//! Owns the choice of kernel and grid: pure functions of shape, type and device profile. Knows no buffer.

mod attention;
mod launch;
mod linear;
mod profile;
mod tile;

pub use attention::{
    DecodeChoice, DecodeShape, PrefillShape, attention_decode, attention_prefill, padded_head_dim,
};
pub use launch::{Constants, Launch};
pub use linear::{LinearChoice, LinearShape, Weight, linear};

pub use profile::{DeviceProfile, LinearProfile, MatrixTiles};
pub use tile::{DENSE_TILES, MatrixTile, QUANTIZED_TILES};

use launch::kernel;

/// How a tensor is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    F16,
    Bf16,
    F32,
}

impl Element {
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Element::F16 => "f16",
            Element::Bf16 => "bf16",
            Element::F32 => "f32",
        }
    }

    pub(crate) const fn bytes(self) -> usize {
        match self {
            Element::F16 | Element::Bf16 => 2,
            Element::F32 => 4,
        }
    }
}

/// Root-mean-square norm: a threadgroup a row.
pub fn rms_norm(element: Element, rows: u32, has_add: bool, has_weight: bool) -> Launch {
    Launch {
        kernel: kernel(format_args!("rms_norm_{}", element.suffix())),
        threadgroups: [rows, 1, 1],
        threads: 256,
        threadgroup_bytes: 256 / 32 * 4,
        constants: Constants::new(&[
            ("has_add", has_add.into()),
            ("has_weight", has_weight.into()),
        ]),
    }
}

/// `add`, `silu_mul`, `embed`, `embed_q8_0`, `embed_q4_1` and `gather`: a thread an element.
pub fn elementwise(name: &str, element: Element, rows: u32, width: u32) -> Launch {
    Launch {
        kernel: kernel(format_args!("{name}_{}", element.suffix())),
        threadgroups: [width.div_ceil(256), rows, 1],
        threads: 256,
        threadgroup_bytes: 0,
        constants: Constants::default(),
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
        kernel: kernel(format_args!("rope_kv_write_{}", element.suffix())),
        threadgroups: [heads + kv_heads, tokens, 1],
        threads: 64,
        threadgroup_bytes: 0,
        constants: Constants::new(&[("interleaved", interleaved.into())]),
    }
}

/// A simdgroup a head and token.
pub fn head_norm(element: Element, tokens: u32, heads: u32) -> Launch {
    Launch {
        kernel: kernel(format_args!("head_norm_{}", element.suffix())),
        threadgroups: [heads, tokens, 1],
        threads: 32,
        threadgroup_bytes: 0,
        constants: Constants::default(),
    }
}

/// The largest k that the kernel takes.
pub const TOP_K_LIMIT: u32 = 256;

/// A part of a row has at least so many logits: fewer do not pay for the second pass.
const TOP_K_PART: u32 = 2048;
/// Parts of one row: their results are looked through by one threadgroup.
const TOP_K_PARTS: u32 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopKChoice {
    /// Of each part of each row.
    pub main: Launch,
    /// Of the parts' results; none where rows have one part.
    pub merge: Option<Launch>,
    pub part_width: u32,
    pub parts: u32,
}

/// None for a k of 0, beyond the limit or beyond the row's width.
pub fn top_k(rows: u32, width: u32, k: u32) -> Option<TopKChoice> {
    if k == 0 || k > TOP_K_LIMIT.min(width) {
        return None;
    }
    let most = (width / TOP_K_PART.max(4 * k)).clamp(1, TOP_K_PARTS);
    // The last part is what the others leave, and must have k too.
    let parts = (1..=most).rev().find(|parts| {
        let part_width = width.div_ceil(*parts);
        width >= part_width * (parts - 1) + k
    });
    let parts = parts.unwrap_or(1);
    let launch = |parts: u32, has_candidates: bool| Launch {
        kernel: kernel(format_args!("top_k_f32")),
        threadgroups: [rows, parts, 1],
        threads: 256,
        threadgroup_bytes: (256 + 16 + 2 * 256) * 4,
        constants: Constants::new(&[("has_candidates", has_candidates.into())]),
    };
    Some(TopKChoice {
        main: launch(parts, false),
        merge: (parts > 1).then(|| launch(1, true)),
        part_width: width.div_ceil(parts),
        parts,
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
            for name in [
                "add",
                "silu_mul",
                "embed",
                "embed_q8_0",
                "embed_q4_1",
                "gather",
            ] {
                assert_eq!(elementwise(name, element, 7, 257).threadgroups, [2, 7, 1]);
            }
        }
    }

    #[test]
    fn top_k_is_offered_only_where_it_is_right() {
        assert!(top_k(1, 49152, 256).is_some());
        for (width, k) in [
            (128256, 1),
            (128256, 256),
            (49152, 20),
            (5000, 256),
            (300, 256),
        ] {
            let choice = top_k(2, width, k).unwrap();
            let last = width - choice.part_width * (choice.parts - 1);
            assert!(last >= k && last <= choice.part_width, "{choice:?}");
        }
        assert_eq!(top_k(1, 128256, 1).unwrap().parts, 32);
        assert!(top_k(1, 49152, 257).is_none());
        assert!(top_k(1, 10, 11).is_none());
    }
}
