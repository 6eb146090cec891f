//! Owns the sizes of a matrix tile and the name of its kernels.

use super::Element;
use std::fmt;

/// What a threadgroup of a matrix product works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixTile {
    pub rows: u32,
    pub columns: u32,
    /// Columns of K that are staged at a time.
    pub depth: u32,
    pub simdgroups: u32,
    /// Tiles in flight. 1: plain copies; more: asynchronous ones, which Apple's GPUs do not have.
    pub stages: u32,
}

/// Every tile that dense weights have kernels for.
pub const DENSE_TILES: &[MatrixTile] = &[
    MatrixTile::plain(64, 32, 32),
    MatrixTile::plain(64, 64, 16),
    MatrixTile::plain(32, 32, 32),
    MatrixTile::staged((128, 128, 32), 8, 3),
    MatrixTile::staged((128, 128, 32), 8, 4),
    MatrixTile::staged((128, 128, 32), 4, 3),
    MatrixTile::staged((128, 256, 32), 8, 3),
    MatrixTile::staged((64, 64, 64), 4, 3),
    MatrixTile::staged((32, 64, 64), 4, 4),
    MatrixTile::staged((16, 64, 64), 4, 4),
    MatrixTile::staged((32, 32, 128), 4, 3),
    MatrixTile::staged((16, 32, 128), 4, 4),
    MatrixTile::staged((16, 32, 128), 4, 6),
];

/// Every tile that quantized weights have kernels for.
pub const QUANTIZED_TILES: &[MatrixTile] = &[
    MatrixTile::plain(64, 32, 32),
    MatrixTile::plain(32, 32, 32),
    MatrixTile::staged((128, 128, 32), 8, 3),
    MatrixTile::staged((64, 64, 64), 4, 3),
    MatrixTile::staged((16, 64, 128), 4, 2),
    MatrixTile::staged((32, 64, 64), 4, 3),
];

impl MatrixTile {
    /// Of four simdgroups, by plain copies.
    pub const fn plain(rows: u32, columns: u32, depth: u32) -> MatrixTile {
        MatrixTile {
            rows,
            columns,
            depth,
            simdgroups: 4,
            stages: 1,
        }
    }

    /// By asynchronous copies.
    pub const fn staged(
        (rows, columns, depth): (u32, u32, u32),
        simdgroups: u32,
        stages: u32,
    ) -> MatrixTile {
        MatrixTile {
            rows,
            columns,
            depth,
            simdgroups,
            stages,
        }
    }

    pub(super) const fn groups(self, m: u32, n: u32) -> u32 {
        m.div_ceil(self.rows) * n.div_ceil(self.columns)
    }

    /// Rows are padded by 16 bytes.
    pub(crate) const fn threadgroup_bytes(self, element: Element) -> usize {
        let row = (self.depth + 8) as usize * element.bytes();
        (self.stages * (self.rows + self.columns)) as usize * row
    }
}

/// As in the names of kernels.
impl fmt::Display for MatrixTile {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}x{}x{}", self.rows, self.columns, self.depth)?;
        if self.stages > 1 {
            write!(f, "_w{}_s{}", self.simdgroups, self.stages)?;
        }
        Ok(())
    }
}
