//! Owns the params structs of the kernels as the host fills them, and their check against the kernels' own declarations.

use mettle_kernels::{ParamsLayout, Signature};

/// No params struct is larger.
const MOST_BYTES: usize = 96;

/// A params struct's bytes as Metal lays them out.
#[derive(Clone, Copy, Debug)]
pub struct Packed {
    bytes: [u8; MOST_BYTES],
    len: usize,
}

impl Packed {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A number that a params struct may hold.
trait Number: Copy {
    const TYPE: &'static str;
    const BYTES: usize;
    fn put(self, out: &mut [u8]);
}

macro_rules! numbers {
    ($($number:ident is $name:literal),*) => {$(
        impl Number for $number {
            const TYPE: &'static str = $name;
            const BYTES: usize = size_of::<$number>();
            fn put(self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

numbers!(u32 is "uint", f32 is "float", u64 is "ulong");

pub trait Params {
    /// Types and names, in order.
    const FIELDS: &'static [(&'static str, &'static str)];

    fn pack(&self) -> Packed;

    /// What the kernel declares and this struct does not have, or the other way.
    fn mismatch(signature: &Signature) -> Option<String> {
        let fields: Vec<(String, String)> = Self::FIELDS
            .iter()
            .map(|(type_name, name)| (type_name.to_string(), name.to_string()))
            .collect();
        let Some((_, declared)) = signature.params() else {
            return Some(format!("{} has no params", signature.host_name));
        };
        let ours = ParamsLayout::new(&declared.name, &fields).expect("numbers are known types");
        (ours != *declared).then(|| {
            format!(
                "{} declares {declared:?}, the host has {ours:?}",
                signature.host_name
            )
        })
    }
}

macro_rules! params {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $number:ident),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name { $(pub $field: $number),* }

        impl Params for $name {
            const FIELDS: &'static [(&'static str, &'static str)] =
                &[$((<$number as Number>::TYPE, stringify!($field))),*];

            fn pack(&self) -> Packed {
                let mut bytes = [0; MOST_BYTES];
                let mut len = 0_usize;
                let mut alignment = 1;
                $(
                    let size = <$number as Number>::BYTES;
                    len = len.next_multiple_of(size);
                    self.$field.put(&mut bytes[len..len + size]);
                    len += size;
                    alignment = alignment.max(size);
                )*
                Packed { bytes, len: len.next_multiple_of(alignment) }
            }
        }
    )*};
}

params! {
    RmsNormParams { width: u32, x_stride: u32, add_stride: u32, out_stride: u32, eps: f32, weight_offset: f32 }
    HeadNormParams { head_dim: u32, x_stride: u32, eps: f32, weight_offset: f32 }
    SiluMulParams { width: u32, gate_stride: u32, up_stride: u32, out_stride: u32 }
    AddParams { width: u32, a_stride: u32, b_stride: u32, out_stride: u32 }
    EmbedParams { width: u32, vocabulary: u32, out_stride: u32, scale: f32 }
    GatherParams { width: u32, x_stride: u32, out_stride: u32 }
    TopKParams { width: u32, stride: u32, k: u32, part_width: u32, parts: u32 }
    LinearParams { m: u32, n: u32, k: u32, x_stride: u32, residual_stride: u32, out_stride: u32, part_k: u32 }
    LinearReduceParams { m: u32, n: u32, parts: u32, residual_stride: u32, out_stride: u32 }
    RopeParams {
        page_stride: u64, layer_offset: u64, heads: u32, kv_heads: u32, head_dim: u32, rotate_from: u32, pairs: u32,
        q_stride: u32, k_stride: u32, v_stride: u32, tokens_per_page: u32,
    }
    DecodeParams {
        page_stride: u64, layer_offset: u64, heads: u32, kv_heads: u32, head_dim: u32, tokens_per_page: u32,
        q_stride: u32, out_stride: u32, part_tokens: u32, parts: u32, window: u32, scale: f32,
    }
    PrefillParams {
        page_stride: u64, layer_offset: u64, heads: u32, kv_heads: u32, head_dim: u32, tokens_per_page: u32,
        q_stride: u32, out_stride: u32, window: u32, scale: f32,
    }
}
