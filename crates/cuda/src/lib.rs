//! NVIDIA GPUs behind `trait Gpu`: kernels as PTX, the CUDA driver loaded at run time. Without the feature `cuda` the same
//! type exists, and opening it says why there is none.

#[cfg(not(feature = "cuda"))]
mod absent;
#[cfg(feature = "cuda")]
mod context;
#[cfg(feature = "cuda")]
mod driver;
#[cfg(feature = "cuda")]
mod early_start;
#[cfg(feature = "cuda")]
mod encoder;
#[cfg(feature = "cuda")]
mod event;
#[cfg(feature = "cuda")]
mod gpu;
#[cfg(feature = "cuda")]
mod memory;
#[cfg(feature = "cuda")]
mod pipeline;
#[cfg(feature = "cuda")]
mod staging;
#[cfg(feature = "cuda")]
mod stream;

#[cfg(not(feature = "cuda"))]
pub use absent::CudaGpu;
#[cfg(feature = "cuda")]
pub use gpu::CudaGpu;
