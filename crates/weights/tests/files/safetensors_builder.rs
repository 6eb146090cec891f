//! Owns the writing of safetensors files and folders.

use std::path::Path;

/// A file from its header and `data` bytes of zeros.
pub fn file(header: &str, data: usize) -> Vec<u8> {
    with_length(header.len() as u64, header, data)
}

/// A file whose header claims to be `length` bytes long.
pub fn with_length(length: u64, header: &str, data: usize) -> Vec<u8> {
    let mut out = length.to_le_bytes().to_vec();
    out.extend(header.as_bytes());
    out.resize(out.len() + data, 0);
    out
}

/// A file with one f32 vector of 4 elements for each name; the bytes of tensor i are all i + 1.
pub fn vectors(names: &[&str]) -> Vec<u8> {
    let entries: Vec<String> = names
        .iter()
        .enumerate()
        .map(|(i, name)| {
            let (begin, end) = (16 * i, 16 * i + 16);
            format!(r#""{name}":{{"dtype":"F32","shape":[4],"data_offsets":[{begin},{end}]}}"#)
        })
        .collect();
    let mut out = file(&format!("{{{}}}", entries.join(",")), 0);
    for i in 0..names.len() {
        out.extend([i as u8 + 1; 16]);
    }
    out
}

/// Writes an index of (tensor, shard) beside the shards.
pub fn write_index(folder: &Path, entries: &[(&str, &str)]) {
    let entries: Vec<String> = entries
        .iter()
        .map(|(tensor, shard)| format!("{tensor:?}:{shard:?}"))
        .collect();
    let text = format!(
        r#"{{"metadata":{{}},"weight_map":{{{}}}}}"#,
        entries.join(",")
    );
    std::fs::write(folder.join("model.safetensors.index.json"), text).unwrap();
}

/// A tensor to be written: name, type, shape and bytes.
pub type Written<'a> = (&'a str, &'a str, &'a [usize], Vec<u8>);

/// A file with these tensors, in this order.
pub fn tensors(written: &[Written]) -> Vec<u8> {
    let mut end = 0;
    let entries: Vec<String> = written
        .iter()
        .map(|(name, dtype, shape, bytes)| {
            let begin = end;
            end += bytes.len();
            format!(
                r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{begin},{end}]}}"#
            )
        })
        .collect();
    let mut out = file(&format!("{{{}}}", entries.join(",")), 0);
    written.iter().for_each(|(.., bytes)| out.extend(bytes));
    out
}
