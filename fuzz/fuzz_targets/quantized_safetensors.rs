//! Any bytes as a quantized safetensors model: the first chooses the format. What is opened can be converted.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mettle_tensor::TensorSource;
use mettle_weights::{Quantization, Safetensors};

const CONFIGS: [&str; 5] = [
    r#"{"quantization": {"bits": 4, "group_size": 32, "m": {"bits": 8, "group_size": 32}}}"#,
    r#"{"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32}}"#,
    r#"{"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}}"#,
    r#"{"quantization_config": {"quant_method": "fp8", "weight_block_size": [2, 32]}}"#,
    r#"{"quantization_config": {"quant_method": "fp8"}}"#,
];

fuzz_target!(|data: &[u8]| {
    let Some((choice, file)) = data.split_first() else {
        return;
    };
    let config = CONFIGS[*choice as usize % CONFIGS.len()];
    let config = serde_json::from_str(config).expect("the config is JSON");
    let quantization = Quantization::from_config(&config).expect("the config can be read");
    let Ok(opened) = Safetensors::from_bytes(file.to_vec(), quantization.as_ref()) else {
        return;
    };
    for (index, info) in opened.tensors().iter().enumerate() {
        let view = opened.view(index);
        if view.dtype.is_quantized() {
            assert_eq!(Some(view.bytes.len()), view.dtype.tensor_bytes(view.shape));
        }
        if let Some(order) = view.order {
            let mut sorted = order.to_vec();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..info.shape[1] as u32));
        }
        assert_eq!(opened.find(&info.name), Some(index));
    }
});
