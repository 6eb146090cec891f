//! Owns the tensors of another source as f32, in the model's order of columns.

use mettle_tensor::{DType, TensorInfo, TensorSource, TensorView, blocks};

pub struct Widened {
    infos: Vec<TensorInfo>,
    bytes: Vec<Vec<u8>>,
}

impl Widened {
    pub fn new(source: &dyn TensorSource) -> Widened {
        let mut widened = Widened {
            infos: Vec::new(),
            bytes: Vec::new(),
        };
        for (index, info) in source.tensors().iter().enumerate() {
            let view = source.view(index);
            let mut values = vec![0.0; info.shape.iter().product()];
            blocks::dequantize(info.dtype, &view.bytes, &mut values).unwrap();
            if let Some(order) = view.order {
                for row in values.chunks_exact_mut(order.len()) {
                    let stored = row.to_vec();
                    for (value, column) in stored.into_iter().zip(order) {
                        row[*column as usize] = value;
                    }
                }
            }
            widened.infos.push(TensorInfo {
                dtype: DType::F32,
                ..info.clone()
            });
            widened
                .bytes
                .push(values.iter().flat_map(|v| v.to_le_bytes()).collect());
        }
        widened
    }
}

impl TensorSource for Widened {
    fn tensors(&self) -> &[TensorInfo] {
        &self.infos
    }

    fn view(&self, index: usize) -> TensorView<'_> {
        TensorView {
            dtype: DType::F32,
            shape: &self.infos[index].shape,
            bytes: (&self.bytes[index]).into(),
            order: None,
        }
    }
}
