//! Owns the door between engine and device: a backend turns a plan and weights into an executable, which runs steps.

use crate::bind::BindError;
use crate::counts::Counts;
use crate::dim::{Dim, Sizes};
use crate::kv::PageLayout;
use crate::plan::Plan;
use crate::step::{BlockId, OutputKind, StepInput, StepOutput, Ticket};
use mettle_tensor::TensorSource;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("the {backend} backend has no {what}")]
    Unsupported { backend: &'static str, what: String },
    #[error("the step has {size} {dim}, its bound is {bound}")]
    StepTooLarge { dim: Dim, size: usize, bound: usize },
    #[error("the step is not well formed: {0}")]
    BadStep(String),
    #[error("{what} needs {bytes} bytes of memory, which the system refused")]
    OutOfMemory { what: &'static str, bytes: usize },
    #[error("ticket {0} was not submitted here or was already waited for")]
    UnknownTicket(u64),
    #[error("{0} steps are under way and none was waited for")]
    TooManyInFlight(usize),
    #[error("{backend}: {message}")]
    Device {
        backend: &'static str,
        message: String,
    },
}

/// What is fixed when a plan is prepared.
#[derive(Clone, Debug)]
pub struct PrepareOptions {
    /// The most that one step may hold.
    pub bounds: Sizes,
    /// Pages of the KV pool.
    pub kv_pages: usize,
    pub page_layout: PageLayout,
    /// Taps (by name) whose values are kept after each step.
    pub taps: Vec<String>,
}

/// Memory that a prepared plan holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    pub weight_bytes: usize,
    pub kv_bytes: usize,
    pub scratch_bytes: usize,
}

/// How long one kernel of a step took on the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpTime {
    /// The op's place in the plan.
    pub node: usize,
    pub kernel: &'static str,
    pub seconds: f64,
}

pub trait Backend: Send {
    /// `cpu`, `metal`, `cuda`, `emulator`.
    fn name(&self) -> &'static str;

    /// One line for people: which device, which instruction set, how many threads.
    fn describe(&self) -> String;

    /// Bytes of a memory of its own that weights, cache and scratch must fit; absent: it uses the machine's.
    fn memory_budget(&self) -> Option<usize> {
        None
    }

    /// Binds and packs the weights, allocates scratch memory and the KV pool. The plans of one model (an encoder's and a
    /// decoder's) declare the same KV groups and share weights and pool; `StepInput::plan` says which one runs.
    fn prepare(
        &self,
        plans: &[Plan],
        weights: &dyn TensorSource,
        options: PrepareOptions,
    ) -> Result<Box<dyn Executable>, BackendError>;
}

/// A plan ready to run. Steps run in the order they were submitted.
pub trait Executable: Send {
    fn bounds(&self) -> &Sizes;

    fn page_layout(&self) -> &PageLayout;

    fn memory(&self) -> MemoryUse;

    /// Whether a step may ask for this output. `InputToken::SampledBy` needs `OutputKind::Sampled`.
    fn gives(&self, output: OutputKind) -> bool;

    /// Steps that may be submitted before the oldest of them is waited for.
    fn max_in_flight(&self) -> usize {
        1
    }

    /// Starts a step. A backend without a device queue may finish it before it returns.
    fn submit(&mut self, step: &StepInput) -> Result<Ticket, BackendError>;

    /// Blocks until the step is done. Steps are waited for in the order they were submitted; the output is borrowed, so
    /// it lives until the executable is used again.
    fn wait(&mut self, ticket: Ticket) -> Result<StepOutput<'_>, BackendError>;

    /// Copies whole pages of the pool (source, target), ordered after the steps submitted before.
    fn copy_pages(&mut self, copies: &[(BlockId, BlockId)]) -> Result<(), BackendError>;

    /// The rows of a tap of the last step waited for, if it was asked for when the plan was prepared.
    fn tap(&self, name: &str) -> Option<&[f32]>;

    /// Runs a step one kernel at a time and gives the time of each; its output is lost. None: this backend cannot.
    fn profile(&mut self, _step: &StepInput) -> Option<Result<Vec<OpTime>, BackendError>> {
        None
    }

    /// What it has done since it was prepared. Whoever keeps this may look at any time, from any thread.
    fn counts(&self) -> Arc<Counts>;

    /// How often each kernel ran since the start.
    fn dispatches(&self) -> BTreeMap<&'static str, u64> {
        self.counts().dispatches()
    }
}
