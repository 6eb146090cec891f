//! Owns where the keys and values that a step's queries see lie: in the sequences' pages, or in the step's own rows.

use crate::kernels::attention::QueryTile;
use crate::kv::{HeadOf, KvPool};
use crate::row_blocks::RowBlocks;
use crate::step::Tile;
use mettle_plan::{GroupTables, KvLayer};

#[derive(Clone, Copy)]
pub enum Context<'a> {
    /// Causal by position.
    Paged {
        pool: &'a KvPool,
        kv: KvLayer,
        table: &'a GroupTables,
    },
    /// All that an encoder cached, for every token of the decoder.
    Encoded {
        pool: &'a KvPool,
        kv: KvLayer,
        table: &'a GroupTables,
    },
    /// All tokens of a sequence, for each of them.
    Rows(&'a RowBlocks),
}

impl<'a> Context<'a> {
    pub fn pool(&self) -> &'a KvPool {
        match *self {
            Context::Paged { pool, .. } | Context::Encoded { pool, .. } => pool,
            Context::Rows(blocks) => blocks.pool(),
        }
    }

    pub fn head(&self, head: usize) -> HeadOf {
        match *self {
            Context::Paged { kv, .. } | Context::Encoded { kv, .. } => HeadOf { kv, head },
            Context::Rows(blocks) => blocks.head(head),
        }
    }

    pub fn is_causal(&self) -> bool {
        matches!(self, Context::Paged { .. })
    }

    pub fn tile(&self, tile: Tile) -> QueryTile<'a> {
        let (context, blocks, first_page) = match *self {
            Context::Paged { table, .. } => (
                tile.position + tile.tokens,
                table.blocks_of(tile.sequence),
                table.first_page[tile.sequence] as usize,
            ),
            Context::Encoded { table, .. } => (
                table.lens[tile.sequence].0 as usize,
                table.blocks_of(tile.sequence),
                0,
            ),
            Context::Rows(blocks) => (
                blocks.tokens_of(tile.sequence),
                blocks.pages_of(tile.sequence),
                0,
            ),
        };
        QueryTile {
            row: tile.row,
            position: tile.position,
            tokens: tile.tokens,
            context,
            blocks,
            first_page,
        }
    }
}
