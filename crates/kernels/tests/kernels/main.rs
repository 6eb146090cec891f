//! Owns the tests of the kernels on the emulator, and of the emulator itself.
#![cfg(feature = "emulator")]

mod emulator;
mod sanitizer;
mod suite;
