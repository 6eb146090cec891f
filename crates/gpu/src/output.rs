//! Owns what a finished step gave, copied to the host: logits, top-k, hidden states, taps.

use crate::device::{Finished, Gpu};
use crate::error::GpuError;
use crate::memory::Memory;
use crate::place::BufferIndex;
use crate::record::{Buffers, top_values_at};
use half::{bf16, f16};
use mettle_kernels::select::Element;
use mettle_plan::{Arena, Dim, Element as BufferElement, OutputKind, Plan, Slice, StepOutput};

/// Memory for outputs, reused from step to step.
#[derive(Default)]
pub struct Output {
    bytes: Vec<u8>,
    values: Vec<f32>,
    ids: Vec<u32>,
    width: usize,
    taps: Vec<Vec<f32>>,
}

/// Where the outputs of a step lie.
pub struct Reading<'a> {
    pub plan: &'a Plan,
    pub arena: &'a Arena,
    pub buffers: &'a Buffers,
    pub element: Element,
    pub taps: &'a [String],
    pub tokens: usize,
    pub logit_rows: usize,
}

impl Output {
    pub fn read<G: Gpu>(
        &mut self,
        gpu: &mut G,
        memory: &Memory<G::Buffer>,
        finished: &Finished,
        reading: &Reading,
        kind: OutputKind,
    ) -> Result<(), GpuError> {
        let absent = "the output was checked at submit";
        let rows = reading.logit_rows;
        match kind {
            OutputKind::Sampled => unreachable!("{absent}"),
            OutputKind::TopK(k) => {
                self.width = k;
                let values_at = top_values_at(rows * k);
                self.bytes.resize(values_at + rows * k * 4, 0);
                let top = memory.get(reading.buffers.top);
                gpu.read(finished, top, 0, &mut self.bytes)?;
                let (ids, values) = self.bytes.split_at(values_at);
                let ids = fours(&ids[..rows * k * 4]).map(u32::from_le_bytes);
                self.ids.clear();
                self.ids.extend(ids);
                self.values.clear();
                self.values.extend(fours(values).map(f32::from_le_bytes));
            }
            OutputKind::Logits | OutputKind::Hidden => {
                let slice = match kind {
                    OutputKind::Logits => reading.plan.logits,
                    _ => reading.plan.hidden,
                };
                let slice = slice.expect(absent);
                self.width = slice.width;
                let mut values = std::mem::take(&mut self.values);
                let from = (
                    reading.buffers.arena,
                    reading.arena.ranges[slice.buffer.0 as usize].start,
                );
                self.rows(gpu, memory, finished, reading, from, slice, &mut values)?;
                self.values = values;
            }
        }
        let mut taps = std::mem::take(&mut self.taps);
        taps.resize(reading.taps.len(), Vec::new());
        for (number, (name, values)) in reading.taps.iter().zip(&mut taps).enumerate() {
            let all = reading.plan.nodes.iter().flat_map(|n| &n.taps);
            let mut named = all.filter(|t| t.name == *name);
            let slice = named.next_back().expect("checked when prepared").slice;
            let buffer = BufferIndex(reading.buffers.first_tap.0 + number as u32);
            let from = (buffer, 0);
            self.rows(gpu, memory, finished, reading, from, slice, values)?;
        }
        self.taps = taps;
        Ok(())
    }

    /// The rows of a slice as f32.
    fn rows<G: Gpu>(
        &mut self,
        gpu: &mut G,
        memory: &Memory<G::Buffer>,
        finished: &Finished,
        reading: &Reading,
        (buffer, offset): (BufferIndex, usize),
        slice: Slice,
        out: &mut Vec<f32>,
    ) -> Result<(), GpuError> {
        let shape = reading.plan.buffer_of(slice);
        let rows = match shape.rows {
            Dim::Tokens => reading.tokens,
            _ => reading.logit_rows,
        };
        let bytes = match shape.element {
            BufferElement::Activation => 2,
            BufferElement::F32 | BufferElement::U32 => 4,
        };
        self.bytes.resize(rows * shape.width * bytes, 0);
        gpu.read(finished, memory.get(buffer), offset, &mut self.bytes)?;
        out.clear();
        let columns = slice.start * bytes..(slice.start + slice.width) * bytes;
        for row in self.bytes.chunks_exact((shape.width * bytes).max(1)) {
            let row = &row[columns.clone()];
            let twos = row.chunks_exact(2).map(|two| [two[0], two[1]]);
            match (shape.element, reading.element) {
                (BufferElement::F32, _) => out.extend(fours(row).map(f32::from_le_bytes)),
                (BufferElement::U32, _) => {
                    out.extend(fours(row).map(|b| u32::from_le_bytes(b) as f32))
                }
                (_, Element::Bf16) => out.extend(twos.map(|b| bf16::from_le_bytes(b).to_f32())),
                _ => out.extend(twos.map(|b| f16::from_le_bytes(b).to_f32())),
            }
        }
        Ok(())
    }

    pub fn view(&self, kind: OutputKind) -> StepOutput<'_> {
        match kind {
            OutputKind::Sampled => unreachable!("refused by submit"),
            OutputKind::TopK(k) => StepOutput::TopK {
                k,
                ids: &self.ids,
                logits: &self.values,
            },
            OutputKind::Logits => StepOutput::Logits {
                width: self.width,
                values: &self.values,
            },
            OutputKind::Hidden => StepOutput::Hidden {
                width: self.width,
                values: &self.values,
            },
        }
    }

    pub fn tap(&self, index: usize) -> &[f32] {
        self.taps.get(index).map_or(&[], Vec::as_slice)
    }
}

fn fours(bytes: &[u8]) -> impl Iterator<Item = [u8; 4]> {
    bytes.chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]])
}
