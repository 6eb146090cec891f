//! Owns the speed of matrix products on a GPU, alone: bytes and operations a second for one shape.

use mettle_gpu::{Argument, Encoder, Gpu, GpuError};
use mettle_kernels::select::{self, DeviceProfile, Element, LinearShape, Weight};
use serde::Serialize;

/// One product, as timed.
#[derive(Clone, Debug, Serialize)]
pub struct LinearTime {
    pub kernel: String,
    /// Into which K was split.
    pub parts: u32,
    pub m: u32,
    pub n: u32,
    pub k: u32,
    /// Of one product, the best of several rounds.
    pub seconds: f64,
    /// Weights read once, x and out.
    pub bytes: f64,
    pub operations: f64,
}

impl LinearTime {
    pub fn terabytes_a_second(&self) -> f64 {
        self.bytes / self.seconds / 1e12
    }

    pub fn teraflops(&self) -> f64 {
        self.operations / self.seconds / 1e12
    }
}

/// Bytes of weights that are walked through in turn, so that no cache holds the next product's.
const WALKED_BYTES: usize = 1 << 30;
/// Products in one submission.
const PRODUCTS: usize = 32;
const ROUNDS: usize = 5;

/// Times `x[m, k] · W[n, k]ᵀ` on a device, with the kernels that `profile` chooses.
pub fn time<G: Gpu>(
    gpu: &mut G,
    profile: &DeviceProfile,
    shape: &LinearShape,
) -> Result<LinearTime, GpuError> {
    let choice = select::linear(shape, profile).ok_or_else(|| GpuError::Compile {
        kernel: "linear".into(),
        message: format!("no kernel for {shape:?}"),
    })?;
    let (m, n, k) = (shape.m as usize, shape.n as usize, shape.k as usize);
    let (weight_bytes, scale_bytes) = match shape.weight {
        Weight::Dense => (n * k * 2, 0),
        Weight::Q8_0 => (n * k, n * k / 16),
        Weight::Q4_1 => (n * k / 2, n * k / 8),
    };
    let copies = (WALKED_BYTES / weight_bytes).clamp(1, PRODUCTS);
    let mut make = |bytes: usize| -> Result<G::Buffer, GpuError> {
        let bytes = bytes.max(256);
        let buffer = gpu.allocate("a benchmark", bytes)?;
        // Small numbers, none of them NaN, in any of the types.
        let pattern: Vec<u8> = (0..1 << 20)
            .map(|i: usize| (i * 37 % 251) as u8 & 0x3b)
            .collect();
        for offset in (0..bytes).step_by(pattern.len()) {
            let end = bytes.min(offset + pattern.len());
            gpu.write(&buffer, offset, &pattern[..end - offset])?;
        }
        Ok(buffer)
    };
    let weights = make(weight_bytes * copies)?;
    let scales = make((scale_bytes * copies).max(256))?;
    let x = make(m * k * 2)?;
    let out = make(m * n * 4)?;
    let partials = make(choice.partial_floats * 4)?;
    let unused = make(n.max(m) * 4)?;
    let main = gpu.pipeline(&choice.main)?;
    let reduce = choice.reduce.as_ref().map(|launch| gpu.pipeline(launch));
    let reduce = reduce.transpose()?;
    let out_stride = shape.n;
    let params: Vec<u8> = [
        shape.m,
        shape.n,
        shape.k,
        shape.k,
        0,
        out_stride,
        choice.part_k,
    ]
    .iter()
    .flat_map(|v| v.to_le_bytes())
    .collect();
    let reduce_params: Vec<u8> = [shape.m, shape.n, choice.parts, 0, out_stride]
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    let main_out = if reduce.is_some() { &partials } else { &out };
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let mut encoder = gpu.encoder()?;
        for product in 0..PRODUCTS {
            let copy = product % copies;
            let mut arguments = vec![
                Argument::Buffer(&x, 0),
                Argument::Buffer(&weights, copy * weight_bytes),
            ];
            if scale_bytes > 0 {
                arguments.push(Argument::Buffer(&scales, copy * scale_bytes));
            }
            arguments.extend([
                Argument::Buffer(&unused, 0),
                Argument::Buffer(&unused, 0),
                Argument::Buffer(&unused, 0),
                Argument::Buffer(main_out, 0),
                Argument::Bytes(&params),
            ]);
            encoder.barrier();
            encoder.dispatch(&main, &choice.main, &arguments);
            if let (Some(pipeline), Some(launch)) = (&reduce, &choice.reduce) {
                let arguments = [
                    Argument::Buffer(&partials, 0),
                    Argument::Buffer(&unused, 0),
                    Argument::Buffer(&unused, 0),
                    Argument::Buffer(&out, 0),
                    Argument::Bytes(&reduce_params),
                ];
                encoder.barrier();
                encoder.dispatch(pipeline, launch, &arguments);
            }
        }
        let submitted = encoder.submit()?;
        let finished = gpu.wait(submitted)?;
        best = best.min(finished.gpu_seconds / PRODUCTS as f64);
    }
    let out_bytes = if shape.out == Element::F32 { 4 } else { 2 };
    Ok(LinearTime {
        kernel: choice.main.kernel.host_name.clone(),
        parts: choice.parts,
        m: shape.m,
        n: shape.n,
        k: shape.k,
        seconds: best,
        bytes: (weight_bytes + scale_bytes + m * k * 2 + m * n * out_bytes) as f64,
        operations: 2.0 * m as f64 * n as f64 * k as f64,
    })
}
