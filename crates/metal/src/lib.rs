//! Owns Apple GPUs behind `trait Gpu`.
