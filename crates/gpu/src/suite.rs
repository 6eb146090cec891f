//! Owns the kernels' own test suite on a device behind `trait Gpu`.

use crate::device::{Argument, Encoder, Gpu};
use crate::error::GpuError;
use mettle_kernels::select::{Constants, DeviceProfile, Launch};
use mettle_kernels::suite::{SuiteArgument, SuiteDevice};
use std::collections::HashMap;

/// A device, with what one dispatch leaves for the next: compiled kernels and memory.
pub struct SuiteGpu<G: Gpu> {
    gpu: G,
    pipelines: HashMap<(usize, Constants), G::Pipeline>,
    /// By buffer index.
    buffers: Vec<(usize, G::Buffer)>,
}

impl<G: Gpu> SuiteGpu<G> {
    pub fn new(gpu: G) -> SuiteGpu<G> {
        SuiteGpu {
            gpu,
            pipelines: HashMap::new(),
            buffers: Vec::new(),
        }
    }

    /// Buffer `index`, with room for so many bytes.
    fn make_room(&mut self, index: usize, bytes: usize) -> Result<(), GpuError> {
        let what = "a kernel's argument";
        let room = bytes.max(256).next_power_of_two();
        if index >= self.buffers.len() {
            let buffer = self.gpu.allocate(what, room)?;
            self.buffers.push((room, buffer));
        } else if self.buffers[index].0 < bytes {
            self.buffers[index] = (room, self.gpu.allocate(what, room)?);
        }
        Ok(())
    }

    fn dispatch(
        &mut self,
        launch: &Launch,
        arguments: &mut [SuiteArgument],
    ) -> Result<(), GpuError> {
        let key = (std::ptr::from_ref(launch.kernel) as usize, launch.constants);
        if !self.pipelines.contains_key(&key) {
            let pipeline = self.gpu.pipeline(launch)?;
            self.pipelines.insert(key, pipeline);
        }
        for (index, argument) in arguments.iter().enumerate() {
            let bytes: &[u8] = match argument {
                SuiteArgument::In(bytes) | SuiteArgument::Params(bytes) => bytes,
                SuiteArgument::Out(bytes) | SuiteArgument::InOut(bytes) => bytes,
            };
            self.make_room(index, bytes.len())?;
            self.gpu.write(&self.buffers[index].1, 0, bytes)?;
        }
        let bound: Vec<Argument<G::Buffer>> = arguments
            .iter()
            .zip(&self.buffers)
            .map(|(argument, (_, buffer))| match argument {
                SuiteArgument::Params(bytes) => Argument::Bytes(bytes),
                _ => Argument::Buffer(buffer, 0),
            })
            .collect();
        let mut encoder = self.gpu.encoder()?;
        encoder.dispatch(&self.pipelines[&key], launch, &bound);
        let submitted = encoder.submit()?;
        let finished = self.gpu.wait(submitted)?;
        for (argument, (_, buffer)) in arguments.iter_mut().zip(&self.buffers) {
            if let SuiteArgument::Out(bytes) | SuiteArgument::InOut(bytes) = argument {
                self.gpu.read(&finished, buffer, 0, bytes)?;
            }
        }
        Ok(())
    }
}

impl<G: Gpu> SuiteDevice for SuiteGpu<G> {
    fn profile(&self) -> DeviceProfile {
        self.gpu.profile()
    }

    fn run(&mut self, launch: &Launch, arguments: &mut [SuiteArgument]) -> Result<(), String> {
        self.dispatch(launch, arguments)
            .map_err(|error| error.to_string())
    }
}
