//! Owns the kernel tests: every kernel on the emulator, against an f64 reference.
#![cfg(feature = "emulator")]

mod attention;
mod emulator;
mod linear;
mod rows;
mod sanitizer;
mod support;
mod top_k;
