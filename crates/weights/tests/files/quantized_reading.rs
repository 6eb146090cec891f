//! Every quantized format, element by element: what a view holds is what the format's own formula says.

use crate::safetensors_builder::{Written, tensors};
use half::{bf16, f16};
use mettle_tensor::{DType, TensorSource, blocks::dequantize};
use mettle_weights::{Quantization, Safetensors};
use serde_json::{Value, json};

/// Words that look random; the same for the same seed.
fn words(count: usize, seed: u32) -> Vec<u32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state ^ state >> 15
    };
    (0..count).map(|_| next()).collect()
}

/// Scales from 0.25 to 2, with either sign: exact in all three float types.
fn scales(count: usize, seed: u32) -> Vec<f32> {
    let scale = |word: u32| (1 + word % 8) as f32 / 4.0 * if word & 64 == 0 { 1.0 } else { -1.0 };
    words(count, seed).into_iter().map(scale).collect()
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn f16s(values: &[f32]) -> Vec<u8> {
    let halves = values.iter().map(|v| f16::from_f32(*v));
    halves.flat_map(f16::to_le_bytes).collect()
}

fn bf16s(values: &[f32]) -> Vec<u8> {
    let halves = values.iter().map(|v| bf16::from_f32(*v));
    halves.flat_map(bf16::to_le_bytes).collect()
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// The nibble that counting from the lowest of a list of words gives.
fn nibble(words: &[u32], at: usize) -> f32 {
    (words[at / 8] >> (4 * (at % 8)) & 15) as f32
}

/// Opens the tensors and compares the only one that is shown, column by column of the model's.
fn check(
    config: Value,
    written: &[Written],
    dtype: DType,
    shape: [usize; 2],
    expected: impl Fn(usize, usize) -> f32,
) {
    let quantization = Quantization::from_config(&config).unwrap().unwrap();
    let opened = Safetensors::from_bytes(tensors(written), Some(&quantization)).unwrap();
    let names: Vec<&str> = opened.tensors().iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["layer.weight"]);
    for _ in 0..2 {
        let view = opened.view(0);
        assert_eq!((view.dtype, view.shape), (dtype, &shape[..]));
        assert_eq!(Some(view.bytes.len()), dtype.tensor_bytes(&shape));
        let [rows, columns] = shape;
        let mut values = vec![0.0; rows * columns];
        dequantize(dtype, &view.bytes, &mut values).unwrap();
        for row in 0..rows {
            for stored in 0..columns {
                let column = view.order.map_or(stored, |order| order[stored] as usize);
                let found = values[row * columns + stored];
                assert_eq!(found, expected(row, column), "row {row}, column {column}");
            }
        }
        opened.release(0);
    }
}

#[test]
fn mlx_has_rows_of_integers_with_scales_and_offsets() {
    for group in [32, 64, 128] {
        for bits in [4, 8] {
            let (rows, columns) = (3, 256);
            let (words_in_row, groups) = (columns * bits / 32, columns / group);
            let weight = words(rows * words_in_row, 1);
            let (scale, offset) = (scales(rows * groups, 2), scales(rows * groups, 3));
            let config = json!({"quantization": {
                "bits": 4, "group_size": 32, "mode": "affine",
                "layer": {"bits": bits, "group_size": group}, "other": false}});
            for (float, stored) in [
                ("F16", f16s as fn(&[f32]) -> Vec<u8>),
                ("BF16", bf16s),
                ("F32", f32s),
            ] {
                let written: &[Written] = &[
                    ("layer.biases", float, &[rows, groups], stored(&offset)),
                    ("layer.scales", float, &[rows, groups], stored(&scale)),
                    ("layer.weight", "U32", &[rows, words_in_row], bytes(&weight)),
                ];
                let dtype = if bits == 4 {
                    DType::Q4_1
                } else {
                    DType::Affine8
                };
                check(
                    config.clone(),
                    written,
                    dtype,
                    [rows, columns],
                    |row, column| {
                        let at = row * columns + column;
                        let q = match bits {
                            4 => nibble(&weight, at),
                            _ => bytes(&weight)[at] as f32,
                        };
                        scale[at / group] * q + offset[at / group]
                    },
                );
            }
        }
    }
}

#[test]
fn awq_has_eight_outputs_in_a_word_out_of_order() {
    let (inputs, outputs) = (128, 24);
    for group in [32, 64, 128] {
        let groups = inputs / group;
        let weight = words(inputs * outputs / 8, 1);
        let zeros = words(groups * outputs / 8, 2);
        let scale = scales(groups * outputs, 3);
        let size: i64 = if group == 128 { -1 } else { group as i64 };
        let config = json!({"quantization_config": {
            "quant_method": "awq", "bits": 4, "group_size": size, "version": "gemm", "zero_point": true}});
        let written: &[Written] = &[
            (
                "layer.qweight",
                "I32",
                &[inputs, outputs / 8],
                bytes(&weight),
            ),
            ("layer.qzeros", "I32", &[groups, outputs / 8], bytes(&zeros)),
            ("layer.scales", "F16", &[groups, outputs], f16s(&scale)),
        ];
        let place = |output: usize| output / 8 * 8 + [0, 4, 1, 5, 2, 6, 3, 7][output % 8];
        check(
            config,
            written,
            DType::Zero4,
            [outputs, inputs],
            |output, input| {
                let q = nibble(&weight, input * outputs + place(output));
                let z = nibble(&zeros, input / group * outputs + place(output));
                scale[input / group * outputs + output] * (q - z)
            },
        );
    }
}

#[test]
fn gptq_has_eight_inputs_in_a_word_and_groups_in_any_order() {
    let (inputs, outputs, group) = (128, 16, 32);
    let groups = inputs / group;
    let weight = words(inputs / 8 * outputs, 1);
    let zeros = words(groups * outputs / 8, 2);
    let scale = scales(groups * outputs, 3);
    let in_order: Vec<u32> = (0..inputs as u32).map(|i| i / group as u32).collect();
    let mixed: Vec<u32> = (0..inputs as u32).map(|i| i * 7 % groups as u32).collect();
    for (version, offset) in [("gptq", 1), ("gptq_v2", 0)] {
        for group_of in [None, Some(&in_order), Some(&mixed)] {
            let act_order = group_of == Some(&mixed);
            let config = json!({"quantization_config": {
                "quant_method": "gptq", "bits": 4, "group_size": group, "desc_act": act_order,
                "sym": false, "checkpoint_format": version}});
            let mut written: Vec<Written> = vec![
                ("layer.qweight", "I32", &[16, 16], bytes(&weight)),
                ("layer.qzeros", "I32", &[4, 2], bytes(&zeros)),
                ("layer.scales", "F16", &[4, 16], f16s(&scale)),
            ];
            if let Some(group_of) = group_of {
                written.push(("layer.g_idx", "I32", &[128], bytes(group_of)));
            }
            let group_of = group_of.unwrap_or(&in_order);
            check(
                config,
                &written,
                DType::Zero4,
                [outputs, inputs],
                |output, input| {
                    let word = weight[input / 8 * outputs + output];
                    let q = (word >> (4 * (input % 8)) & 15) as f32;
                    let group = group_of[input] as usize;
                    let z = nibble(&zeros, group * outputs + output) as u32;
                    scale[group * outputs + output] * (q - ((z + offset) & 15) as f32)
                },
            );
        }
    }
}

#[test]
fn fp8_has_a_scale_for_tiles_rows_or_all() {
    let (rows, columns) = (5, 160);
    // No pattern that is no number.
    let weight: Vec<u8> = bytes(&words(rows * columns / 4, 1));
    let weight: Vec<u8> = weight.into_iter().map(|b| b & 0xfe).collect();
    let value = |byte: u8| {
        let mut value = [0.0; 32];
        let mut block = 1f32.to_le_bytes().to_vec();
        block.extend([byte; 32]);
        dequantize(DType::F8, &block, &mut value).unwrap();
        value[0]
    };
    let tiled = json!({"quantization_config": {
        "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [4, 64]}});
    let plain =
        json!({"quantization_config": {"quant_method": "fp8", "activation_scheme": "static"}});
    let compressed = json!({"quantization_config": {
        "quant_method": "compressed-tensors", "format": "float-quantized",
        "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}}});
    let cases: [(&Value, &str, &[usize], [usize; 2]); 6] = [
        (&tiled, "weight_scale_inv", &[2, 3], [4, 64]),
        (&plain, "weight_scale", &[], [5, 160]),
        (&plain, "weight_scale", &[1], [5, 160]),
        (&compressed, "weight_scale", &[5], [1, 160]),
        (&compressed, "weight_scale", &[5, 1], [1, 160]),
        (&compressed, "weight_scale", &[1, 1], [5, 160]),
    ];
    for (config, name, shape, [high, wide]) in cases {
        let scale = scales(shape.iter().product(), 2);
        let name = format!("layer.{name}");
        let written: &[Written] = &[
            ("layer.input_scale", "F32", &[], f32s(&[3.0])),
            ("layer.weight", "F8_E4M3", &[rows, columns], weight.clone()),
            (&name, "BF16", shape, bf16s(&scale)),
        ];
        let scales_in_row = columns.div_ceil(wide);
        check(
            config.clone(),
            written,
            DType::F8,
            [rows, columns],
            |row, column| {
                scale[row / high * scales_in_row + column / wide]
                    * value(weight[row * columns + column])
            },
        );
    }
}

#[test]
fn layers_that_are_not_quantized_are_shown_as_they_are() {
    let config = json!({"quantization_config": {
        "quant_method": "awq", "bits": 4, "group_size": 32, "modules_to_not_convert": ["head"]}});
    let quantization = Quantization::from_config(&config).unwrap();
    let written: &[Written] = &[
        ("head.weight", "F16", &[2, 2], f16s(&[1.0, 2.0, 3.0, 4.0])),
        ("layer.bias", "F16", &[8], f16s(&[1.0; 8])),
        ("layer.qweight", "I32", &[32, 1], bytes(&words(32, 1))),
        ("layer.qzeros", "I32", &[1, 1], bytes(&[0])),
        ("layer.scales", "F16", &[1, 8], f16s(&[1.0; 8])),
    ];
    let opened = Safetensors::from_bytes(tensors(written), quantization.as_ref()).unwrap();
    let shown: Vec<_> = opened
        .tensors()
        .iter()
        .map(|t| (t.name.as_str(), t.dtype))
        .collect();
    let expected = [
        ("head.weight", DType::F16),
        ("layer.bias", DType::F16),
        ("layer.weight", DType::Zero4),
    ];
    assert_eq!(shown, expected);
    assert_eq!(*opened.view(0).bytes, f16s(&[1.0, 2.0, 3.0, 4.0]));
    assert_eq!(opened.find("layer.weight"), Some(2));
    assert_eq!(opened.find("layer.scales"), None);
}
