//! Owns the test of a machine, or a binary, without an NVIDIA GPU. Alone in its process, whose environment it changes.

use mettle_cuda::CudaGpu;
use mettle_gpu::GpuError;

#[test]
fn without_a_visible_device_opening_says_why() {
    // SAFETY: the only test of this process, so no other thread reads the environment.
    unsafe { std::env::set_var("CUDA_VISIBLE_DEVICES", "-1") };
    let Err(error) = CudaGpu::open() else {
        panic!("the device is hidden");
    };
    let GpuError::NotAvailable { device, why } = &error else {
        panic!("{error}");
    };
    assert_eq!(*device, "cuda");
    if cfg!(feature = "cuda") {
        // No driver, or one that sees no device.
        assert!(
            why.contains("libcuda") || why.contains("CUDA_ERROR"),
            "{why}"
        );
    } else {
        assert_eq!(why, "this binary was built without the feature `cuda`");
    }
}
