//! Owns the numbers that tune the choice of kernels for a device.

use super::MatrixTile;

/// What tunes the choice. Numbers, not names: a new chip is a new row of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceProfile {
    /// GPU cores (Apple), streaming multiprocessors (NVIDIA).
    pub cores: u32,
    /// Threadgroup memory that one threadgroup may have.
    pub threadgroup_bytes: usize,
    pub dense: LinearProfile,
    pub quantized: LinearProfile,
    /// The fewest tokens that decode attention gives a threadgroup of a context that it splits: with fewer the second
    /// kernel does not pay.
    pub decode_part_tokens: u32,
    /// Queries of one sequence that a threadgroup of prefill attention takes, 32 or 64 (by asynchronous copies): the host
    /// cuts queries into such tiles.
    pub prefill_queries: u32,
}

/// How products of one kind of weight are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinearProfile {
    /// Rows up to which lanes split K instead of using matrices.
    pub small_rows: u32,
    /// Columns of the output that a simdgroup makes when there is one row: 1 or 4 of dense weights, 2 or 4 of others.
    pub columns_per_simdgroup: u32,
    pub tiles: MatrixTiles,
    /// Threadgroups a core below which a product by matrix tiles splits K; 0: never.
    pub split_groups_per_core: u32,
    /// The fewest columns of K that a part has.
    pub split_min_k: u32,
}

/// Matrix tiles by the number of rows of x.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixTiles {
    pub up_to_16: MatrixTile,
    pub up_to_32: MatrixTile,
    /// Up to 64, and where `large` would leave cores idle.
    pub medium: MatrixTile,
    pub large: MatrixTile,
}

impl DeviceProfile {
    /// Up to 20 cores is a base or Pro chip, above a Max or Ultra. The crossover is a guess until it is measured on one.
    pub const fn apple(cores: u32) -> DeviceProfile {
        let (short, tall) = (MatrixTile::plain(32, 32, 32), MatrixTile::plain(64, 32, 32));
        let tiles = MatrixTiles {
            up_to_16: short,
            up_to_32: short,
            medium: tall,
            large: tall,
        };
        DeviceProfile {
            cores,
            threadgroup_bytes: 32 << 10,
            dense: LinearProfile {
                small_rows: 8,
                columns_per_simdgroup: 4,
                tiles: MatrixTiles {
                    large: if cores <= 20 {
                        tall
                    } else {
                        MatrixTile::plain(64, 64, 16)
                    },
                    ..tiles
                },
                split_groups_per_core: 0,
                split_min_k: 256,
            },
            quantized: LinearProfile {
                small_rows: 8,
                columns_per_simdgroup: 4,
                tiles,
                split_groups_per_core: 0,
                split_min_k: 256,
            },
            decode_part_tokens: 256,
            prefill_queries: 32,
        }
    }

    /// Measured on an H200, bf16 (`mettle bench kernels --all-tiles`): GEMV 28672x4096 4.2 TB/s by one column a simdgroup,
    /// 3.6 by four. 16 rows of 4096x14336: 3.1 TB/s by 16x64x64 with K in 8 parts, 2.7 by 16x32x128 in 2. 8192 rows of
    /// 28672x4096: 337 TFLOP/s by 128x128x32 with 4 simdgroups, 301 with 8. Quantized tiles are not measured yet.
    pub const fn nvidia(multiprocessors: u32) -> DeviceProfile {
        let dense = MatrixTiles {
            up_to_16: MatrixTile::staged((16, 64, 64), 4, 4),
            up_to_32: MatrixTile::staged((32, 64, 64), 4, 4),
            medium: MatrixTile::staged((64, 64, 64), 4, 3),
            large: MatrixTile::staged((128, 128, 32), 4, 3),
        };
        let quantized = MatrixTiles {
            up_to_16: MatrixTile::staged((16, 64, 128), 4, 2),
            up_to_32: MatrixTile::staged((32, 64, 64), 4, 3),
            medium: MatrixTile::staged((64, 64, 64), 4, 3),
            large: MatrixTile::staged((128, 128, 32), 8, 3),
        };
        DeviceProfile {
            cores: multiprocessors,
            // Hopper has 227 KB, Ampere's smallest 99.
            threadgroup_bytes: 227 << 10,
            dense: LinearProfile {
                small_rows: 4,
                columns_per_simdgroup: 1,
                tiles: dense,
                split_groups_per_core: 4,
                split_min_k: 512,
            },
            quantized: LinearProfile {
                small_rows: 8,
                columns_per_simdgroup: 4,
                tiles: quantized,
                // A threadgroup has but one tile of W under way.
                split_groups_per_core: 4,
                split_min_k: 512,
            },
            // A step of four keys waits for memory twice, so a lone query needs many threadgroups.
            decode_part_tokens: 32,
            prefill_queries: 64,
        }
    }
}
