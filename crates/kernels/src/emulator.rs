//! Owns dispatches on the emulated GPU: threadgroups over OS threads, each GPU thread a fiber. Faults come back as errors.

mod memory;
#[cfg(feature = "mutants")]
mod mutant;
mod suite;

pub use memory::Buffer;
#[cfg(feature = "mutants")]
pub use mutant::{choose_mutant, mutants};
pub use suite::SuiteEmulator;

use crate::signature::Signature;
use crate::{Library, parsed, signature, source};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, OnceLock};

/// The runtime's own view of a GPU thread.
#[repr(C)]
struct Thread {
    _opaque: [u8; 0],
}

#[repr(C)]
struct Worker {
    _opaque: [u8; 0],
}

type Entry = unsafe extern "C" fn(*mut Thread);
type Setter = unsafe extern "C" fn(u32);

include!(concat!(env!("OUT_DIR"), "/emulated.rs"));

unsafe extern "C" {
    fn mettle_emu_init();
    fn mettle_emu_worker_new(
        entry: Entry,
        buffers: *const *mut c_void,
        memory_bytes: usize,
        grid: *const u32,
        threads: *const u32,
        seed: u32,
    ) -> *mut Worker;
    fn mettle_emu_worker_run(
        worker: *mut Worker,
        position: *const u32,
        message: *mut u8,
        message_bytes: usize,
    ) -> i32;
    fn mettle_emu_worker_free(worker: *mut Worker);
}

/// Why a dispatch did not finish.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Fault {
    #[error("{kernel}: {message}")]
    Arguments { kernel: String, message: String },
    /// Divergence, deadlock, an access out of bounds or a stack overflow inside the kernel.
    #[error("{kernel}: {message}")]
    Kernel { kernel: String, message: String },
}

/// What is bound at one buffer index.
#[derive(Clone, Copy, Debug)]
pub enum Argument<'a> {
    /// A buffer from this byte on.
    Buffer(&'a Buffer, usize),
    /// Bytes that the kernel only reads, copied.
    Bytes(&'a [u8]),
}

/// What the largest real device has (NVIDIA's H100 and H200). A device profile says how much of it may be used.
const MOST_THREADGROUP_BYTES: usize = 227 << 10;

/// Sizes of one dispatch.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    pub threadgroups: [u32; 3],
    pub threads: [u32; 3],
    pub threadgroup_bytes: usize,
    /// 0: all threads in lockstep. Others hunt races, each in another order.
    pub seed: u32,
}

/// An emulated entry point.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    library: &'static Library,
    signature: &'static Signature,
    entry: Entry,
}

impl Kernel {
    pub fn find(host_name: &str) -> Option<Kernel> {
        static SELF_TESTS: OnceLock<Vec<Library>> = OnceLock::new();
        let self_tests = SELF_TESTS.get_or_init(|| parsed(source::self_tests()));
        let in_self_tests = || {
            self_tests.iter().find_map(|library| {
                let signatures = &library.interface.signatures;
                let found = signatures.iter().find(|s| s.host_name == host_name)?;
                Some((library, found))
            })
        };
        let (library, signature) = signature(host_name).or_else(in_self_tests)?;
        let &(_, entry) = ENTRIES.iter().find(|(name, _)| *name == host_name)?;
        Some(Kernel {
            library,
            signature,
            entry,
        })
    }

    pub fn signature(&self) -> &'static Signature {
        self.signature
    }

    fn bad(&self, message: String) -> Fault {
        Fault::Arguments {
            kernel: self.signature.host_name.clone(),
            message,
        }
    }

    /// One setter for every function constant of the kernel's file: all must be given, as for a pipeline.
    fn setters(&self, constants: &[(&str, u32)]) -> Result<Vec<(Setter, u32)>, Fault> {
        let declared = &self.library.interface.constants;
        if let Some((name, _)) = constants
            .iter()
            .find(|(name, _)| !declared.iter().any(|c| c.name == *name))
        {
            return Err(self.bad(format!("there is no function constant {name}")));
        }
        declared
            .iter()
            .map(|constant| {
                let given = constants.iter().find(|(name, _)| *name == constant.name);
                let &(_, value) = given.ok_or_else(|| {
                    self.bad(format!("function constant {} has no value", constant.name))
                })?;
                let &(_, _, setter) = CONSTANTS
                    .iter()
                    .find(|(file, index, _)| {
                        *file == self.library.source.name && *index == constant.index
                    })
                    .expect("the build makes a setter for every constant");
                Ok((setter, value))
            })
            .collect()
    }

    fn check(&self, arguments: &[Argument], launch: &Launch) -> Result<(), Fault> {
        let buffers = self.signature.buffers();
        if buffers.len() != arguments.len() {
            let message = format!("{} buffers, {} given", buffers.len(), arguments.len());
            return Err(self.bad(message));
        }
        for ((index, parameter), argument) in buffers.iter().zip(arguments) {
            match (argument, &parameter.params) {
                (Argument::Bytes(bytes), Some(layout)) if bytes.len() != layout.bytes => {
                    return Err(self.bad(format!(
                        "the params at buffer({index}) have {} bytes, {} given",
                        layout.bytes,
                        bytes.len()
                    )));
                }
                (Argument::Bytes(_), _) if !parameter.is_const => {
                    return Err(self.bad(format!("buffer({index}) is written, bytes are not")));
                }
                (Argument::Buffer(buffer, offset), _) if *offset > buffer.len() => {
                    return Err(self.bad(format!(
                        "offset {offset} lies behind the {} bytes of buffer({index})",
                        buffer.len()
                    )));
                }
                _ => {}
            }
        }
        let threads: u32 = launch.threads.iter().product();
        if threads == 0 || threads > 1024 || launch.threadgroups.contains(&0) {
            return Err(self.bad(format!(
                "a threadgroup of {threads} threads, or no threadgroup"
            )));
        }
        if launch.threadgroup_bytes > MOST_THREADGROUP_BYTES {
            let message = format!("{} bytes of threadgroup memory", launch.threadgroup_bytes);
            return Err(self.bad(message));
        }
        if self.signature.uses_threadgroup_memory() != (launch.threadgroup_bytes > 0) {
            return Err(self.bad("threadgroup memory given and not used, or the other way".into()));
        }
        Ok(())
    }

    /// Runs the whole grid. After a fault the buffers hold whatever was written before it.
    pub fn dispatch(
        &self,
        arguments: &[Argument],
        constants: &[(&str, u32)],
        launch: &Launch,
    ) -> Result<(), Fault> {
        self.check(arguments, launch)?;
        let setters = self.setters(constants)?;
        let copies: Vec<Buffer> = arguments
            .iter()
            .map(|argument| match argument {
                Argument::Buffer(..) => Buffer::new(0),
                Argument::Bytes(bytes) => Buffer::from_bytes(bytes),
            })
            .collect();
        let pointers: Vec<usize> = arguments
            .iter()
            .zip(&copies)
            .map(|(argument, copy)| match argument {
                Argument::Buffer(buffer, offset) => buffer.address() + offset,
                Argument::Bytes(_) => copy.address(),
            })
            .collect();
        let [x, y, z] = launch.threadgroups.map(u64::from);
        let groups = x * y * z;
        let next = AtomicU64::new(0);
        let first_fault: Mutex<Option<(u64, String)>> = Mutex::new(None);
        let work = || {
            // SAFETY: the setters write thread-local integers.
            setters
                .iter()
                .for_each(|(set, value)| unsafe { set(*value) });
            let worker = GroupRunner::new(self.entry, &pointers, launch);
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= groups {
                    return;
                }
                let position = [index % x, index / x % y, index / x / y].map(|p| p as u32);
                if let Err(message) = worker.run(position) {
                    next.store(groups, Ordering::Relaxed);
                    let mut fault = first_fault.lock().expect("no panic holds it");
                    if fault.as_ref().is_none_or(|(earlier, _)| index < *earlier) {
                        *fault = Some((index, message));
                    }
                    return;
                }
            }
        };
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        std::thread::scope(|scope| {
            for _ in 0..processors.min(groups) {
                scope.spawn(work);
            }
        });
        match first_fault.into_inner().expect("no panic holds it") {
            None => Ok(()),
            Some((_, message)) => Err(Fault::Kernel {
                kernel: self.signature.host_name.clone(),
                message,
            }),
        }
    }
}

/// Fibers and memory of one OS thread.
struct GroupRunner<'a> {
    worker: *mut Worker,
    /// The worker keeps a pointer to it.
    _buffers: Box<[*mut c_void]>,
    _launch: &'a Launch,
}

impl<'a> GroupRunner<'a> {
    fn new(entry: Entry, pointers: &[usize], launch: &'a Launch) -> GroupRunner<'a> {
        static INIT: Once = Once::new();
        // SAFETY: installs signal handlers that hand on what is not theirs.
        INIT.call_once(|| unsafe { mettle_emu_init() });
        let buffers: Box<[*mut c_void]> = pointers.iter().map(|&p| p as *mut c_void).collect();
        // SAFETY: grid and threads are three numbers each; the buffers outlive the worker, which lives in the same struct.
        let worker = unsafe {
            mettle_emu_worker_new(
                entry,
                buffers.as_ptr(),
                launch.threadgroup_bytes,
                launch.threadgroups.as_ptr(),
                launch.threads.as_ptr(),
                launch.seed,
            )
        };
        GroupRunner {
            worker,
            _buffers: buffers,
            _launch: launch,
        }
    }

    fn run(&self, position: [u32; 3]) -> Result<(), String> {
        let mut message = [0_u8; 512];
        // SAFETY: the worker is alive and used by this OS thread alone; what the kernel touches outside of its mapped
        // buffers raises a signal that becomes the message.
        let failed = unsafe {
            mettle_emu_worker_run(
                self.worker,
                position.as_ptr(),
                message.as_mut_ptr(),
                message.len(),
            )
        };
        if failed == 0 {
            return Ok(());
        }
        let end = message.iter().position(|&b| b == 0).unwrap_or(0);
        Err(String::from_utf8_lossy(&message[..end]).into_owned())
    }
}

impl Drop for GroupRunner<'_> {
    fn drop(&mut self) {
        // SAFETY: made by mettle_emu_worker_new, freed once.
        unsafe { mettle_emu_worker_free(self.worker) }
    }
}
