//! Owns Apple GPUs behind `trait Gpu`. On other systems the same names exist, and opening the device says why there is none.

#[cfg(any(target_os = "macos", test))]
mod chip;

#[cfg(target_os = "macos")]
mod commands;
#[cfg(target_os = "macos")]
mod device;
#[cfg(target_os = "macos")]
mod library;
#[cfg(target_os = "macos")]
mod memory;
#[cfg(target_os = "macos")]
mod registry;
#[cfg(target_os = "macos")]
mod work;
#[cfg(target_os = "macos")]
pub use device::MetalGpu;

#[cfg(not(target_os = "macos"))]
mod absent;
#[cfg(not(target_os = "macos"))]
pub use absent::MetalGpu;

/// As `--device` spells it.
const NAME: &str = "metal";
