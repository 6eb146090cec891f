//! Any bytes as a safetensors file, and any text as the header of one.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mettle_tensor::TensorSource;
use mettle_weights::Safetensors;

/// Data behind the header, so that small tensors find room.
const DATA: usize = 32;

fuzz_target!(|data: &[u8]| {
    read(data.to_vec());
    let mut file = (data.len() as u64).to_le_bytes().to_vec();
    file.extend(data);
    file.resize(file.len() + DATA, 0);
    read(file);
});

fn read(file: Vec<u8>) {
    let Ok(opened) = Safetensors::from_bytes(file, None) else {
        return;
    };
    for (index, info) in opened.tensors().iter().enumerate() {
        let view = opened.view(index);
        let elements: usize = view.shape.iter().product();
        assert_eq!(view.bytes.len(), elements * view.dtype.block_bytes());
        assert_eq!(opened.find(&info.name), Some(index));
    }
}
