//! Owns the tests of the choice of matrix products.

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
        batch_invariant: false,
    }
}

#[test]
fn every_choice_exists_and_fits() {
    let devices = [
        (DeviceProfile::apple(8), 16 << 10),
        (DeviceProfile::apple(40), 16 << 10),
        (DeviceProfile::nvidia(132), 99 << 10),
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
                for m in (1..=65).chain([1000, 20_000]) {
                    let shape = LinearShape {
                        element,
                        weight,
                        out,
                        ..shape(m)
                    };
                    let choice = linear(&shape, &device).unwrap();
                    assert!(choice.main.threadgroup_bytes <= memory, "{choice:?}");
                    let plain = !choice.main.kernel.host_name.contains("_w");
                    assert!(plain || device.threadgroup_bytes > 32 << 10, "{choice:?}");
                }
            }
        }
    }
}

fn name(m: u32, device: &DeviceProfile) -> &'static str {
    let choice = linear(&shape(m), device).unwrap();
    &choice.main.kernel.host_name
}

#[test]
fn the_tile_follows_rows_and_device() {
    let apple = DeviceProfile::apple(10);
    assert_eq!(name(1, &apple), "linear_small_f16_f16_r1_c4");
    assert_eq!(name(2, &apple), "linear_small_f16_f16_r2_c2");
    assert_eq!(name(5, &apple), "linear_small_f16_f16_r4_c1");
    assert_eq!(name(9, &apple), "linear_f16_f16_32x32x32");
    assert_eq!(name(6500, &apple), "linear_f16_f16_64x32x32");
    let max = DeviceProfile::apple(40);
    assert_eq!(name(6500, &max), "linear_f16_f16_64x64x16");
    assert_eq!(
        linear(&shape(70), &apple).unwrap().main.threadgroups,
        [4, 2, 1]
    );
    let nvidia = DeviceProfile::nvidia(132);
    assert_eq!(name(1, &nvidia), "linear_small_f16_f16_r1_c1");
    assert_eq!(name(16, &nvidia), "linear_f16_f16_16x64x64_w4_s4");
    assert_eq!(name(65, &nvidia), "linear_f16_f16_64x64x64_w4_s3");
    assert_eq!(name(20_000, &nvidia), "linear_f16_f16_128x128x32_w4_s3");
}

#[test]
fn k_is_split_where_columns_leave_cores_idle() {
    let device = DeviceProfile::nvidia(132);
    let split = |n, k| {
        let shape = LinearShape { n, k, ..shape(16) };
        linear(&shape, &device).unwrap()
    };
    assert_eq!(split(28672, 4096).parts, 1);
    let choice = split(1024, 4096);
    assert_eq!((choice.parts, choice.part_k), (8, 512));
    assert_eq!(choice.partial_floats, 8 * 16 * 1024);
    assert_eq!(choice.main.threadgroups, [16, 1, 8]);
    // Bias and residual are the second kernel's.
    assert_eq!(choice.main.constants[1], ("has_residual", 0));
    let reduce = choice.reduce.unwrap();
    assert_eq!(reduce.constants[1], ("has_residual", 1));
    assert_eq!(reduce.threadgroups, [4, 16, 1]);
    // Parts cover K in whole tiles and are not empty.
    for k in (8..5000).step_by(104) {
        let choice = split(64, k);
        assert!(choice.parts * choice.part_k >= k && (choice.parts - 1) * choice.part_k < k);
        assert!(choice.parts == 1 || choice.part_k.is_multiple_of(128));
    }
}

#[test]
fn an_invariant_choice_adds_in_one_order() {
    for device in [DeviceProfile::apple(40), DeviceProfile::nvidia(132)] {
        for weight in [Weight::Dense, Weight::Q8_0, Weight::Q4_1] {
            for m in [1, 2, 9, 17, 40, 500, 20_000] {
                let shape = LinearShape {
                    weight,
                    batch_invariant: true,
                    k: 4096,
                    ..shape(m)
                };
                let choice = linear(&shape, &device).unwrap();
                assert_eq!(choice.parts, 1);
                assert!(choice.main.threadgroup_bytes > 0, "by matrices");
                assert!(!choice.main.kernel.host_name.contains("x128_"), "{m}");
            }
        }
    }
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
