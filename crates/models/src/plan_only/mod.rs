//! Architectures that have a plan and a cost but no kernels yet: they prove that the op set is wide enough.
//! Their configs are read as strictly as the others'; FP8 counts as BF16.

pub mod deepseek_v3;
mod feed_forward;
pub mod gemma3;
pub mod qwen3_next;

use mettle_plan::KvElement;
use mettle_tensor::DType;

/// What every plan is declared with.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'a> {
    pub name: &'a str,
    pub weight_type: DType,
    pub kv_element: KvElement,
}
