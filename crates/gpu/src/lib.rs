//! Runs plans on GPUs: one runner over `trait Gpu`, which each kind of device implements.
//!
//! A step becomes a list of commands on the host ([`record`]), with everything that varies from step to step in one piece
//! of metadata; the list is then played on an encoder. Nothing above `trait Gpu` knows which device that is.

mod backend;
mod commands;
mod device;
#[cfg(feature = "emulator")]
pub mod emulator;
mod error;
mod executable;
mod memory;
mod metadata;
mod output;
mod params;
mod pipelines;
mod place;
mod record;
mod suite;
mod support;
mod weights;

pub use backend::GpuBackend;
pub use device::{Argument, Encoder, Finished, Gpu};
pub use error::GpuError;
pub use executable::Precision;
pub use suite::SuiteGpu;
pub use weights::device_bytes;
