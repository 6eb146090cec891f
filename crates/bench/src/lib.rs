//! Measures how fast a prepared model, single kernels, a machine and a server under load are, and draws what was measured.
//! Knows no model file and no command line.

pub mod ceilings;
pub mod compare;
mod error;
pub mod gpu_linear;
pub mod latency;
pub mod load;
pub mod machine;
pub mod ops;
pub mod others;
mod random;
pub mod report;
mod spread;
pub mod type_products;

pub use error::BenchError;
pub use random::Random;
pub use spread::Spread;
