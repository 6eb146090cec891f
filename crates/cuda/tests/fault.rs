//! Owns the test of a kernel that goes wrong. Alone in its process: the driver serves it no more afterwards.

mod on_a_device;

use mettle_gpu::{Argument, Encoder, Gpu, GpuError};
use mettle_kernels::select::{Element, elementwise};
use on_a_device::{device, params, words};

#[test]
fn on_a_device_a_wild_address_is_a_fault_and_no_panic() {
    let mut gpu = device();
    let x = gpu.allocate("rows", 512).unwrap();
    let rows = gpu.allocate("row numbers", 4).unwrap();
    let launch = elementwise("gather", Element::F16, 1, 256);
    // The row is two terabytes away.
    let strides = [("width", 256), ("x_stride", 1 << 20), ("out_stride", 256)];
    let strides = params(&launch, &strides);
    let pipeline = gpu.pipeline(&launch).unwrap();
    let mut encoder = gpu.encoder().unwrap();
    encoder.upload(&rows, 0, &words([1 << 20]));
    let arguments = [
        Argument::Buffer(&x, 0),
        Argument::Buffer(&rows, 0),
        Argument::Buffer(&x, 0),
        Argument::Bytes(&strides),
    ];
    encoder.dispatch(&pipeline, &launch, &arguments);
    let waited = encoder.submit().and_then(|submitted| gpu.wait(submitted));
    let error = waited.expect_err("an address outside of all memory");
    let GpuError::Fault(message) = &error else {
        panic!("{error}");
    };
    assert!(message.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{message}");
    // Every later call fails, none panics, and neither does dropping what is left.
    assert!(matches!(gpu.write(&x, 0, &[0; 4]), Err(GpuError::Fault(_))));
}
