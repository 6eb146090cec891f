//! Owns the kernel suite on the emulated GPU: each argument in a buffer of its exact size, so that an overrun faults.

use super::{Argument, Buffer, Kernel, Launch};
use crate::select::{self, DeviceProfile};
use crate::suite::{SuiteArgument, SuiteDevice};
use std::collections::HashSet;

pub struct SuiteEmulator {
    seed: u32,
    profile: DeviceProfile,
    /// Kernels that were run.
    pub used: HashSet<&'static str>,
}

impl SuiteEmulator {
    pub fn new(seed: u32, profile: DeviceProfile) -> SuiteEmulator {
        SuiteEmulator {
            seed,
            profile,
            used: HashSet::new(),
        }
    }
}

impl SuiteDevice for SuiteEmulator {
    fn profile(&self) -> DeviceProfile {
        self.profile
    }

    fn run(
        &mut self,
        launch: &select::Launch,
        arguments: &mut [SuiteArgument],
    ) -> Result<(), String> {
        self.used.insert(&launch.kernel.host_name);
        if launch.threadgroup_bytes > self.profile.threadgroup_bytes {
            return Err(format!("{} bytes", launch.threadgroup_bytes));
        }
        let kernel = Kernel::find(&launch.kernel.host_name).ok_or("not emulated")?;
        let buffers: Vec<Buffer> = arguments
            .iter()
            .map(|argument| match argument {
                SuiteArgument::In(bytes) | SuiteArgument::Params(bytes) => {
                    Buffer::from_bytes(bytes)
                }
                SuiteArgument::Out(bytes) | SuiteArgument::InOut(bytes) => {
                    Buffer::from_bytes(bytes)
                }
            })
            .collect();
        let bound: Vec<Argument> = (arguments.iter().zip(&buffers))
            .map(|(argument, buffer)| match argument {
                SuiteArgument::Params(bytes) => Argument::Bytes(bytes),
                _ => Argument::Buffer(buffer, 0),
            })
            .collect();
        let sizes = Launch {
            threadgroups: launch.threadgroups,
            threads: [launch.threads, 1, 1],
            threadgroup_bytes: launch.threadgroup_bytes,
            seed: self.seed,
        };
        kernel
            .dispatch(&bound, &launch.constants, &sizes)
            .map_err(|fault| fault.to_string())?;
        for (argument, buffer) in arguments.iter_mut().zip(&buffers) {
            if let SuiteArgument::Out(bytes) | SuiteArgument::InOut(bytes) = argument {
                buffer.read(0, bytes);
            }
        }
        Ok(())
    }
}
