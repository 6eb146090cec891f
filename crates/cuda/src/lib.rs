//! Owns NVIDIA GPUs behind `trait Gpu`: kernels as PTX, the CUDA driver loaded at run time.
