//! Owns the tests of the device itself, against the host. On a machine without one they print that they did not run.

mod on_a_device;

use half::f16;
use mettle_cuda::CudaGpu;
use mettle_gpu::{Argument, Encoder, Finished, Gpu, GpuError};
use mettle_kernels::select::{Element, elementwise};
use on_a_device::{device, params, words};

type Buffer = <CudaGpu as Gpu>::Buffer;

const ROWS: u32 = 7;
const WIDTH: u32 = 300;

/// Bytes that differ from place to place and from seed to seed.
fn bytes(seed: u32, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as u8
    };
    (0..count).map(|_| next()).collect()
}

fn halves(seed: u32, count: u32) -> Vec<f16> {
    let small = |byte: u8| f16::from_f32((f32::from(byte) - 128.0) / 16.0);
    bytes(seed, count as usize).into_iter().map(small).collect()
}

fn stored(values: &[f16]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn filled(gpu: &mut CudaGpu, contents: &[u8]) -> Buffer {
    let buffer = gpu.allocate("test data", contents.len()).unwrap();
    gpu.write(&buffer, 0, contents).unwrap();
    buffer
}

fn contents(gpu: &mut CudaGpu, finished: &Finished, buffer: &Buffer, count: usize) -> Vec<u8> {
    let mut out = vec![0xA5; count];
    gpu.read(finished, buffer, 0, &mut out).unwrap();
    out
}

/// Proof that nothing is under way.
fn idle(gpu: &mut CudaGpu) -> Finished {
    let submitted = gpu.encoder().unwrap().submit().unwrap();
    gpu.wait(submitted).unwrap()
}

#[test]
fn on_a_device_a_gather_copies_the_rows_that_were_uploaded_with_it() {
    let mut gpu = device();
    let x = bytes(1, (ROWS * WIDTH * 2) as usize);
    let picked = [6, 0, 3, 3, 5];
    let from = filled(&mut gpu, &x);
    let rows = gpu.allocate("row numbers", 4 * picked.len()).unwrap();
    let size = picked.len() * WIDTH as usize * 2;
    let out = gpu.allocate("gathered rows", size).unwrap();
    let copied = gpu.allocate("their copy", size + 256).unwrap();
    let launch = elementwise("gather", Element::F16, picked.len() as u32, WIDTH);
    let strides = [("width", WIDTH), ("x_stride", WIDTH), ("out_stride", WIDTH)];
    let strides = params(&launch, &strides);
    let pipeline = gpu.pipeline(&launch).unwrap();
    let mut encoder = gpu.encoder().unwrap();
    encoder.upload(&rows, 0, &words(picked));
    let arguments = [
        Argument::Buffer(&from, 0),
        Argument::Buffer(&rows, 0),
        Argument::Buffer(&out, 0),
        Argument::Bytes(&strides),
    ];
    encoder.dispatch(&pipeline, &launch, &arguments);
    encoder.barrier();
    encoder.copy((&out, 0), (&copied, 256), size);
    let submitted = encoder.submit().unwrap();
    let finished = gpu.wait(submitted).unwrap();
    assert!((0.0..1.0).contains(&finished.gpu_seconds), "{finished:?}");
    let row = |row: u32| &x[(row * WIDTH * 2) as usize..][..(WIDTH * 2) as usize];
    let expected = picked.map(row).concat();
    let gathered = contents(&mut gpu, &finished, &out, size);
    assert!(gathered == expected, "the rows");
    let with_gap = contents(&mut gpu, &finished, &copied, size + 256);
    assert!(with_gap[256..] == expected, "their copy");
}

#[test]
fn on_a_device_silu_mul_agrees_with_the_host_from_another_thread() {
    let mut gpu = device();
    let count = ROWS * WIDTH;
    let (gate, up) = (halves(2, count), halves(3, count));
    let buffers = [&gate, &up].map(|values| filled(&mut gpu, &stored(values)));
    let out = gpu.allocate("results", 2 * count as usize).unwrap();
    let launch = elementwise("silu_mul", Element::F16, ROWS, WIDTH);
    let strides = ["width", "gate_stride", "up_stride", "out_stride"].map(|name| (name, WIDTH));
    let strides = params(&launch, &strides);
    let pipeline = gpu.pipeline(&launch).unwrap();
    // As the engine does: opened and loaded on one thread, run and dropped on another.
    let run = move || {
        let mut encoder = gpu.encoder().unwrap();
        let arguments = [
            Argument::Buffer(&buffers[0], 0),
            Argument::Buffer(&buffers[1], 0),
            Argument::Buffer(&out, 0),
            Argument::Bytes(&strides),
        ];
        encoder.dispatch(&pipeline, &launch, &arguments);
        let submitted = encoder.submit().unwrap();
        let finished = gpu.wait(submitted).unwrap();
        contents(&mut gpu, &finished, &out, 2 * count as usize)
    };
    let out = std::thread::spawn(run).join().unwrap();
    for (at, value) in out.chunks_exact(2).enumerate() {
        let value = f16::from_le_bytes([value[0], value[1]]).to_f64();
        let (g, u) = (gate[at].to_f64(), up[at].to_f64());
        let expected = g / (1.0 + (-g).exp()) * u;
        // Half a unit in the last place of an f16, and the f32 error of exp and division on top.
        let tolerance = expected.abs() * (1.0 / 2048.0 + 1e-5) + 1e-7;
        assert!(
            (value - expected).abs() <= tolerance,
            "{at}: {value}, {expected}"
        );
    }
}

#[test]
fn on_a_device_many_megabytes_come_back_as_written() {
    let mut gpu = device();
    // More than the slots of staging memory hold, and neither end at a slot's.
    let data = bytes(4, 13_000_007);
    let buffer = gpu.allocate("data", data.len() + 100).unwrap();
    gpu.write(&buffer, 57, &data).unwrap();
    let mut out = vec![0; data.len()];
    let finished = idle(&mut gpu);
    gpu.read(&finished, &buffer, 57, &mut out).unwrap();
    assert!(out == data);
    gpu.write(&buffer, 1_000_000, &data[..5]).unwrap();
    gpu.read(&finished, &buffer, 999_998, &mut out[..9])
        .unwrap();
    let at = 999_998 - 57;
    let around = [&data[at..at + 2], &data[..5], &data[at + 7..at + 9]].concat();
    assert_eq!(out[..9], around);
}

#[test]
fn on_a_device_uploads_of_steps_under_way_are_not_overwritten() {
    let mut gpu = device();
    const UPLOADED: usize = 700_000;
    const STEPS: usize = 40;
    let metadata = gpu.allocate("metadata", UPLOADED).unwrap();
    let kept = gpu.allocate("copies", STEPS * UPLOADED).unwrap();
    let upload = |step: usize| bytes(step as u32, UPLOADED);
    let mut under_way = Vec::new();
    for step in 0..STEPS {
        let mut encoder = gpu.encoder().unwrap();
        encoder.upload(&metadata, 0, &upload(step));
        encoder.barrier();
        encoder.copy((&metadata, 0), (&kept, step * UPLOADED), UPLOADED);
        under_way.push(encoder.submit().unwrap());
    }
    let waited: Vec<_> = under_way
        .into_iter()
        .map(|s| gpu.wait(s).unwrap())
        .collect();
    let all = contents(&mut gpu, waited.last().unwrap(), &kept, STEPS * UPLOADED);
    for (step, part) in all.chunks_exact(UPLOADED).enumerate() {
        assert!(part == upload(step), "step {step}");
    }
}

#[test]
fn on_a_device_what_it_cannot_do_is_an_error_with_the_numbers() {
    let mut gpu = device();
    let mut launch = elementwise("silu_mul", Element::F16, 1, 1);
    launch.threadgroup_bytes = 1 << 20;
    let error = gpu.pipeline(&launch).err().expect("no device has so much");
    let GpuError::Compile { kernel, message } = &error else {
        panic!("{error}");
    };
    assert_eq!(kernel, "silu_mul_f16");
    assert!(message.contains("1048576 bytes"), "{message}");
    // More than 48 KB is there on every device that the kernels run on, for the asking.
    launch.threadgroup_bytes = 64 << 10;
    gpu.pipeline(&launch).unwrap();

    let bytes = gpu.memory_budget() * 2;
    let refused = gpu.allocate("too much", bytes).err();
    let expected = GpuError::OutOfMemory {
        what: "too much",
        bytes,
    };
    assert_eq!(refused, Some(expected));
    // The refusal leaves the device usable.
    idle(&mut gpu);
}
