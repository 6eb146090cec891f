//! Owns the opening of a device for tests, which says where there is none: those tests show nothing there.

use mettle_cuda::CudaGpu;
use mettle_gpu::{Gpu, GpuError};
use mettle_kernels::Scalar;
use mettle_kernels::select::Launch;

/// None on a machine without a device, unless `METTLE_REQUIRE_CUDA` is set: then that is a failure.
pub fn device() -> Option<CudaGpu> {
    match CudaGpu::open() {
        Ok(gpu) => {
            println!("running on {}", gpu.describe());
            Some(gpu)
        }
        Err(GpuError::NotAvailable { why, .. })
            if std::env::var_os("METTLE_REQUIRE_CUDA").is_none() =>
        {
            println!("NOT RUN: the part of this test that needs a device ({why})");
            None
        }
        Err(error) => panic!("{error}"),
    }
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
