//! Owns the writing of GGUF files, right ones and wrong ones.

use mettle_weights::gguf::Value;

pub struct GgufBuilder {
    pub version: u32,
    pub alignment: usize,
    pub keys: Vec<(String, Value)>,
    pub tensors: Vec<BuiltTensor>,
}

pub struct BuiltTensor {
    pub name: String,
    /// Innermost first, as the file has them.
    pub dims: Vec<u64>,
    pub type_id: u32,
    pub bytes: Vec<u8>,
    /// Written instead of the true offset.
    pub offset: Option<u64>,
}

impl GgufBuilder {
    pub fn new() -> GgufBuilder {
        GgufBuilder {
            version: 3,
            alignment: 32,
            keys: Vec::new(),
            tensors: Vec::new(),
        }
    }

    pub fn key(mut self, key: &str, value: Value) -> GgufBuilder {
        self.keys.push((key.to_owned(), value));
        self
    }

    pub fn tensor(mut self, name: &str, dims: &[u64], type_id: u32, bytes: &[u8]) -> GgufBuilder {
        self.tensors.push(BuiltTensor {
            name: name.to_owned(),
            dims: dims.to_vec(),
            type_id,
            bytes: bytes.to_vec(),
            offset: None,
        });
        self
    }

    /// Changes the offset that is written for the last tensor.
    pub fn at(mut self, offset: u64) -> GgufBuilder {
        self.tensors.last_mut().unwrap().offset = Some(offset);
        self
    }

    pub fn build(&self) -> Vec<u8> {
        let mut out = head(
            self.version,
            self.tensors.len() as u64,
            self.keys.len() as u64,
        );
        for (key, value) in &self.keys {
            put_str(&mut out, key);
            value.write(&mut out);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            put_str(&mut out, &tensor.name);
            out.extend((tensor.dims.len() as u32).to_le_bytes());
            for dim in &tensor.dims {
                out.extend(dim.to_le_bytes());
            }
            out.extend(tensor.type_id.to_le_bytes());
            out.extend(tensor.offset.unwrap_or(offset as u64).to_le_bytes());
            offset = (offset + tensor.bytes.len()).next_multiple_of(self.alignment);
        }
        for tensor in &self.tensors {
            out.resize(out.len().next_multiple_of(self.alignment), 0);
            out.extend(&tensor.bytes);
        }
        out
    }
}

pub fn head(version: u32, tensors: u64, keys: u64) -> Vec<u8> {
    let mut out = b"GGUF".to_vec();
    out.extend(version.to_le_bytes());
    out.extend(tensors.to_le_bytes());
    out.extend(keys.to_le_bytes());
    out
}

pub fn put_str(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}
