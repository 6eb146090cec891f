//! The native backend: SIMD kernels over packed weights, KV pages in memory, and a thread pool of its own.

mod assignments;
mod context;
mod executable;
mod expert_weights;
mod experts;
mod isa;
mod joins;
mod kernels;
mod kv;
mod lanes;
mod memory;
mod names;
mod pack;
mod phases;
mod pool;
mod prepared;
mod product;
mod program;
mod readers;
mod row_blocks;
mod run;
mod step;
mod system;
mod top_k;
mod waiting;
mod weights;

pub use isa::{Isa, ProductLoop};

use executable::CpuExecutable;
use mettle_plan::{Backend, BackendError, Executable, Plan, PrepareOptions};
use mettle_tensor::TensorSource;

/// Runs plans on this machine's processor.
pub struct CpuBackend {
    threads: usize,
    isa: Isa,
}

impl CpuBackend {
    /// A backend with `threads` threads (the caller's included) and the best instruction set there is.
    pub fn new(threads: usize) -> CpuBackend {
        CpuBackend::with_isa(threads, Isa::detect())
    }

    /// The same with a given instruction set, which must be one of [`Isa::available`].
    pub fn with_isa(threads: usize, isa: Isa) -> CpuBackend {
        assert!(
            Isa::available().contains(&isa),
            "this processor has no {isa}"
        );
        CpuBackend {
            threads: threads.max(1),
            isa,
        }
    }
}

impl Backend for CpuBackend {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn describe(&self) -> String {
        let threads = match self.threads {
            1 => "1 thread".to_owned(),
            n => format!("{n} threads"),
        };
        format!("CPU, {}, {threads}", self.isa)
    }

    fn prepare(
        &self,
        plans: &[Plan],
        weights: &dyn TensorSource,
        options: PrepareOptions,
    ) -> Result<Box<dyn Executable>, BackendError> {
        let executable = CpuExecutable::new(self.isa, self.threads, plans, weights, options)?;
        Ok(Box::new(executable))
    }
}
