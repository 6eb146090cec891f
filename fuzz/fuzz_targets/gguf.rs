//! Any bytes as a GGUF file: opened or refused. What is opened can be read to its last byte.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mettle_tensor::TensorSource;
use mettle_weights::Gguf;

fuzz_target!(|data: &[u8]| {
    let Ok(gguf) = Gguf::from_bytes(data.to_vec()) else {
        return;
    };
    for (index, info) in gguf.tensors().iter().enumerate() {
        let view = gguf.view(index);
        assert_eq!(Some(view.bytes.len()), view.dtype.tensor_bytes(view.shape));
        assert_eq!(gguf.find(&info.name), Some(index));
    }
    let metadata = gguf.metadata();
    for key in metadata.keys() {
        let fitting = [
            metadata.get_u64(key).is_ok(),
            metadata.get_bool(key).is_ok(),
            metadata.get_str(key).is_ok(),
            metadata.get_strs(key).is_ok(),
            metadata.get_i64s(key).is_ok(),
        ];
        assert!(fitting.iter().filter(|fits| **fits).count() <= 1, "{key}");
    }
});
