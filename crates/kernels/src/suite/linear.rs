//! Owns the shapes that matrix products are tested with.

use super::numbers::HALVES;
use super::product::{Product, computed};
use super::{Bench, Case};
use crate::select::{
    DENSE_TILES, DeviceProfile, Element, LinearProfile, MatrixTile, MatrixTiles, QUANTIZED_TILES,
    Weight,
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for weight in [Weight::Dense, Weight::Q8_0, Weight::Q4_1] {
        for element in HALVES {
            let product = Product {
                weight,
                element,
                out: element,
                m: 0,
                n: 0,
                k: 0,
                flags: 0,
            };
            chosen_cases(product, &mut cases);
            for out in [element, Element::F32] {
                once_cases(Product { out, ..product }, &mut cases);
            }
        }
    }
    cases
}

/// What the device would use, at every m, and with n and k off every tile.
fn chosen_cases(product: Product, cases: &mut Vec<Case>) {
    let names = format!("{:?}/{}", product.weight, product.element.suffix()).to_lowercase();
    let dense = product.weight == Weight::Dense;
    let k = if dense { 72 } else { 96 };
    for m in (1..=33).chain([64]) {
        cases.push(Case::new(format!("linear/{names}/m{m}"), move |bench| {
            let profile = bench.profile;
            run(bench, product.sized(m, 37, k, m % 8), &profile)
        }));
    }
    let ks = if dense {
        [75, 1, 64, 40]
    } else {
        [96, 32, 64, 32]
    };
    for ((m, n), k) in [(66, 70), (3, 1), (130, 131), (257, 9)].into_iter().zip(ks) {
        let name = format!("linear/{names}/{m}x{n}x{k}");
        cases.push(Case::new(name, move |bench| {
            let profile = bench.profile;
            run(bench, product.sized(m, n, k, 0), &profile)
        }));
    }
    let invariant = Case::new(
        format!("linear/{names}/invariant_to_the_batch"),
        move |bench| {
            // So few cores that 70 rows are worth the large tile.
            let profile = DeviceProfile {
                cores: 1,
                ..bench.profile
            };
            let shape = product.sized(70, 40, 160, 0);
            let many = computed(bench, shape, &profile, true)?;
            for m in [1, 5, 20] {
                let few = computed(bench, Product { m, ..shape }, &profile, true)?;
                if few != many[..few.len()] {
                    return Err(format!("of {m} rows the result is not that of 70"));
                }
            }
            Ok(())
        },
    );
    cases.push(invariant);
}

/// Every kernel there is.
fn once_cases(product: Product, cases: &mut Vec<Case>) {
    let dense = product.weight == Weight::Dense;
    let (weight, element, out) = (
        product.weight,
        product.element.suffix(),
        product.out.suffix(),
    );
    let names = format!("{weight:?}_{element}_{out}").to_lowercase();
    let tiles = if dense { DENSE_TILES } else { QUANTIZED_TILES };
    for &tile in tiles {
        let (rows, columns, depth) = (
            tile.rows as usize,
            tile.columns as usize,
            tile.depth as usize,
        );
        // One tile of K more than are in flight, so that the last one is where the first one was.
        let k = depth * tile.stages as usize + 32;
        cases.push(Case::new(
            format!("once/linear_{names}_{tile}"),
            move |bench| {
                if tile.threadgroup_bytes(product.element) > bench.profile.threadgroup_bytes {
                    return Ok(());
                }
                let once = forced(tile, false);
                if product.element != Element::F16 || product.out != Element::F16 {
                    run(bench, product.sized(9, 20, k, 7), &once)?;
                    // The kernel that adds the parts up knows no tile: one is enough.
                    return match tile == MatrixTile::plain(32, 32, 32) {
                        true => run(bench, product.sized(7, 20, 160, 3), &forced(tile, true)),
                        false => Ok(()),
                    };
                }
                run(bench, product.sized(rows - 5, columns + 3, k, 7), &once)?;
                run(bench, product.sized(rows + 1, 9, 64, 0), &once)?;
                if dense && tile.stages == 1 {
                    run(bench, product.sized(3, columns - 1, depth + 5, 0), &once)?;
                }
                run(bench, product.sized(7, 20, 160, 3), &forced(tile, true))
            },
        ));
    }
    for columns in if dense { [1, 4] } else { [2, 4] } {
        let name = format!("once/linear_small_{names}_c{columns}");
        cases.push(Case::new(name, move |bench| {
            let mut profile = DeviceProfile {
                // None to keep busy: the number of columns is the profile's.
                cores: 0,
                ..bench.profile
            };
            for linear in [&mut profile.dense, &mut profile.quantized] {
                linear.small_rows = u32::MAX;
                linear.columns_per_simdgroup = columns;
            }
            for m in [1, 2, 3, 9] {
                run(bench, product.sized(m, 19, 288, m % 8), &profile)?;
                if dense {
                    run(bench, product.sized(m, 6, 37, 0), &profile)?;
                }
            }
            Ok(())
        }));
    }
}

/// A profile that leaves no choice but that tile.
fn forced(tile: MatrixTile, split: bool) -> DeviceProfile {
    let linear = LinearProfile {
        small_rows: 0,
        columns_per_simdgroup: 1,
        tiles: MatrixTiles {
            up_to_16: tile,
            up_to_32: tile,
            medium: tile,
            large: tile,
        },
        split_groups_per_core: if split { 1000 } else { 0 },
        split_min_k: 64,
    };
    DeviceProfile {
        dense: linear,
        quantized: linear,
        ..DeviceProfile::apple(10)
    }
}

fn run(bench: &mut Bench, product: Product, profile: &DeviceProfile) -> Result<(), String> {
    computed(bench, product, profile, false).map(|_| ())
}
