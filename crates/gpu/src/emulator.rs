//! Owns the emulated GPU behind `trait Gpu`. It finds what a real one hides: commands between two barriers run in an
//! order that the seed draws, so that a missing barrier shows in the result.

use crate::device::{Argument, Encoder, Finished, Gpu};
use crate::error::GpuError;
use mettle_kernels::emulator::{self, Buffer, Kernel};
use mettle_kernels::select::{DeviceProfile, Launch};
use std::sync::Arc;
use std::time::Instant;

pub struct EmulatorGpu {
    seed: u32,
    profile: DeviceProfile,
}

impl EmulatorGpu {
    /// Seed 0 runs threads in lockstep and commands in order; every other seed in an order of its own.
    pub fn open(seed: u32, profile: DeviceProfile) -> EmulatorGpu {
        EmulatorGpu { seed, profile }
    }
}

#[derive(Clone)]
pub struct EmulatorBuffer(Arc<Shared>);

struct Shared(Buffer);

// SAFETY: the device is the only one that touches the memory: through `&mut EmulatorGpu`, or through its encoder, which
// borrows it. A buffer alone offers nothing.
unsafe impl Sync for Shared {}

impl Gpu for EmulatorGpu {
    type Buffer = EmulatorBuffer;
    type Pipeline = Kernel;
    type Encoder<'a> = EmulatorEncoder<'a>;
    type Submitted = f64;

    fn name(&self) -> &'static str {
        "emulator"
    }

    fn describe(&self) -> String {
        format!("emulated GPU, {} cores", self.profile.cores)
    }

    fn profile(&self) -> DeviceProfile {
        self.profile
    }

    fn memory_budget(&self) -> usize {
        usize::MAX
    }

    fn allocate(&mut self, what: &'static str, bytes: usize) -> Result<EmulatorBuffer, GpuError> {
        if bytes > isize::MAX as usize / 2 {
            return Err(GpuError::OutOfMemory { what, bytes });
        }
        Ok(EmulatorBuffer(Arc::new(Shared(Buffer::new(bytes)))))
    }

    fn write(
        &mut self,
        buffer: &EmulatorBuffer,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), GpuError> {
        buffer.0.0.write(offset, bytes);
        Ok(())
    }

    fn pipeline(&mut self, launch: &Launch) -> Result<Kernel, GpuError> {
        let name = &launch.kernel.host_name;
        Kernel::find(name).ok_or_else(|| GpuError::Compile {
            kernel: name.clone(),
            message: "the emulator was built without it".into(),
        })
    }

    fn encoder(&mut self) -> Result<EmulatorEncoder<'_>, GpuError> {
        Ok(EmulatorEncoder {
            random: Random(self.seed.into()),
            gpu: self,
            pending: Vec::new(),
            fault: None,
            start: Instant::now(),
        })
    }

    fn wait(&mut self, seconds: f64) -> Result<Finished, GpuError> {
        Ok(Finished {
            gpu_seconds: seconds,
        })
    }

    fn read(
        &mut self,
        _: &Finished,
        buffer: &EmulatorBuffer,
        offset: usize,
        out: &mut [u8],
    ) -> Result<(), GpuError> {
        buffer.0.0.read(offset, out);
        Ok(())
    }
}

enum Pending {
    Dispatch {
        kernel: Kernel,
        launch: Box<Launch>,
        arguments: Vec<Held>,
    },
    Copy {
        from: (EmulatorBuffer, usize),
        to: (EmulatorBuffer, usize),
        bytes: usize,
    },
}

enum Held {
    Buffer(EmulatorBuffer, usize),
    Bytes(Vec<u8>),
}

pub struct EmulatorEncoder<'a> {
    gpu: &'a mut EmulatorGpu,
    random: Random,
    /// Commands since the last barrier.
    pending: Vec<Pending>,
    fault: Option<GpuError>,
    start: Instant,
}

impl EmulatorEncoder<'_> {
    fn run(&mut self, command: Pending) -> Result<(), emulator::Fault> {
        match command {
            Pending::Copy { from, to, bytes } => {
                let mut copied = vec![0; bytes];
                from.0.0.0.read(from.1, &mut copied);
                to.0.0.0.write(to.1, &copied);
                Ok(())
            }
            Pending::Dispatch {
                kernel,
                launch,
                arguments,
            } => {
                let arguments: Vec<emulator::Argument> = arguments
                    .iter()
                    .map(|argument| match argument {
                        Held::Buffer(buffer, offset) => {
                            emulator::Argument::Buffer(&buffer.0.0, *offset)
                        }
                        Held::Bytes(bytes) => emulator::Argument::Bytes(bytes),
                    })
                    .collect();
                let sizes = emulator::Launch {
                    threadgroups: launch.threadgroups,
                    threads: [launch.threads, 1, 1],
                    threadgroup_bytes: launch.threadgroup_bytes,
                    seed: self.gpu.seed,
                };
                kernel.dispatch(&arguments, &launch.constants, &sizes)
            }
        }
    }

    fn run_pending(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        if self.gpu.seed != 0 {
            for last in (1..pending.len()).rev() {
                pending.swap(last, self.random.below(last + 1));
            }
        }
        for command in pending {
            if self.fault.is_none()
                && let Err(fault) = self.run(command)
            {
                self.fault = Some(GpuError::Fault(fault.to_string()));
            }
        }
    }
}

impl Encoder for EmulatorEncoder<'_> {
    type Buffer = EmulatorBuffer;
    type Pipeline = Kernel;
    type Submitted = f64;

    fn upload(&mut self, buffer: &EmulatorBuffer, offset: usize, bytes: &[u8]) {
        self.run_pending();
        buffer.0.0.write(offset, bytes);
    }

    fn copy(&mut self, from: (&EmulatorBuffer, usize), to: (&EmulatorBuffer, usize), bytes: usize) {
        self.pending.push(Pending::Copy {
            from: (from.0.clone(), from.1),
            to: (to.0.clone(), to.1),
            bytes,
        });
    }

    fn dispatch(
        &mut self,
        pipeline: &Kernel,
        launch: &Launch,
        arguments: &[Argument<'_, EmulatorBuffer>],
    ) {
        let arguments = arguments
            .iter()
            .map(|argument| match argument {
                Argument::Buffer(buffer, offset) => Held::Buffer((*buffer).clone(), *offset),
                Argument::Bytes(bytes) => Held::Bytes(bytes.to_vec()),
            })
            .collect();
        self.pending.push(Pending::Dispatch {
            kernel: *pipeline,
            launch: Box::new(*launch),
            arguments,
        });
    }

    fn barrier(&mut self) {
        self.run_pending();
    }

    fn submit(mut self) -> Result<f64, GpuError> {
        self.run_pending();
        match self.fault.take() {
            Some(fault) => Err(fault),
            None => Ok(self.start.elapsed().as_secs_f64()),
        }
    }
}

/// A small generator of its own: orders must repeat with the seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }
}
