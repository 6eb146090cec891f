//! Owns the KV pool's memory and the layout inside a page. Knows no sequence: the step's block tables say which page.
//!
//! A page holds, for every layer of its group, the keys and then the values of its tokens, head by head, in blocks of
//! 32 tokens: keys as `[width][32]` and values as `[32][width]`, so that attention reads both along full registers
//! without adding across lanes.

use crate::isa::asks_far;
use crate::memory::AlignedBytes;
use half::f16;
use half::slice::HalfFloatSliceExt;
use mettle_plan::{
    BackendError, BlockId, KvElement, KvGroup, KvLayer, PageLayout, Plane, Retention,
};

/// Tokens in a block of keys or values: the step in which attention walks the context.
pub const TOKENS: usize = 32;

pub struct KvPool {
    data: AlignedBytes,
    page_bytes: usize,
    pages: usize,
    groups: Vec<GroupLayout>,
    /// Whether blocks are asked for into the first-level cache.
    pub asks_near: bool,
}

struct GroupLayout {
    tokens_per_page: usize,
    layer_bytes: usize,
    keys: PlaneLayout,
    values: PlaneLayout,
}

struct PlaneLayout {
    plane: Plane,
    /// From the start of the layer.
    offset: usize,
    head_bytes: usize,
}

/// Which vectors of a page are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadOf {
    pub kv: KvLayer,
    pub head: usize,
}

impl KvPool {
    pub fn new(
        groups: &[KvGroup],
        layout: &PageLayout,
        pages: usize,
    ) -> Result<KvPool, BackendError> {
        let unsupported = |what: String| BackendError::Unsupported {
            backend: "cpu",
            what,
        };
        assert_eq!(
            groups.len(),
            layout.groups.len(),
            "the layout is the plan's"
        );
        let groups = groups
            .iter()
            .zip(&layout.groups)
            .map(|(group, pages)| {
                if group.retention == Retention::State {
                    return Err(unsupported(format!(
                        "cache that is kept {:?} (group {})",
                        group.retention, group.name
                    )));
                }
                let [keys, values] = group.planes[..] else {
                    return Err(unsupported(format!(
                        "cache for {} planes a layer (group {})",
                        group.planes.len(),
                        group.name
                    )));
                };
                if keys.element != values.element {
                    return Err(unsupported("keys and values of different types".into()));
                }
                let tokens = pages.tokens_per_page;
                if tokens == 0 || !tokens.is_multiple_of(TOKENS) {
                    return Err(unsupported(format!(
                        "pages of {tokens} tokens (it needs a multiple of {TOKENS})"
                    )));
                }
                let plane = |plane: Plane, offset| PlaneLayout {
                    plane,
                    offset,
                    head_bytes: tokens * plane.width * plane.element.bytes(),
                };
                assert!(
                    tokens * group.entry_bytes() <= layout.page_bytes,
                    "a page holds its tokens"
                );
                Ok(GroupLayout {
                    tokens_per_page: tokens,
                    layer_bytes: tokens * (keys.bytes() + values.bytes()),
                    keys: plane(keys, 0),
                    values: plane(values, tokens * keys.bytes()),
                })
            })
            .collect::<Result<_, _>>()?;
        let bytes = layout
            .page_bytes
            .checked_mul(pages)
            .ok_or(BackendError::OutOfMemory {
                what: "the KV cache",
                bytes: usize::MAX,
            })?;
        Ok(KvPool {
            data: AlignedBytes::zeroed("the KV cache", bytes)?,
            page_bytes: layout.page_bytes,
            pages,
            groups,
            asks_near: asks_far(),
        })
    }

    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    pub fn pages(&self) -> usize {
        self.pages
    }

    pub fn tokens_per_page(&self, group: usize) -> usize {
        self.groups[group].tokens_per_page
    }

    pub fn copy_page(&mut self, from: BlockId, to: BlockId) {
        let (from, to) = (from.0 as usize, to.0 as usize);
        assert!(from < self.pages && to < self.pages, "no such page");
        let start = from * self.page_bytes;
        let page = start..start + self.page_bytes;
        self.data
            .as_mut_slice()
            .copy_within(page, to * self.page_bytes);
    }

    /// Writes one token's key and value of one head.
    ///
    /// # Safety
    /// The page exists, and no other thread touches this token's place meanwhile.
    pub unsafe fn write(
        &self,
        of: HeadOf,
        page: BlockId,
        token: usize,
        key: &[f32],
        value: &[f32],
    ) {
        let group = &self.groups[of.kv.group];
        let (block, lane) = (token / TOKENS, token % TOKENS);
        let key_block = self.block(group, &group.keys, of, page, block);
        let value_block = self.block(group, &group.values, of, page, block);
        let width = group.values.plane.width;
        assert!(key.len() == group.keys.plane.width && value.len() == width);
        // SAFETY: the caller's promise; `block` is inside the pool and holds width x 32 elements.
        unsafe {
            match group.keys.plane.element {
                KvElement::F16 => {
                    let keys = key_block.cast::<f16>();
                    // Many at once: one by one, each is a call that asks what the processor has.
                    let mut halves = [f16::ZERO; 64];
                    for (part, some) in key.chunks(halves.len()).enumerate() {
                        halves[..some.len()].convert_from_f32_slice(some);
                        for (d, half) in halves[..some.len()].iter().enumerate() {
                            *keys.add((64 * part + d) * TOKENS + lane) = *half;
                        }
                    }
                    let values = std::slice::from_raw_parts_mut(
                        value_block.cast::<f16>().add(lane * width),
                        width,
                    );
                    values.convert_from_f32_slice(value);
                }
                KvElement::F32 => {
                    let keys = key_block.cast::<f32>();
                    for (d, k) in key.iter().enumerate() {
                        *keys.add(d * TOKENS + lane) = *k;
                    }
                    let values = std::slice::from_raw_parts_mut(
                        value_block.cast::<f32>().add(lane * width),
                        width,
                    );
                    values.copy_from_slice(value);
                }
            }
        }
    }

    /// How a group's keys and values are stored.
    pub fn element(&self, group: usize) -> KvElement {
        self.groups[group].keys.plane.element
    }

    /// Where the keys `[width][32]` and the values `[32][width]` of block `block` of a page are.
    pub fn block_of(&self, of: HeadOf, page: BlockId, block: usize) -> (*const u8, *const u8) {
        let group = &self.groups[of.kv.group];
        let at = |plane| self.block(group, plane, of, page, block).cast_const();
        (at(&group.keys), at(&group.values))
    }

    fn block(
        &self,
        group: &GroupLayout,
        plane: &PlaneLayout,
        of: HeadOf,
        page: BlockId,
        block: usize,
    ) -> *mut u8 {
        assert!((page.0 as usize) < self.pages && of.head < plane.plane.heads);
        assert!(block < group.tokens_per_page / TOKENS);
        let block_bytes = TOKENS * plane.plane.width * plane.plane.element.bytes();
        let offset = page.0 as usize * self.page_bytes
            + of.kv.layer * group.layer_bytes
            + plane.offset
            + of.head * plane.head_bytes
            + block * block_bytes;
        assert!(offset + block_bytes <= self.data.len());
        // SAFETY: asserted to be inside the pool.
        unsafe { self.data.base().add(offset) }
    }
}
