//! Owns what kernels must know of a step besides the plan: ids, rows, slots, contexts, block tables, rotations. Worked out
//! once a step on the host, and uploaded in one piece.

use crate::place::{BufferIndex, Place};
use mettle_plan::{InputToken, PageLayout, Plan, StepInput};

/// A sequence of at most so many tokens is computed query by query; a longer one in tiles.
pub const MOST_DECODE_QUERIES: u32 = 8;

/// Sections start at multiples of so many bytes.
const ALIGNMENT: usize = 64;

pub struct Metadata {
    buffer: BufferIndex,
    bytes: Vec<u8>,
    pub token_ids: Place,
    pub logit_rows: Place,
    /// Cosine and sine of each token and pair, by rope.
    pub turns: Vec<Place>,
    pub groups: Vec<GroupMetadata>,
    pub decode: Decode,
    pub prefill: Prefill,
}

#[derive(Clone, Copy)]
pub struct GroupMetadata {
    /// Where each token's key and value go: page times tokens a page, plus the place in it.
    pub slots: Place,
    pub blocks: Place,
    /// Where each decode query's, and each sequence's, page 0 would be in `blocks`.
    pub query_tables: Place,
    pub sequence_tables: Place,
}

/// Queries computed one by one.
#[derive(Clone, Copy)]
pub struct Decode {
    pub queries: u32,
    pub rows: Place,
    pub contexts: Place,
    pub longest_context: u32,
}

/// Tiles of neighbouring queries.
#[derive(Clone, Copy)]
pub struct Prefill {
    pub tiles: u32,
    pub tile_list: Place,
    pub query_start: Place,
    pub contexts: Place,
}

impl Metadata {
    pub fn new(buffer: BufferIndex) -> Metadata {
        let nowhere = Place::new(buffer, 0, "uint");
        Metadata {
            buffer,
            bytes: Vec::new(),
            token_ids: nowhere,
            logit_rows: nowhere,
            turns: Vec::new(),
            groups: Vec::new(),
            decode: Decode {
                queries: 0,
                rows: nowhere,
                contexts: nowhere,
                longest_context: 0,
            },
            prefill: Prefill {
                tiles: 0,
                tile_list: nowhere,
                query_start: nowhere,
                contexts: nowhere,
            },
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn section(
        &mut self,
        element: &'static str,
        values: impl IntoIterator<Item = [u8; 4]>,
    ) -> Place {
        let start = self.bytes.len().next_multiple_of(ALIGNMENT);
        self.bytes.resize(start, 0);
        for value in values {
            self.bytes.extend_from_slice(&value);
        }
        // A section that nothing is in still needs a place.
        if self.bytes.len() == start {
            self.bytes.extend_from_slice(&[0; 8]);
        }
        Place::new(self.buffer, start, element)
    }

    /// For a step that was checked. A tile has `tile` queries.
    pub fn build(&mut self, plan: &Plan, layout: &PageLayout, step: &StepInput, tile: u32) {
        self.bytes.clear();
        self.turns.clear();
        self.groups.clear();
        let ids = step.tokens.iter().map(|token| match token {
            InputToken::Host(id) => id.to_le_bytes(),
            InputToken::SampledBy(..) => unreachable!("refused by submit"),
        });
        self.token_ids = self.section("uint", ids);
        let rows = step.logit_rows.iter().map(|row| row.0.to_le_bytes());
        self.logit_rows = self.section("uint", rows);
        for rope in &plan.ropes {
            let turns = step.positions.iter().flat_map(|position| {
                let turn = |frequency: &f32| {
                    let (sin, cos) = ((*position as f32 * frequency) as f64).sin_cos();
                    let (cos, sin) = (cos as f32 * rope.magnitude, sin as f32 * rope.magnitude);
                    [cos.to_le_bytes(), sin.to_le_bytes()]
                };
                rope.inverse_frequencies.iter().flat_map(turn)
            });
            let place = self.section("float2", turns);
            self.turns.push(place);
        }
        self.queries(step, tile);
        for group in 0..step.tables.len() {
            self.group(step, group, layout.groups[group].tokens_per_page as u32);
        }
    }

    fn queries(&mut self, step: &StepInput, tile: u32) {
        let is_decode = |s: &usize| step.query_len(*s).0 <= MOST_DECODE_QUERIES;
        let sequences = 0..step.sequences();
        let decode = || sequences.clone().filter(is_decode);
        let rows = || decode().flat_map(|s| step.query_start[s]..step.query_start[s + 1]);
        let context = |row: u32| step.positions[row as usize] + 1;
        self.decode = Decode {
            queries: rows().count() as u32,
            rows: self.section("uint", rows().map(u32::to_le_bytes)),
            contexts: self.section("uint", rows().map(|row| context(row).to_le_bytes())),
            longest_context: rows().map(context).max().unwrap_or(0),
        };
        let tiles = || {
            let long = sequences.clone().filter(|s| !is_decode(s));
            long.flat_map(|s| {
                let firsts = (0..step.query_len(s).0).step_by(tile as usize);
                firsts.map(move |first| [s as u32, first])
            })
        };
        let contexts = step.context_lens.iter().map(|c| c.0.to_le_bytes());
        let starts = step.query_start.iter().map(|start| start.to_le_bytes());
        self.prefill = Prefill {
            tiles: tiles().count() as u32,
            tile_list: self.section("uint2", tiles().flatten().map(u32::to_le_bytes)),
            query_start: self.section("uint", starts),
            contexts: self.section("uint", contexts),
        };
    }

    fn group(&mut self, step: &StepInput, group: usize, tokens_per_page: u32) {
        let table = &step.tables[group];
        let sequences = 0..step.sequences();
        let slots = sequences.clone().flat_map(|s| {
            let blocks = table.blocks_of(s);
            let first_page = table.first_page[s];
            (step.query_start[s]..step.query_start[s + 1]).map(move |row| {
                let position = step.positions[row as usize];
                let block = blocks[(position / tokens_per_page - first_page) as usize];
                (block.0 * tokens_per_page + position % tokens_per_page).to_le_bytes()
            })
        });
        let slots = self.section("int", slots);
        let blocks = self.section("uint", table.blocks.iter().map(|b| b.0.to_le_bytes()));
        let start = |s: usize| (table.starts[s] as i32 - table.first_page[s] as i32).to_le_bytes();
        let queries = sequences
            .clone()
            .filter(|s| step.query_len(*s).0 <= MOST_DECODE_QUERIES)
            .flat_map(|s| (0..step.query_len(s).0).map(move |_| start(s)));
        let query_tables = self.section("int", queries);
        let sequence_tables = self.section("int", sequences.map(start));
        self.groups.push(GroupMetadata {
            slots,
            blocks,
            query_tables,
            sequence_tables,
        });
    }
}
