//! Owns the choice of a backend: which devices are tried, in what order, and what is said of those that are not there.

use crate::config::{Device, Settings};
use mettle_bench::ceilings::IntegerLoop;
use mettle_cpu::{CpuBackend, Isa};
use mettle_cuda::CudaGpu;
use mettle_gpu::{Gpu, GpuBackend, GpuError, Precision, device_bytes};
use mettle_metal::MetalGpu;
use mettle_plan::Backend;
use mettle_tensor::TensorSource;

/// Room that kernels, pipelines and the driver take besides what is counted.
const DEVICE_MARGIN: u64 = 512 << 20;

/// How the CPU backend multiplies integers, where that is not one product after the other.
pub fn integer_loop(isa: Isa) -> Option<IntegerLoop> {
    isa.product_loop().map(|found| IntegerLoop {
        run: found.run,
        operations_per_step: found.operations_per_step,
    })
}

/// A backend that is there, and why it comes at this place.
pub struct Candidate {
    pub backend: Box<dyn Backend>,
    pub reason: String,
}

impl Candidate {
    fn new(backend: impl Backend + 'static, reason: impl Into<String>) -> Candidate {
        Candidate {
            backend: Box::new(backend),
            reason: reason.into(),
        }
    }

    /// Bytes that could become KV cache when the model's weights are loaded.
    pub fn free_memory(&self, weights: &dyn TensorSource) -> u64 {
        match self.backend.memory_budget() {
            None => crate::kv_budget::free_memory(),
            Some(budget) => {
                let weights: usize = weights.tensors().iter().map(device_bytes).sum();
                let taken = (weights as u64).saturating_add(DEVICE_MARGIN);
                (budget as u64).saturating_sub(taken)
            }
        }
    }
}

/// The backends to try, best first. A device that was named and is not there is an error; `auto` takes what there is.
pub fn candidates(settings: &Settings) -> anyhow::Result<Vec<Candidate>> {
    let cpu = |reason: String| {
        Candidate::new(
            CpuBackend::with_isa(settings.threads, settings.cpu_isa),
            reason,
        )
    };
    let or_cpu = |first: Candidate| {
        let reason = format!("{} cannot run this model", first.backend.name());
        vec![first, cpu(reason)]
    };
    Ok(match settings.device {
        Device::Cpu => vec![cpu("--device cpu".to_owned())],
        Device::Metal => or_cpu(named(MetalGpu::open, "metal")?),
        Device::Cuda => or_cpu(named(CudaGpu::open, "cuda")?),
        Device::Emulator => or_cpu(emulator()?),
        Device::Auto => {
            let mut found = Vec::new();
            let mut absent = Vec::new();
            add(MetalGpu::open, &mut found, &mut absent);
            add(CudaGpu::open, &mut found, &mut absent);
            let reason = match found.is_empty() {
                true => absent.join("; "),
                false => "the GPU cannot run this model".to_owned(),
            };
            found.push(cpu(reason));
            found
        }
    })
}

fn gpu<G: Gpu>(open: fn() -> Result<G, GpuError>) -> Result<GpuBackend<G>, GpuError> {
    GpuBackend::new(open, Precision::default())
}

fn named<G: Gpu>(open: fn() -> Result<G, GpuError>, name: &str) -> anyhow::Result<Candidate> {
    Ok(Candidate::new(gpu(open)?, format!("--device {name}")))
}

fn add<G: Gpu>(
    open: fn() -> Result<G, GpuError>,
    found: &mut Vec<Candidate>,
    absent: &mut Vec<String>,
) {
    match gpu(open) {
        Ok(backend) => found.push(Candidate::new(backend, "the first GPU found")),
        Err(GpuError::NotAvailable { device, why }) => absent.push(format!("no {device}: {why}")),
        Err(other) => absent.push(other.to_string()),
    }
}

#[cfg(feature = "emulator")]
fn emulator() -> anyhow::Result<Candidate> {
    named(emulated, "emulator")
}

#[cfg(not(feature = "emulator"))]
fn emulator() -> anyhow::Result<Candidate> {
    anyhow::bail!("emulator is not available: this binary was built without the feature `emulator`")
}

/// A small Apple chip, its threads in lockstep.
#[cfg(feature = "emulator")]
pub fn emulated() -> Result<mettle_gpu::emulator::EmulatorGpu, GpuError> {
    use mettle_kernels::select::DeviceProfile;
    Ok(mettle_gpu::emulator::EmulatorGpu::open(
        0,
        DeviceProfile::apple(10),
    ))
}
