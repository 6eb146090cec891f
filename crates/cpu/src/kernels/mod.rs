//! The arithmetic of the CPU backend. What each kernel computes, to the last bit, is fixed by its scalar form:
//!
//! - A product with quantized weights rounds each activation row to 15 bits in blocks of 32 ([`activations`]), adds
//!   up each block in exact integers, and adds the scaled blocks to one f32 sum per output, first block to last.
//! - A product with dense weights is one f32 sum per output, `sum = fma(w, x, sum)`, first column to last.
//! - Attention walks the context in blocks of 32 and partitions of 256 tokens by absolute position ([`attention`]).
//!
//! None of it depends on how many rows are computed together, on threads, or on the instruction set: that is why the
//! same tokens come out alone, batched, in chunks, or after a prefix hit.

#![allow(
    clippy::needless_range_loop,
    reason = "iterator adapters are compiled without the kernels' instructions and may stay calls"
)]

pub mod activations;
pub mod attention;
mod eights;
pub mod elementwise;
pub mod exp;
pub mod gated;
pub mod layer_norm;
pub mod linear;
pub mod nonlinear;
pub mod norm;
pub mod order;
pub mod rope;
pub mod route;
pub mod shares;
pub mod tanh;
