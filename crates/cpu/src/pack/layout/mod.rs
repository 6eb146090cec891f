//! One file per element type: how a panel of it is laid out, packed and read back.

pub mod dense;
pub mod nibbles;
pub mod q4_0;
pub mod q4_1;
pub mod q4_k;
pub mod q6_k;
pub mod q8_0;

pub use dense::value as dense_value;
