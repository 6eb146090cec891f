//! Runs plans on GPUs: one runner over `trait Gpu`, which each kind of device implements.

mod device;
mod error;

pub use device::{Argument, Encoder, Finished, Gpu};
pub use error::GpuError;
