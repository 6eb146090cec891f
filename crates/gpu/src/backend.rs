//! Owns a kind of device as a backend of plans.

use crate::device::Gpu;
use crate::error::GpuError;
use crate::executable::{GpuExecutable, Precision, device_error};
use mettle_plan::{Backend, BackendError, Executable, Plan, PrepareOptions};
use mettle_tensor::TensorSource;
use std::sync::Mutex;

type Open<G> = dyn Fn() -> Result<G, GpuError> + Send;

/// Runs plans on the device that `open` gives.
pub struct GpuBackend<G> {
    name: &'static str,
    description: String,
    memory_budget: usize,
    precision: Precision,
    open: Box<Open<G>>,
    /// Opened to be described, and taken by the first plan that is prepared.
    first: Mutex<Option<G>>,
}

impl<G: Gpu> GpuBackend<G> {
    /// Fails where there is no such device.
    pub fn new(
        open: impl Fn() -> Result<G, GpuError> + Send + 'static,
        precision: Precision,
    ) -> Result<GpuBackend<G>, GpuError> {
        let gpu = open()?;
        Ok(GpuBackend {
            name: gpu.name(),
            description: gpu.describe(),
            memory_budget: gpu.memory_budget(),
            precision,
            open: Box::new(open),
            first: Mutex::new(Some(gpu)),
        })
    }
}

impl<G: Gpu> Backend for GpuBackend<G> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    fn memory_budget(&self) -> Option<usize> {
        (self.memory_budget != usize::MAX).then_some(self.memory_budget)
    }

    fn prepare(
        &self,
        plans: &[Plan],
        weights: &dyn TensorSource,
        options: PrepareOptions,
    ) -> Result<Box<dyn Executable>, BackendError> {
        let [plan] = plans else {
            return Err(BackendError::Unsupported {
                backend: self.name,
                what: format!("models of {} plans (an encoder and a decoder)", plans.len()),
            });
        };
        let first = self.first.lock().unwrap_or_else(|p| p.into_inner()).take();
        let gpu = match first {
            Some(gpu) => gpu,
            None => (self.open)().map_err(|error| device_error(self.name, error))?,
        };
        let executable = GpuExecutable::new(gpu, plan, weights, options, self.precision)?;
        Ok(Box::new(executable))
    }
}
