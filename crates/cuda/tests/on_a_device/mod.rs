//! Owns the opening of a device for tests, and the bytes that they bind.

use mettle_cuda::CudaGpu;
use mettle_gpu::Gpu;
use mettle_kernels::Scalar;
use mettle_kernels::select::Launch;

/// Panics where there is none: these tests run only when asked for.
pub fn device() -> CudaGpu {
    let gpu = CudaGpu::open().unwrap_or_else(|error| panic!("{error}"));
    println!("running on {}", gpu.describe());
    gpu
}

/// A params struct of unsigned fields.
pub fn params(launch: &Launch, fields: &[(&str, u32)]) -> Vec<u8> {
    let fields: Vec<_> = fields
        .iter()
        .map(|&(name, value)| (name, Scalar::U32(value)))
        .collect();
    let (_, layout) = launch.kernel.params().expect("a kernel with params");
    layout.pack(&fields).expect("the kernel's own fields")
}

/// The bytes of unsigned integers.
pub fn words(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    values.into_iter().flat_map(u32::to_le_bytes).collect()
}
