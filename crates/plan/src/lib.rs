//! The forward pass as data: ops over numbered buffers, the KV cache's shape, and the traits by which backends run it.
//!
//! A model architecture is a function from its config to a [`Plan`]; passes rewrite it, [`hazards`] says where barriers
//! go, [`Arena`] where buffers lie, [`cost`] what each op moves and computes. Nothing here runs anything.

mod arena;
mod backend;
mod bind;
mod buffer;
pub mod cost;
mod counts;
mod dim;
mod hazards;
mod kv;
mod op;
pub mod passes;
mod plan;
pub mod print;
mod rope;
mod step;
mod step_check;
mod weight;

pub use arena::Arena;
pub use backend::{Backend, BackendError, Executable, MemoryUse, OpTime, PrepareOptions};
pub use bind::{BindError, BoundWeight, bind};
pub use buffer::{Buffer, BufferId, Element, Slice};
pub use counts::{Counts, KernelCount};
pub use dim::{Dim, MAX_LOGIT_ROWS, Sizes};
pub use hazards::hazards;
pub use kv::{GroupPages, KvElement, KvGroup, KvLayer, PageLayout, Plane, Retention};
pub use op::*;
pub use plan::{Node, Plan, Tap};
pub use rope::{Rope, RopeId, RopeScaling, RopeStyle};
pub use step::{
    BlockId, ContextLen, ExtraInput, GroupTables, InputToken, InputValues, OutputKind, QueryLen,
    StepInput, StepOutput, Ticket, TokenRow,
};
pub use step_check::StepLimits;
pub use weight::{Cut, Part, Take, Weight, WeightId};
