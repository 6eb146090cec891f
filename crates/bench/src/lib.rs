//! Measures how fast a prepared model and single kernels run. Knows no model file and no command line.

pub mod gpu_linear;
pub mod latency;
mod spread;

pub use spread::Spread;
