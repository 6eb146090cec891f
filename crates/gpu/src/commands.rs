//! Owns a step as a list of commands: made on the host without a device, played on any.

use crate::params::{Packed, Params};
use crate::place::Place;
use mettle_kernels::select::Launch;
use mettle_kernels::{Binding, Bound, check_bindings};
use std::collections::HashSet;

/// No kernel has more buffers, its params included.
pub const MOST_ARGUMENTS: usize = 12;

/// A buffer bound under the kernel's own name for it.
#[derive(Clone, Copy, Debug)]
pub struct Bind {
    pub name: &'static str,
    pub place: Place,
    pub writes: bool,
}

pub const fn reads(name: &'static str, place: Place) -> Bind {
    Bind {
        name,
        place,
        writes: false,
    }
}

pub const fn writes(name: &'static str, place: Place) -> Bind {
    Bind {
        name,
        place,
        writes: true,
    }
}

#[derive(Clone, Copy, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all are dispatches, and recording does not allocate"
)]
pub enum Command {
    /// Buffers in the order of their indices; the params come behind them, as they do in every kernel.
    Dispatch {
        /// Its number among the executable's pipelines; known once the list is complete.
        pipeline: usize,
        launch: Launch,
        places: [Place; MOST_ARGUMENTS],
        count: usize,
        params: Packed,
    },
    Copy {
        from: Place,
        to: Place,
        bytes: usize,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    /// Everything before must be finished.
    pub barrier: bool,
    /// The op's place in the plan.
    pub node: usize,
    pub command: Command,
}

/// One step's commands; the memory is kept from step to step.
#[derive(Default)]
pub struct Commands {
    list: Vec<Recorded>,
    barrier: bool,
    node: usize,
    /// Kernels whose bindings were checked.
    checked: HashSet<*const u8>,
}

// SAFETY: the pointers are names of kernels in static memory, compared and never followed.
unsafe impl Send for Commands {}

impl Commands {
    pub fn clear(&mut self) {
        self.list.clear();
        self.barrier = false;
    }

    pub fn list(&self) -> &[Recorded] {
        &self.list
    }

    /// Gives every dispatch its pipeline.
    pub fn resolve<E>(
        &mut self,
        mut pipeline_of: impl FnMut(&Launch) -> Result<usize, E>,
    ) -> Result<(), E> {
        for recorded in &mut self.list {
            if let Command::Dispatch {
                pipeline, launch, ..
            } = &mut recorded.command
            {
                *pipeline = pipeline_of(launch)?;
            }
        }
        Ok(())
    }

    /// Commands from here on belong to this op.
    pub fn start_node(&mut self, node: usize) {
        self.node = node;
    }

    pub fn barrier(&mut self) {
        self.barrier = true;
    }

    fn push(&mut self, command: Command) {
        self.list.push(Recorded {
            barrier: std::mem::take(&mut self.barrier),
            node: self.node,
            command,
        });
    }

    pub fn copy(&mut self, from: Place, to: Place, bytes: usize) {
        self.push(Command::Copy { from, to, bytes });
    }

    /// A kernel's bindings are checked by name, type and access the first time it is recorded: each kernel is bound in
    /// one place of this crate. A mismatch is a bug.
    pub fn dispatch<P: Params>(&mut self, launch: Launch, binds: &[Bind], params: &P) {
        let packed = params.pack();
        let kernel = std::ptr::from_ref(launch.kernel).cast::<u8>();
        if !self.checked.contains(&kernel) {
            if let Some(fault) = binding_fault::<P>(&launch, binds, &packed) {
                panic!("a kernel is bound wrongly: {fault}");
            }
            self.checked.insert(kernel);
        }
        let mut places = [binds[0].place; MOST_ARGUMENTS];
        for (place, bind) in places.iter_mut().zip(binds) {
            *place = bind.place;
        }
        self.push(Command::Dispatch {
            pipeline: usize::MAX,
            launch,
            places,
            count: binds.len(),
            params: packed,
        });
    }
}

fn binding_fault<P: Params>(launch: &Launch, binds: &[Bind], params: &Packed) -> Option<String> {
    let mut bindings: Vec<Binding> = binds
        .iter()
        .enumerate()
        .map(|(index, bind)| Binding {
            index: index as u32,
            bound: Bound::Buffer {
                name: bind.name,
                element: bind.place.element,
                writes: bind.writes,
            },
        })
        .collect();
    bindings.push(Binding {
        index: binds.len() as u32,
        bound: Bound::Params {
            bytes: params.bytes().len(),
        },
    });
    if launch.threadgroup_bytes > 0 {
        bindings.push(Binding {
            index: 0,
            bound: Bound::Threadgroup,
        });
    }
    let fault = check_bindings(launch.kernel, &bindings).err();
    fault
        .map(|fault| fault.to_string())
        .or_else(|| P::mismatch(launch.kernel))
}
