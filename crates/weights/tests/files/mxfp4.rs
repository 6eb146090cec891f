//! Experts in blocks of 4-bit floats with scales beside them, as gpt-oss stores them.

use crate::safetensors_builder::{Written, tensors};
use expect_test::expect;
use mettle_tensor::{DType, TensorSource, blocks};
use mettle_weights::{Quantization, Safetensors};
use serde_json::json;
use std::fmt::Write;

fn open(written: &[Written]) -> Result<Safetensors, String> {
    let config = json!({"quantization_config": {"quant_method": "mxfp4"}});
    let quantization = Quantization::from_config(&config).unwrap();
    Safetensors::from_bytes(tensors(written), quantization.as_ref()).map_err(|e| e.to_string())
}

/// The values of 4-bit floats without their sign.
const VALUES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

#[test]
fn two_neighbouring_columns_share_a_byte() {
    // Two experts of three rows of 64 columns.
    let (rows, groups) = (6, 2);
    let nibbles: Vec<u8> = (0..rows * groups * 32)
        .map(|i| (i * 7 % 16) as u8)
        .collect();
    let stored: Vec<u8> = nibbles
        .chunks_exact(2)
        .map(|two| two[0] | two[1] << 4)
        .collect();
    let scales: Vec<u8> = (0..rows * groups).map(|i| 120 + i as u8).collect();
    let written: Vec<Written> = vec![
        ("l.gate_up_proj_blocks", "U8", &[2, 3, 2, 16], stored),
        ("l.gate_up_proj_scales", "U8", &[2, 3, 2], scales.clone()),
        ("l.router.weight", "F32", &[1], vec![0; 4]),
    ];
    let source = open(&written).unwrap();
    let names: Vec<&str> = source.tensors().iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["l.gate_up_proj", "l.router.weight"]);
    let view = source.view(0);
    assert_eq!((view.dtype, view.shape), (DType::MXFP4, &[2, 3, 64][..]));
    let mut found = vec![f32::NAN; nibbles.len()];
    blocks::dequantize(view.dtype, &view.bytes, &mut found).unwrap();
    for (i, nibble) in nibbles.iter().enumerate() {
        let sign = if nibble & 8 == 0 { 1.0 } else { -1.0 };
        let scale = 2.0_f32.powi(scales[i / 32] as i32 - 127);
        assert_eq!(found[i], sign * scale * VALUES[*nibble as usize & 7], "{i}");
    }
}

#[test]
fn pairs_that_do_not_fit_are_refused() {
    let blocks = || ("l.w_blocks", "U8", &[2, 1, 16][..], vec![0; 32]);
    let cases: Vec<Vec<Written>> = vec![
        vec![blocks()],
        vec![blocks(), ("l.w_scales", "U8", &[2, 2], vec![0; 4])],
        vec![blocks(), ("l.w_scales", "F32", &[2, 1], vec![0; 8])],
        vec![("l.w_blocks", "U8", &[2, 1, 8], vec![0; 16])],
        vec![("l.w_blocks", "U8", &[1, 16], vec![0; 16])],
        vec![("l.w_blocks", "F32", &[1, 1, 16], vec![0; 64])],
        vec![("l.w_bytes", "U8", &[1], vec![0])],
    ];
    let mut report = String::new();
    for written in cases {
        match open(&written) {
            Err(error) => writeln!(report, "{error}").unwrap(),
            Ok(_) => panic!("accepted"),
        }
    }
    expect![[r#"
        tensor "l.w_blocks" has no l.w_scales
        tensor "l.w_scales" is U8 [2, 2]; with "l.w_blocks" it must be U8 [2, 1]
        tensor "l.w_scales" is F32 [2, 1]; with "l.w_blocks" it must be U8 [2, 1]
        tensor "l.w_blocks" has shape [2, 1, 8]; blocks of 16 bytes are wanted
        tensor "l.w_blocks" is U8 [1, 16]; rows of blocks of bytes are wanted
        tensor "l.w_blocks" is F32 [1, 1, 16]; rows of blocks of bytes are wanted
        tensor "l.w_bytes" has type U8, which the config's quantization does not explain
    "#]]
    .assert_eq(&report);
}
