//! Any bytes as a GGUF file, and as the parts of a split one: opened or refused. What is opened can be read to its last
//! byte.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mettle_tensor::TensorSource;
use mettle_weights::{Gguf, WeightsError};

fuzz_target!(|data: &[u8]| {
    check(Gguf::from_bytes(data.to_vec()));
    // Every file begins with its magic.
    let starts: Vec<usize> = data
        .windows(4)
        .enumerate()
        .filter(|(_, w)| w == b"GGUF")
        .map(|(i, _)| i)
        .collect();
    let ends = starts.iter().skip(1).copied().chain([data.len()]);
    let parts = starts
        .iter()
        .zip(ends)
        .map(|(start, end)| data[*start..end].to_vec());
    check(Gguf::from_parts(parts.collect()));
});

fn check(opened: Result<Gguf, WeightsError>) {
    let Ok(gguf) = opened else { return };
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
}
