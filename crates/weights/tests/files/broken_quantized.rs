//! Quantized models that cannot be read: each a clear error, before a tensor is converted.

use crate::safetensors_builder::{Written, tensors};
use expect_test::expect;
use mettle_tensor::TensorSource;
use mettle_weights::{Quantization, Safetensors};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::fmt::Write;

/// What every refusal of a method ends with.
const SUPPORTED: &str = " (supported: MLX affine with 4 or 8 bits in groups of 32, 64 or 128; awq (gemm) and gptq with 4 bits; fp8 (e4m3); mxfp4 experts)";

fn awq() -> Value {
    json!({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32}})
}

fn gptq() -> Value {
    json!({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": true}})
}

fn fp8() -> Value {
    json!({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})
}

fn mlx() -> Value {
    json!({"quantization": {"bits": 4, "group_size": 32}})
}

#[test]
fn configs_that_mean_something_else_are_refused() {
    let own = |settings: Value| json!({"quantization_config": settings});
    let mlx = |settings: Value| json!({"quantization": settings});
    let compressed = |format: &str, bits: u32| {
        let weights = json!({"num_bits": bits, "type": "int"});
        own(
            json!({"quant_method": "compressed-tensors", "format": format,
            "config_groups": {"group_0": {"weights": weights}}}),
        )
    };
    let cases = [
        own(json!([])),
        own(json!({})),
        own(json!({"quant_method": 7})),
        own(json!({"quant_method": "bitsandbytes", "load_in_4bit": true})),
        own(json!({"quant_method": "hqq", "bits": 3})),
        own(json!({"quant_method": "quark"})),
        own(json!({"quant_method": "awq", "bits": 3, "group_size": 128})),
        own(json!({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemv"})),
        own(json!({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": false})),
        own(json!({"quant_method": "awq", "bits": 4})),
        own(json!({"quant_method": "awq", "bits": 4, "group_size": 16})),
        own(json!({"quant_method": "gptq", "bits": 3, "group_size": 128})),
        own(json!({"quant_method": "gptq", "bits": 8, "group_size": 128})),
        own(json!({"quant_method": "gptq", "bits": 4, "group_size": 0})),
        own(json!({"quant_method": "gptq", "bits": "4", "group_size": 128})),
        own(
            json!({"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "marlin"}),
        ),
        own(
            json!({"quant_method": "gptq", "bits": 4, "group_size": 128, "is_marlin_format": true}),
        ),
        own(
            json!({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"x": {"bits": 8}}}),
        ),
        own(json!({"quant_method": "fp8", "fmt": "e5m2"})),
        own(json!({"quant_method": "fp8", "weight_block_size": [128, 48]})),
        own(json!({"quant_method": "fp8", "weight_block_size": [0, 128]})),
        own(json!({"quant_method": "fp8", "weight_block_size": 128})),
        compressed("pack-quantized", 4),
        compressed("float-quantized", 8),
        mlx(json!({"bits": 3, "group_size": 64})),
        mlx(json!({"bits": 4, "group_size": 16})),
        mlx(json!({"bits": 4, "group_size": 32, "mode": "mxfp4"})),
        mlx(json!({"bits": 4, "group_size": 32, "a.b": {"bits": 6, "group_size": 32}})),
        mlx(json!({"bits": 4, "group_size": 32, "kind": 1})),
        mlx(json!({"group_size": 32})),
    ];
    let mut report = String::new();
    for config in cases {
        match Quantization::from_config(&config) {
            Err(error) => {
                let text = error.to_string();
                writeln!(report, "{}", text.replace(SUPPORTED, "")).unwrap();
            }
            Ok(_) => panic!("{config} was accepted"),
        }
    }
    expect![[r#"
        config.json: quantization_config = [] is not an object
        config.json: quantization_config: quant_method is missing
        config.json: quantization_config: quant_method should be a string, but it is 7
        config.json: quantization_config: bitsandbytes is not supported
        config.json: quantization_config: hqq with 3 bits is not supported
        config.json: quantization_config: quark is not supported
        config.json: quantization_config: awq (gemm) with 3 bits is not supported
        config.json: quantization_config: awq (gemv) with 4 bits is not supported
        config.json: quantization_config: awq (gemm) with 4 bits without zero points is not supported
        config.json: quantization_config: awq in groups of unknown is not supported
        config.json: quantization_config: awq in groups of 16 is not supported
        config.json: quantization_config: gptq (format gptq) with 3 bits is not supported
        config.json: quantization_config: gptq (format gptq) with 8 bits is not supported
        config.json: quantization_config: gptq in groups of 0 is not supported
        config.json: quantization_config: bits should be an integer, but it is "4"
        config.json: quantization_config: gptq (format marlin) with 4 bits is not supported
        config.json: quantization_config: gptq (format marlin) with 4 bits is not supported
        config.json: quantization_config: gptq (format gptq) with 4 bits and settings per layer is not supported
        config.json: quantization_config: fp8 (e5m2) is not supported
        config.json: quantization_config: fp8 with scales per [128,48] tile is not supported
        config.json: quantization_config: fp8 with scales per [0,128] tile is not supported
        config.json: quantization_config: fp8 with scales per 128 tile is not supported
        config.json: quantization_config: compressed-tensors (pack-quantized) with 4 bits is not supported
        config.json: quantization_config: compressed-tensors (float-quantized) with 8 bits is not supported
        config.json: quantization: MLX affine with 3 bits in groups of 64 is not supported
        config.json: quantization: MLX affine with 4 bits in groups of 16 is not supported
        config.json: quantization: MLX mxfp4 with 4 bits in groups of 32 is not supported
        config.json: quantization: MLX affine with 6 bits in groups of 32 of a.b is not supported
        config.json: quantization: kind = 1 is not supported
        config.json: quantization: MLX affine with unknown bits in groups of 32 is not supported
    "#]].assert_eq(&report);
}

#[test]
fn configs_without_quantization_have_none() {
    for config in [
        json!({}),
        json!({"quantization_config": null}),
        json!({"quantization": null}),
    ] {
        assert_eq!(Quantization::from_config(&config).unwrap(), None);
    }
}

#[test]
fn tensors_that_do_not_fit_are_refused() {
    let words = |count: usize| vec![0x11; 4 * count];
    let halves = |count: usize| vec![0; 2 * count];
    let qweight = || ("l.qweight", "I32", &[32, 1][..], words(32));
    let qzeros = || ("l.qzeros", "I32", &[1, 1][..], words(1));
    let scales = || ("l.scales", "F16", &[1, 8][..], halves(8));
    let weight = || ("l.weight", "U32", &[2, 4][..], words(8));
    let fp8_weight = || ("l.weight", "F8_E4M3", &[2, 32][..], vec![0; 64]);
    let group_of = |at: usize, group: u8| {
        let mut bytes = vec![0; 4 * 64];
        (32..64).for_each(|i| bytes[4 * i] = 1);
        bytes[4 * at] = group;
        bytes
    };
    let gptq_with = |groups: Vec<u8>| {
        let all: Vec<Written> = vec![
            ("l.g_idx", "I32", &[64], groups),
            ("l.qweight", "I32", &[8, 8], words(64)),
            ("l.qzeros", "I32", &[2, 1], words(2)),
            ("l.scales", "F16", &[2, 8], halves(16)),
        ];
        all
    };
    let cases: Vec<(&str, Value, Vec<Written>)> = vec![
        ("no zeros", awq(), vec![qweight(), scales()]),
        ("no scales", awq(), vec![qweight(), qzeros()]),
        (
            "zeros of another shape",
            awq(),
            vec![qweight(), ("l.qzeros", "I32", &[2, 1], words(2)), scales()],
        ),
        (
            "scales of another type",
            awq(),
            vec![qweight(), qzeros(), ("l.scales", "I32", &[1, 8], words(8))],
        ),
        (
            "no matrix",
            awq(),
            vec![("l.qweight", "I32", &[32], words(32))],
        ),
        (
            "half a group",
            awq(),
            vec![("l.qweight", "I32", &[48, 1], words(48))],
        ),
        (
            "twice",
            awq(),
            vec![
                qweight(),
                qzeros(),
                scales(),
                ("l.weight", "F16", &[8, 32], halves(256)),
            ],
        ),
        (
            "unexplained words",
            awq(),
            vec![("l.other", "I32", &[1], words(1))],
        ),
        (
            "outputs that fill no word",
            gptq(),
            vec![("l.qweight", "I32", &[4, 4], words(16))],
        ),
        (
            "no g_idx",
            gptq(),
            vec![("l.qweight", "I32", &[4, 8], words(32)), qzeros(), scales()],
        ),
        ("group too full", gptq(), gptq_with(group_of(40, 0))),
        ("group of nowhere", gptq(), gptq_with(group_of(40, 9))),
        ("negative group", gptq(), gptq_with(vec![0xff; 256])),
        (
            "no offsets",
            mlx(),
            vec![weight(), ("l.scales", "F16", &[2, 1], halves(2))],
        ),
        (
            "words that fill no group",
            mlx(),
            vec![("l.weight", "U32", &[2, 3], words(6))],
        ),
        (
            "words in a vector",
            mlx(),
            vec![("l.weight", "U32", &[4], words(4))],
        ),
        (
            "scale beyond a half",
            mlx(),
            vec![
                weight(),
                ("l.scales", "BF16", &[2, 1], vec![0, 0, 0x80, 0x47]),
                ("l.biases", "BF16", &[2, 1], halves(2)),
            ],
        ),
        ("no scale", fp8(), vec![fp8_weight()]),
        (
            "scales of no shape",
            fp8(),
            vec![fp8_weight(), ("l.weight_scale_inv", "F32", &[3], words(3))],
        ),
        (
            "scales in words",
            fp8(),
            vec![fp8_weight(), ("l.weight_scale", "I32", &[1], words(1))],
        ),
        (
            "columns that fill no block",
            fp8(),
            vec![("l.weight", "F8_E4M3", &[1, 33], vec![0; 33])],
        ),
        (
            "vector of bytes",
            fp8(),
            vec![("l.weight", "F8_E4M3", &[32], vec![0; 32])],
        ),
        ("no quantization", json!({}), vec![fp8_weight()]),
    ];
    let mut report = String::new();
    for (case, config, written) in cases {
        let quantization = Quantization::from_config(&config).unwrap();
        match Safetensors::from_bytes(tensors(&written), quantization.as_ref()) {
            Err(error) => writeln!(report, "{case}: {error}").unwrap(),
            Ok(_) => panic!("{case} was accepted"),
        }
    }
    expect![[r#"
        no zeros: tensor "l.qweight" has no l.qzeros
        no scales: tensor "l.qweight" has no l.scales
        zeros of another shape: tensor "l.qzeros" is I32 [2, 1]; with "l.qweight" of shape [32, 1] it must be I32 [1, 1]
        scales of another type: tensor "l.scales" is I32 [1, 8]; with "l.qweight" of shape [32, 1] it must be F16 or BF16 or F32 [1, 8]
        no matrix: tensor "l.qweight" of shape [32] is no matrix
        half a group: tensor "l.qweight" has 48 inputs in groups of 32; both must be whole blocks of 32
        twice: tensor "l.weight" is there quantized and plain
        unexplained words: tensor "l.other" has type I32, which the config's quantization does not explain
        outputs that fill no word: tensor "l.qweight" has 4 outputs; zero points are stored 8 to a word
        no g_idx: tensor "l.qweight" has no l.g_idx
        group too full: tensor "l.g_idx" puts input 40 into group 0; groups of 32 inputs leave it group 1
        group of nowhere: tensor "l.g_idx" puts input 40 into group 9; groups of 32 inputs leave it group 1
        negative group: tensor "l.g_idx" puts input 0 into group -1; groups of 32 inputs leave it group 0
        no offsets: tensor "l.weight" has no l.biases
        words that fill no group: tensor "l.weight" has 24 columns, which are not whole groups of 32
        words in a vector: tensor "l.weight" of shape [4] is no matrix
        scale beyond a half: tensor "l.scales" holds 65536, which is beyond the range of a half (65504)
        no scale: tensor "l.weight" has neither weight_scale_inv nor weight_scale beside it
        scales of no shape: tensor "l.weight_scale_inv" is F32 [3]; [2, 32] weights need one float, one per row, or one per 128 x 128 tile
        scales in words: tensor "l.weight_scale" is I32 [1]; [2, 32] weights need one float, one per row, or one per 128 x 128 tile
        columns that fill no block: tensor "l.weight" has 33 columns, which are not whole blocks of 32
        vector of bytes: tensor "l.weight" of shape [32] is no matrix
        no quantization: tensor "l.weight" has type F8_E4M3, but the config names no quantization
    "#]].assert_eq(&report);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn damage_never_panics(
        format in 0usize..4,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let words = |count: usize| vec![0; 4 * count];
        let (config, written): (Value, Vec<Written>) = match format {
            0 => (awq(), vec![
                ("l.qweight", "I32", &[32, 1], words(32)),
                ("l.qzeros", "I32", &[1, 1], words(1)),
                ("l.scales", "F16", &[1, 8], vec![0; 16]),
            ]),
            1 => (gptq(), vec![
                ("l.g_idx", "I32", &[32], words(32)),
                ("l.qweight", "I32", &[4, 8], words(32)),
                ("l.qzeros", "I32", &[1, 1], words(1)),
                ("l.scales", "F16", &[1, 8], vec![0; 16]),
            ]),
            2 => (mlx(), vec![
                ("l.weight", "U32", &[2, 4], words(8)),
                ("l.scales", "BF16", &[2, 1], vec![0; 4]),
                ("l.biases", "BF16", &[2, 1], vec![0; 4]),
            ]),
            _ => (fp8(), vec![
                ("l.weight", "F8_E4M3", &[2, 32], vec![0; 64]),
                ("l.weight_scale", "F32", &[], vec![0; 4]),
            ]),
        };
        let quantization = Quantization::from_config(&config).unwrap();
        let mut bytes = tensors(&written);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(opened) = Safetensors::from_bytes(bytes, quantization.as_ref()) {
            for index in 0..opened.tensors().len() {
                let view = opened.view(index);
                if view.dtype.is_quantized() {
                    prop_assert_eq!(Some(view.bytes.len()), view.dtype.tensor_bytes(view.shape));
                }
            }
        }
    }
}
