//! Owns the choice between lanes that split K and matrix tiles, by the number of rows.

use super::{
    Constants, DeviceProfile, Element, Launch, LinearProfile, MatrixTile, MatrixTiles, kernel,
};

/// How W is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weight {
    /// As x is.
    Dense,
    /// In the planes of `repack::q8_0`.
    Q8_0,
    /// In the planes of `repack::q4_1`.
    Q4_1,
}

impl Weight {
    const fn prefix(self) -> &'static str {
        match self {
            Weight::Dense => "",
            Weight::Q8_0 => "q8_0_",
            Weight::Q4_1 => "q4_1_",
        }
    }
}

/// `out[m, n] = x[m, k] · W[n, k]ᵀ`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinearShape {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    /// Of x, bias and residual.
    pub element: Element,
    pub weight: Weight,
    /// `element`, or F32 for logits.
    pub out: Element,
    pub has_bias: bool,
    pub has_residual: bool,
    /// Rows of x are named by a list.
    pub has_rows: bool,
    /// Every row of x and W lies at a multiple of 16 bytes.
    pub rows_aligned: bool,
    /// The same order of additions whatever m is, so that a row's result does not depend on its batch.
    pub batch_invariant: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearChoice {
    /// Where K is split, its `out` is the buffer of partial results, with n as `out_stride`.
    pub main: Launch,
    /// Adds the parts up, then bias and residual; none where K is not split.
    pub reduce: Option<Launch>,
    pub parts: u32,
    /// Columns of K that one part has, for the params.
    pub part_k: u32,
    /// Floats of the buffer of partial results.
    pub partial_floats: usize,
}

/// None: quantized weights need whole blocks of 32 columns and aligned rows of x.
pub fn linear(shape: &LinearShape, device: &DeviceProfile) -> Option<LinearChoice> {
    let aligned = shape.rows_aligned && shape.k.is_multiple_of(8);
    let dense = shape.weight == Weight::Dense;
    let whole_blocks = aligned && shape.k.is_multiple_of(32);
    if !dense && !whole_blocks {
        return None;
    }
    let profile = if dense {
        &device.dense
    } else {
        &device.quantized
    };
    // Lanes that split K add in another order than matrices do. All matrix tiles add in the same order.
    if shape.m <= profile.small_rows && !shape.batch_invariant {
        return Some(LinearChoice {
            main: small_launch(shape, aligned, profile, device.cores),
            reduce: None,
            parts: 1,
            part_k: shape.k,
            partial_floats: 0,
        });
    }
    let tile = match profile.tiles.choose(shape, device.cores) {
        // Asynchronous copies need boundaries of 16 bytes.
        tile if tile.stages > 1 && !aligned => MatrixTile::plain(64, 32, 32),
        tile => tile,
    };
    let part_k = part_k(shape, tile, profile, device.cores);
    let parts = shape.k.div_ceil(part_k);
    let split = parts > 1;
    Some(LinearChoice {
        main: matrix_launch(shape, aligned, tile, parts),
        reduce: split.then(|| reduce_launch(shape)),
        parts,
        part_k,
        partial_floats: if split {
            parts as usize * shape.m as usize * shape.n as usize
        } else {
            0
        },
    })
}

impl MatrixTiles {
    fn choose(&self, shape: &LinearShape, cores: u32) -> MatrixTile {
        match shape.m {
            // In the short tiles simdgroups share K.
            0..=64 if shape.batch_invariant => self.medium,
            0..=16 => self.up_to_16,
            17..=32 => self.up_to_32,
            33..=64 => self.medium,
            m if self.large.groups(m, shape.n) < cores => self.medium,
            _ => self.large,
        }
    }
}

/// The largest part of K that still keeps the device busy.
fn part_k(shape: &LinearShape, tile: MatrixTile, profile: &LinearProfile, cores: u32) -> u32 {
    let groups = tile.groups(shape.m, shape.n);
    let parts = (profile.split_groups_per_core * cores) / groups;
    if parts < 2 || shape.batch_invariant {
        return shape.k;
    }
    let fewest = shape.k.div_ceil(parts).max(profile.split_min_k);
    fewest.next_multiple_of(tile.depth.max(64)).min(shape.k)
}

fn constants(shape: &LinearShape, aligned: bool, epilogue: bool) -> Constants {
    Constants::new(&[
        ("has_bias", (shape.has_bias && epilogue).into()),
        ("has_residual", (shape.has_residual && epilogue).into()),
        ("has_rows", shape.has_rows.into()),
        ("aligned", aligned.into()),
    ])
}

fn small_launch(shape: &LinearShape, aligned: bool, profile: &LinearProfile, cores: u32) -> Launch {
    let (weight, element, out) = names(shape);
    // Few columns of the output must still give every core threadgroups: four of them, of four simdgroups each.
    let few = shape.n < 4 * 4 * profile.columns_per_simdgroup * cores;
    let (rows, columns) = match (shape.m, shape.weight) {
        (1, Weight::Q8_0 | Weight::Q4_1) if few => (1, 2),
        (1, _) => (1, profile.columns_per_simdgroup),
        (2, _) => (2, 2),
        (_, Weight::Dense) => (4, 1),
        (_, Weight::Q8_0 | Weight::Q4_1) => (4, 2),
    };
    Launch {
        kernel: kernel(format_args!(
            "linear_small_{weight}{element}_{out}_r{rows}_c{columns}"
        )),
        threadgroups: [shape.n.div_ceil(4 * columns), shape.m.div_ceil(rows), 1],
        threads: 128,
        threadgroup_bytes: 0,
        constants: constants(shape, aligned, true),
    }
}

fn matrix_launch(shape: &LinearShape, aligned: bool, tile: MatrixTile, parts: u32) -> Launch {
    let (weight, element, out) = names(shape);
    let out = if parts > 1 { "f32" } else { out };
    Launch {
        kernel: kernel(format_args!("linear_{weight}{element}_{out}_{tile}")),
        threadgroups: [
            shape.n.div_ceil(tile.columns),
            shape.m.div_ceil(tile.rows),
            parts,
        ],
        threads: 32 * tile.simdgroups,
        threadgroup_bytes: tile.threadgroup_bytes(shape.element),
        constants: constants(shape, aligned, parts == 1),
    }
}

fn reduce_launch(shape: &LinearShape) -> Launch {
    let (_, element, out) = names(shape);
    Launch {
        kernel: kernel(format_args!("linear_reduce_{element}_{out}")),
        threadgroups: [shape.n.div_ceil(256), shape.m, 1],
        threads: 256,
        threadgroup_bytes: 0,
        constants: Constants::new(&[
            ("has_bias", shape.has_bias.into()),
            ("has_residual", shape.has_residual.into()),
        ]),
    }
}

fn names(shape: &LinearShape) -> (&'static str, &'static str, &'static str) {
    (
        shape.weight.prefix(),
        shape.element.suffix(),
        shape.out.suffix(),
    )
}

#[cfg(test)]
#[path = "linear_tests.rs"]
mod tests;
