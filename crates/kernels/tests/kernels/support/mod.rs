//! Owns what kernel tests share: numbers in f16 and bf16, dispatches by name, and the comparison with an f64 reference.

pub mod cache;

use crate::sanitizer::{self, Job};
use half::{bf16, f16};
use mettle_kernels::Scalar;
use mettle_kernels::emulator::{Argument, Buffer, Fault, Kernel, Launch};

/// Lockstep, and four orders that hunt races.
pub const SEEDS: [u32; 5] = [0, 1, 2, 3, 4];

/// Not a seed of the emulator: the dispatch is replayed under AddressSanitizer.
pub const SANITIZED: u32 = 1000;

/// How a kernel stores numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Storage {
    F16,
    Bf16,
    F32,
}

pub const HALVES: [Storage; 2] = [Storage::F16, Storage::Bf16];

impl Storage {
    pub fn suffix(self) -> &'static str {
        match self {
            Storage::F16 => "f16",
            Storage::Bf16 => "bf16",
            Storage::F32 => "f32",
        }
    }

    pub fn bytes(self) -> usize {
        if self == Storage::F32 { 4 } else { 2 }
    }

    /// Half a unit in the last place, relative: what one rounding costs at the most.
    pub fn rounding(self) -> f64 {
        match self {
            Storage::F16 => 2f64.powi(-11),
            Storage::Bf16 => 2f64.powi(-8),
            Storage::F32 => 2f64.powi(-24),
        }
    }

    pub fn round(self, value: f32) -> f32 {
        match self {
            Storage::F16 => f16::from_f32(value).to_f32(),
            Storage::Bf16 => bf16::from_f32(value).to_f32(),
            Storage::F32 => value,
        }
    }

    pub fn buffer(self, values: &[f32]) -> Buffer {
        let bytes: Vec<u8> = match self {
            Storage::F16 => (values.iter())
                .flat_map(|v| f16::from_f32(*v).to_le_bytes())
                .collect(),
            Storage::Bf16 => (values.iter())
                .flat_map(|v| bf16::from_f32(*v).to_le_bytes())
                .collect(),
            Storage::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        };
        Buffer::from_bytes(&bytes)
    }

    /// NaN everywhere.
    pub fn poisoned(self, count: usize) -> Buffer {
        Buffer::new(count * self.bytes())
    }

    pub fn read(self, buffer: &Buffer) -> Vec<f32> {
        let bytes = buffer.to_vec();
        match self {
            Storage::F32 => (bytes.chunks_exact(4))
                .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
                .collect(),
            _ => (bytes.chunks_exact(2))
                .map(|b| u16::from_le_bytes(b.try_into().unwrap()))
                .map(|bits| match self {
                    Storage::F16 => f16::from_bits(bits).to_f32(),
                    _ => bf16::from_bits(bits).to_f32(),
                })
                .collect(),
        }
    }
}

pub fn words(values: &[u32]) -> Buffer {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Buffer::from_bytes(&bytes)
}

pub fn read_words(buffer: &Buffer) -> Vec<u32> {
    let bytes = buffer.to_vec();
    (bytes.chunks_exact(4))
        .map(|b| u32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

/// Numbers in [-1, 1), the same for the same seed, as `storage` holds them.
pub fn random(storage: Storage, seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            storage.round((state >> 40) as f32 / (1 << 23) as f32 - 1.0)
        })
        .collect()
}

pub fn u(value: usize) -> Scalar {
    Scalar::U32(value as u32)
}

pub fn f(value: f32) -> Scalar {
    Scalar::F32(value)
}

pub fn l(value: usize) -> Scalar {
    Scalar::U64(value as u64)
}

/// One dispatch by name: buffers in the order of their index, then the params by field.
pub struct Dispatch<'a> {
    pub kernel: String,
    pub buffers: &'a [&'a Buffer],
    pub params: &'a [(&'a str, Scalar)],
    pub constants: &'a [(&'a str, u32)],
    pub groups: [usize; 3],
    pub threads: usize,
    pub threadgroup_bytes: usize,
}

impl Dispatch<'_> {
    pub fn try_run(&self, seed: u32) -> Result<(), Fault> {
        let kernel = Kernel::find(&self.kernel).unwrap_or_else(|| panic!("no {}", self.kernel));
        let (index, layout) = kernel.signature().params().expect("a params struct");
        assert_eq!(index as usize, self.buffers.len(), "params come last");
        let params = layout.pack(self.params).unwrap();
        let mut arguments: Vec<Argument> = self
            .buffers
            .iter()
            .map(|b| Argument::Buffer(b, 0))
            .collect();
        arguments.push(Argument::Bytes(&params));
        let launch = Launch {
            threadgroups: self.groups.map(|g| g as u32),
            threads: [self.threads as u32, 1, 1],
            threadgroup_bytes: self.threadgroup_bytes,
            seed,
        };
        if seed == SANITIZED {
            self.replay(&params);
            return Ok(());
        }
        kernel.dispatch(&arguments, self.constants, &launch)
    }

    /// In a process of its own, under AddressSanitizer.
    fn replay(&self, params: &[u8]) {
        let (library, _) = mettle_kernels::signature(&self.kernel).expect("a kernel");
        let constants: Vec<(u32, u32)> = (library.interface.constants.iter())
            .map(|constant| {
                let mut given = self.constants.iter();
                let (_, value) = given.find(|(name, _)| *name == constant.name).unwrap();
                (constant.index, *value)
            })
            .collect();
        let mut buffers: Vec<Vec<u8>> = self.buffers.iter().map(|b| b.to_vec()).collect();
        buffers.push(params.to_vec());
        let job = Job {
            kernel: &self.kernel,
            file: library.source.name,
            groups: self.groups.map(|g| g as u32),
            threads: [self.threads as u32, 1, 1],
            threadgroup_bytes: self.threadgroup_bytes as u32,
            constants: &constants,
        };
        let after = sanitizer::replay(&job, &buffers).unwrap_or_else(|e| panic!("{e}"));
        for (buffer, bytes) in self.buffers.iter().zip(after) {
            buffer.write(0, &bytes);
        }
    }

    pub fn run(&self, seed: u32) {
        if let Err(fault) = self.try_run(seed) {
            panic!("seed {seed}: {fault}");
        }
    }
}

/// Fails at the first value farther from the reference than `absolute + relative * |reference|`, NaN included.
#[track_caller]
pub fn assert_close(what: &str, got: &[f32], wanted: &[f64], absolute: f64, relative: f64) {
    assert_eq!(got.len(), wanted.len(), "{what}: lengths");
    for (at, (&got, &wanted)) in got.iter().zip(wanted).enumerate() {
        let error = (f64::from(got) - wanted).abs();
        let limit = absolute + relative * wanted.abs();
        assert!(
            error <= limit,
            "{what}: [{at}] is {got}, the reference {wanted}: {error:e} apart, {limit:e} allowed"
        );
    }
}
