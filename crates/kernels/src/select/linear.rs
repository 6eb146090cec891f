//! Owns the choice between lanes that split K and matrix tiles, by the number of rows.

use super::{DeviceProfile, Element, Launch, MatrixTile, kernel};

/// How W is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

/// None: quantized weights need whole blocks of 32 columns and aligned rows of x.
pub fn linear(shape: &LinearShape, device: &DeviceProfile) -> Option<Launch> {
    let aligned = shape.rows_aligned && shape.k.is_multiple_of(8);
    let quantized = shape.weight != Weight::Dense;
    if quantized && !(aligned && shape.k.is_multiple_of(32)) {
        return None;
    }
    let constants = vec![
        ("has_bias", shape.has_bias.into()),
        ("has_residual", shape.has_residual.into()),
        ("has_rows", shape.has_rows.into()),
        ("aligned", aligned.into()),
    ];
    let weight = shape.weight.prefix();
    let names = format!("{weight}{}_{}", shape.element.suffix(), shape.out.suffix());
    if shape.m <= device.small_rows {
        let (rows, columns) = match (shape.m, quantized) {
            (1, false) => (1, device.columns_per_simdgroup),
            (2, false) => (2, 2),
            (1 | 2, true) => (shape.m, 1),
            _ => (4, 1),
        };
        let tile = if quantized {
            format!("r{rows}")
        } else {
            format!("r{rows}_c{columns}")
        };
        return Some(Launch {
            kernel: kernel(&format!("linear_small_{names}_{tile}")),
            threadgroups: [shape.n.div_ceil(4 * columns), shape.m.div_ceil(rows), 1],
            threads: 128,
            threadgroup_bytes: 0,
            constants,
        });
    }
    let tile = match shape.m {
        // A short tile wastes less where there are few rows.
        ..=32 => MatrixTile::T32x32x32,
        _ if quantized || shape.m <= 64 => MatrixTile::T64x32x32,
        _ => device.matrix_tile,
    };
    let (rows, columns, depth) = tile.sizes();
    Some(Launch {
        kernel: kernel(&format!("linear_{names}_{rows}x{columns}x{depth}")),
        threadgroups: [shape.n.div_ceil(columns), shape.m.div_ceil(rows), 1],
        threads: 128,
        // Rows are padded by 16 bytes.
        threadgroup_bytes: ((rows + columns) * (depth + 8)) as usize * shape.element.bytes(),
        constants,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(m: u32) -> LinearShape {
        LinearShape {
            m,
            n: 100,
            k: 64,
            element: Element::F16,
            weight: Weight::Dense,
            out: Element::F16,
            has_bias: false,
            has_residual: true,
            has_rows: false,
            rows_aligned: true,
        }
    }

    #[test]
    fn every_choice_exists_and_fits() {
        let devices = [
            (DeviceProfile::apple(8), 16 << 10),
            (DeviceProfile::apple(40), 16 << 10),
            (DeviceProfile::nvidia(132), 16 << 10),
        ];
        for (device, memory) in devices {
            for element in [Element::F16, Element::Bf16] {
                for (weight, out) in [
                    (Weight::Dense, element),
                    (Weight::Dense, Element::F32),
                    (Weight::Q8_0, element),
                    (Weight::Q8_0, Element::F32),
                    (Weight::Q4_1, element),
                    (Weight::Q4_1, Element::F32),
                ] {
                    for m in (1..=65).chain([1000]) {
                        let shape = LinearShape {
                            element,
                            weight,
                            out,
                            ..shape(m)
                        };
                        let launch = linear(&shape, &device).unwrap();
                        assert!(launch.threadgroup_bytes <= memory, "{launch:?}");
                        assert_eq!(launch.threadgroup_bytes > 0, m > device.small_rows);
                    }
                }
            }
        }
    }

    #[test]
    fn the_tile_follows_rows_and_device() {
        let apple = DeviceProfile::apple(10);
        let name = |m, device: &DeviceProfile| {
            linear(&shape(m), device).unwrap().kernel.host_name.as_str()
        };
        assert_eq!(name(1, &apple), "linear_small_f16_f16_r1_c4");
        assert_eq!(
            name(1, &DeviceProfile::nvidia(132)),
            "linear_small_f16_f16_r1_c1"
        );
        assert_eq!(name(2, &apple), "linear_small_f16_f16_r2_c2");
        assert_eq!(name(5, &apple), "linear_small_f16_f16_r4_c1");
        assert_eq!(name(9, &apple), "linear_f16_f16_32x32x32");
        assert_eq!(name(65, &apple), "linear_f16_f16_64x32x32");
        assert_eq!(
            name(65, &DeviceProfile::apple(40)),
            "linear_f16_f16_64x64x16"
        );
        assert_eq!(
            name(65, &DeviceProfile::nvidia(132)),
            "linear_f16_f16_64x64x16"
        );
        assert_eq!(linear(&shape(70), &apple).unwrap().threadgroups, [4, 2, 1]);
    }

    #[test]
    fn quantized_weights_need_whole_blocks_and_aligned_rows() {
        let device = DeviceProfile::apple(10);
        let quantized = LinearShape {
            weight: Weight::Q4_1,
            ..shape(1)
        };
        assert!(linear(&quantized, &device).is_some());
        assert!(linear(&LinearShape { k: 40, ..quantized }, &device).is_none());
        let loose = LinearShape {
            rows_aligned: false,
            ..quantized
        };
        assert!(linear(&loose, &device).is_none());
    }
}
