//! Owns the tests that need an Apple GPU: everything compiles there, and what the adapter itself does comes out right.
#![cfg(target_os = "macos")]

use half::f16;
use mettle_gpu::{Argument, Encoder, Finished, Gpu, GpuError};
use mettle_kernels::select::{Constants, Element, Launch, elementwise, rms_norm};
use mettle_kernels::{Library, Signature, libraries};
use mettle_metal::MetalGpu;

type Buffer = <MetalGpu as Gpu>::Buffer;

const WIDTH: usize = 1024;

fn open() -> MetalGpu {
    MetalGpu::open().expect("a Mac with an Apple GPU")
}

/// A launch of any kernel with all its constants set alike. Names live as long as the libraries.
fn launch_of(library: &'static Library, kernel: &'static Signature, value: u32) -> Launch {
    let constants = library.interface.constants.iter();
    let constants: Vec<_> = constants.map(|c| (c.name.as_str(), value)).collect();
    Launch {
        kernel,
        constants: Constants::new(&constants),
        ..elementwise("add", Element::F16, 1, 32)
    }
}

#[test]
fn every_kernel_compiles() {
    let mut gpu = open();
    println!("{}", gpu.describe());
    let mut faults = Vec::new();
    for library in libraries() {
        for kernel in &library.interface.signatures {
            for value in [0, 1] {
                let made = gpu.pipeline(&launch_of(library, kernel, value));
                faults.extend(made.err().map(|error| error.to_string()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_constant_that_no_source_has_is_named() {
    let mut launch = elementwise("add", Element::F16, 1, 32);
    launch.constants = Constants::new(&[("has_wings", 1)]);
    let error = open().pipeline(&launch).err().map(|e| e.to_string());
    let expected =
        "kernel add_f16 does not compile for this device: there is no function constant has_wings";
    assert_eq!(error.as_deref(), Some(expected));
}

#[test]
fn too_many_threads_are_refused() {
    let mut launch = rms_norm(Element::F16, 1, false, true);
    launch.threads = 4096;
    let refused = open().pipeline(&launch).err();
    assert!(matches!(refused, Some(GpuError::Compile { .. })));
}

/// Rows of f16 and a kernel that adds two of them.
struct Rows {
    gpu: MetalGpu,
    add: <MetalGpu as Gpu>::Pipeline,
    launch: Launch,
}

impl Rows {
    fn new() -> Rows {
        let mut gpu = open();
        let launch = elementwise("add", Element::F16, 1, WIDTH as u32);
        let add = gpu.pipeline(&launch).expect("a kernel");
        Rows { gpu, add, launch }
    }

    fn buffer(&mut self, rows: usize, value: f32) -> Buffer {
        let buffer = self.gpu.allocate("test", rows * WIDTH * 2).expect("memory");
        let bytes = row(value).repeat(rows);
        self.gpu.write(&buffer, 0, &bytes).expect("a write");
        buffer
    }

    fn check(&mut self, finished: &Finished, buffer: &Buffer, value: f32) {
        let mut bytes = row(f32::NAN);
        self.gpu
            .read(finished, buffer, 0, &mut bytes)
            .expect("a read");
        assert!(bytes == row(value), "{:?} not {value}", first(&bytes));
    }
}

fn row(value: f32) -> Vec<u8> {
    f16::from_f32(value).to_le_bytes().repeat(WIDTH)
}

fn first(bytes: &[u8]) -> f16 {
    f16::from_le_bytes([bytes[0], bytes[1]])
}

fn params() -> Vec<u8> {
    (WIDTH as u32).to_le_bytes().repeat(4)
}

#[test]
fn what_is_written_runs_through_a_kernel_and_comes_back() {
    let mut rows = Rows::new();
    let (a, b, out) = (
        rows.buffer(1, 1.5),
        rows.buffer(1, 2.0),
        rows.buffer(1, 0.0),
    );
    let mut encoder = rows.gpu.encoder().expect("an encoder");
    encoder.dispatch(
        &rows.add,
        &rows.launch,
        &[
            Argument::Buffer(&a, 0),
            Argument::Buffer(&b, 0),
            Argument::Buffer(&out, 0),
            Argument::Bytes(&params()),
        ],
    );
    let submitted = encoder.submit().expect("work");
    let finished = rows.gpu.wait(submitted).expect("an end");
    assert!(finished.gpu_seconds > 0.0);
    rows.check(&finished, &out, 3.5);
}

/// A chain in which each command needs the one before: over several command buffers, with copies in between.
#[test]
fn barriers_order_dispatches_and_copies_across_command_buffers() {
    let mut rows = Rows::new();
    let (one, other) = (rows.buffer(1, 0.0), rows.buffer(1, 0.0));
    let step = rows.buffer(1, 1.0);
    const STEPS: usize = 500;
    let mut encoder = rows.gpu.encoder().expect("an encoder");
    for _ in 0..STEPS {
        encoder.dispatch(
            &rows.add,
            &rows.launch,
            &[
                Argument::Buffer(&one, 0),
                Argument::Buffer(&step, 0),
                Argument::Buffer(&other, 0),
                Argument::Bytes(&params()),
            ],
        );
        encoder.barrier();
        encoder.copy((&other, 0), (&one, 0), WIDTH * 2);
        encoder.barrier();
    }
    let submitted = encoder.submit().expect("work");
    let finished = rows.gpu.wait(submitted).expect("an end");
    rows.check(&finished, &one, STEPS as f32);
}

/// Two pieces of work one after the other, the second submitted before the first is waited for.
#[test]
fn work_submitted_later_runs_later() {
    let mut rows = Rows::new();
    let (a, b) = (rows.buffer(1, 0.0), rows.buffer(1, 0.0));
    let step = rows.buffer(1, 1.0);
    let mut submitted = Vec::new();
    for (from, to) in [(&a, &b), (&b, &a)].repeat(20) {
        let mut encoder = rows.gpu.encoder().expect("an encoder");
        encoder.dispatch(
            &rows.add,
            &rows.launch,
            &[
                Argument::Buffer(from, 0),
                Argument::Buffer(&step, 0),
                Argument::Buffer(to, 0),
                Argument::Bytes(&params()),
            ],
        );
        submitted.push(encoder.submit().expect("work"));
    }
    let waited: Vec<_> = submitted.into_iter().map(|s| rows.gpu.wait(s)).collect();
    let finished = waited.last().expect("work").clone().expect("an end");
    rows.check(&finished, &a, 40.0);
}

#[test]
fn an_upload_is_seen_by_what_comes_after_it_only() {
    let mut rows = Rows::new();
    let (input, zero) = (rows.buffer(1, 0.0), rows.buffer(1, 0.0));
    let (before, after) = (rows.buffer(1, 0.0), rows.buffer(1, 0.0));
    let mut encoder = rows.gpu.encoder().expect("an encoder");
    for (value, out) in [(1.0, &before), (2.0, &after)] {
        encoder.upload(&input, 0, &row(value));
        encoder.dispatch(
            &rows.add,
            &rows.launch,
            &[
                Argument::Buffer(&input, 0),
                Argument::Buffer(&zero, 0),
                Argument::Buffer(out, 0),
                Argument::Bytes(&params()),
            ],
        );
    }
    let submitted = encoder.submit().expect("work");
    let finished = rows.gpu.wait(submitted).expect("an end");
    rows.check(&finished, &before, 1.0);
    rows.check(&finished, &after, 2.0);
}

#[test]
fn an_encoder_may_be_dropped_and_buffers_freed() {
    let mut rows = Rows::new();
    for _ in 0..10 {
        let (a, out) = (rows.buffer(64, 1.0), rows.buffer(64, 0.0));
        let mut encoder = rows.gpu.encoder().expect("an encoder");
        encoder.copy((&a, 0), (&out, 0), WIDTH * 2);
    }
    what_is_written_runs_through_a_kernel_and_comes_back();
}

#[test]
fn more_memory_than_there_is_is_refused() {
    let refused = open().allocate("everything", usize::MAX).err();
    assert!(matches!(refused, Some(GpuError::OutOfMemory { .. })));
}
