//! Owns the weights of a prepared plan in device memory: dense ones in the activations' type, Q8_0 and Q4_1 as planes.
//! Types without a kernel become dense.

use crate::device::Gpu;
use crate::error::GpuError;
use crate::memory::Memory;
use crate::place::{Place, element_name};
use half::{bf16, f16};
use mettle_kernels::repack;
use mettle_kernels::select::{Element, Weight as Format};
use mettle_plan::{BoundWeight, Plan, WeightId};
use mettle_tensor::{DType, TensorInfo, TensorSource, TensorView, blocks};

/// Elements converted at a time.
const CHUNK: usize = 1 << 20;

/// Rows of a weight that are stored alike.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub first_row: usize,
    pub rows: usize,
    pub columns: usize,
    pub format: Format,
    /// Elements, or quants.
    pub values: Place,
    /// Of a quantized segment.
    pub scales: Option<Place>,
}

/// By weight number; those that no op reads are empty.
pub struct Weights {
    segments: Vec<Vec<Segment>>,
}

impl Weights {
    pub fn segments(&self, id: WeightId) -> &[Segment] {
        &self.segments[id.0 as usize]
    }

    /// A weight that is one dense vector or matrix.
    pub fn dense(&self, id: WeightId) -> Place {
        let [segment] = self.segments(id) else {
            unreachable!("vectors are loaded in one piece");
        };
        segment.values
    }

    pub fn load<G: Gpu>(
        gpu: &mut G,
        memory: &mut Memory<G::Buffer>,
        plan: &Plan,
        bound: &[BoundWeight],
        source: &dyn TensorSource,
        element: Element,
    ) -> Result<Weights, GpuError> {
        let mut segments = vec![Vec::new(); plan.weights.len()];
        for weight in bound {
            let is_vector = plan.weight_of(weight.id).parts[0].shape.len() == 1;
            let mut loader = Loader {
                gpu,
                memory,
                source,
                element,
            };
            segments[weight.id.0 as usize] = match is_vector {
                true => vec![loader.dense(&weight.tensors, 0)?],
                false => loader.matrix(&weight.tensors)?,
            };
            weight.tensors.iter().for_each(|t| source.release(*t));
        }
        Ok(Weights { segments })
    }
}

/// What a tensor of this type is stored as.
fn format_of(dtype: DType) -> Format {
    match dtype {
        DType::Q8_0 => Format::Q8_0,
        DType::Q4_1 => Format::Q4_1,
        _ => Format::Dense,
    }
}

/// Moves each stored column to its place among the model's.
fn put_in_order(row: &mut [f32], order: &[u32]) {
    let stored = row.to_vec();
    for (value, column) in stored.into_iter().zip(order) {
        row[*column as usize] = value;
    }
}

/// The bytes that a tensor takes on a device.
pub fn device_bytes(tensor: &TensorInfo) -> usize {
    let elements: usize = tensor.shape.iter().product();
    match format_of(tensor.dtype) {
        Format::Dense => elements * 2,
        Format::Q8_0 => elements + elements / 16,
        Format::Q4_1 => elements / 2 + elements / 8,
    }
}

/// Models stored in bf16 keep its range; all others are computed in f16.
pub fn natural_element(source: &dyn TensorSource) -> Element {
    let matrices = source.tensors().iter().filter(|t| t.shape.len() > 1);
    match matrices.map(|t| t.dtype).any(|dtype| dtype == DType::BF16) {
        true => Element::Bf16,
        false => Element::F16,
    }
}

struct Loader<'a, G: Gpu> {
    gpu: &'a mut G,
    memory: &'a mut Memory<G::Buffer>,
    source: &'a dyn TensorSource,
    element: Element,
}

impl<G: Gpu> Loader<'_, G> {
    /// Neighbouring tensors that are stored alike become one segment, so that a fused projection is one dispatch.
    fn matrix(&mut self, tensors: &[usize]) -> Result<Vec<Segment>, GpuError> {
        let format = |tensor: &usize| format_of(self.source.tensors()[*tensor].dtype);
        let groups: Vec<&[usize]> = tensors.chunk_by(|a, b| format(a) == format(b)).collect();
        let mut first_row = 0;
        groups
            .into_iter()
            .map(|group| {
                let format = format_of(self.source.tensors()[group[0]].dtype);
                let segment = match format {
                    Format::Dense => self.dense(group, first_row)?,
                    Format::Q8_0 | Format::Q4_1 => self.planes(group, format, first_row)?,
                };
                first_row += segment.rows;
                Ok(segment)
            })
            .collect()
    }

    fn shape(&self, tensors: &[usize]) -> (usize, usize) {
        let info = |t: &usize| &self.source.tensors()[*t];
        let columns = *info(&tensors[0]).shape.last().expect("a dimension");
        let elements = |t: &usize| info(t).shape.iter().product::<usize>();
        let all: usize = tensors.iter().map(elements).sum();
        (all / columns.max(1), columns)
    }

    fn dense(&mut self, tensors: &[usize], first_row: usize) -> Result<Segment, GpuError> {
        let elements: usize = tensors
            .iter()
            .map(|t| self.source.tensors()[*t].shape.iter().product::<usize>())
            .sum();
        let (rows, columns) = match self.source.tensors()[tensors[0]].shape.len() {
            1 => (1, elements),
            _ => self.shape(tensors),
        };
        let place = self.memory.allocate(
            self.gpu,
            "weights",
            elements * 2,
            element_name(self.element),
        )?;
        let mut at = place.offset;
        for &tensor in tensors {
            at = self.write_dense(self.source.view(tensor), place, at)?;
        }
        Ok(Segment {
            first_row,
            rows,
            columns,
            format: Format::Dense,
            values: place,
            scales: None,
        })
    }

    /// Writes one tensor in the activations' type, and gives the byte behind it.
    fn write_dense(
        &mut self,
        view: TensorView,
        place: Place,
        mut at: usize,
    ) -> Result<usize, GpuError> {
        let stored_so = matches!(
            (view.dtype, self.element),
            (DType::F16, Element::F16) | (DType::BF16, Element::Bf16)
        );
        if stored_so && view.order.is_none() {
            self.memory.write(self.gpu, place.buffer, at, &view.bytes)?;
            return Ok(at + view.bytes.len());
        }
        let block = view.dtype.block_len();
        // Whole rows where columns must be put in the model's order.
        let elements = match view.order {
            Some(order) => (CHUNK / order.len()).max(1) * order.len(),
            None => CHUNK,
        };
        let chunk_bytes = elements / block * view.dtype.block_bytes();
        let mut wide = Vec::new();
        let mut narrow = Vec::new();
        for bytes in view.bytes.chunks(chunk_bytes) {
            wide.resize(bytes.len() / view.dtype.block_bytes() * block, 0.0);
            blocks::dequantize(view.dtype, bytes, &mut wide).expect("a source gives whole blocks");
            if let Some(order) = view.order {
                wide.chunks_exact_mut(order.len())
                    .for_each(|row| put_in_order(row, order));
            }
            narrow.clear();
            match self.element {
                Element::F16 => {
                    narrow.extend(wide.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()))
                }
                Element::Bf16 => {
                    narrow.extend(wide.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()))
                }
                Element::F32 => unreachable!("activations are stored in 16 bits"),
            }
            self.memory.write(self.gpu, place.buffer, at, &narrow)?;
            at += narrow.len();
        }
        Ok(at)
    }

    fn planes(
        &mut self,
        tensors: &[usize],
        format: Format,
        first_row: usize,
    ) -> Result<Segment, GpuError> {
        let (rows, columns) = self.shape(tensors);
        let elements = rows * columns;
        let (quant_bytes, scale_bytes) = match format {
            Format::Q8_0 => (elements, elements / 32 * 2),
            _ => (elements / 2, elements / 32 * 4),
        };
        let values = self
            .memory
            .allocate(self.gpu, "weights", quant_bytes, "uchar")?;
        let scales = self
            .memory
            .allocate(self.gpu, "weights", scale_bytes, "half")?;
        let (mut quants_at, mut scales_at) = (values.offset, scales.offset);
        for &tensor in tensors {
            let view = self.source.view(tensor);
            assert!(
                view.order.is_none(),
                "no source reorders columns of {format:?}"
            );
            let chunk_bytes = CHUNK / 32 * view.dtype.block_bytes();
            for bytes in view.bytes.chunks(chunk_bytes) {
                let planes = match format {
                    Format::Q8_0 => repack::q8_0(bytes),
                    _ => repack::q4_1(bytes),
                };
                self.memory
                    .write(self.gpu, values.buffer, quants_at, &planes.quants)?;
                self.memory
                    .write(self.gpu, scales.buffer, scales_at, &planes.scales)?;
                quants_at += planes.quants.len();
                scales_at += planes.scales.len();
            }
        }
        Ok(Segment {
            first_row,
            rows,
            columns,
            format,
            values,
            scales: Some(scales),
        })
    }
}
