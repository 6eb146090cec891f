//! Owns the proof that pages are never lost, never written while shared and always hold what their readers expect:
//! random operations against a model of the pages' content.

use super::*;
use proptest::prelude::*;

const MAX_CHUNK: usize = 13;

fn tokens_group(retention: Retention, tokens_per_page: usize) -> GroupPages {
    GroupPages {
        retention,
        tokens_per_page,
        pages_per_state: 0,
    }
}

fn layout(groups: &[GroupPages]) -> PageLayout {
    PageLayout {
        page_bytes: 1,
        groups: groups.to_vec(),
    }
}

fn layouts() -> Vec<PageLayout> {
    use Retention::{Encoder, Full, State, Window};
    let state = GroupPages {
        retention: State,
        tokens_per_page: 0,
        pages_per_state: 2,
    };
    vec![
        layout(&[tokens_group(Full, 4)]),
        layout(&[tokens_group(Window(3), 4)]),
        layout(&[tokens_group(Full, 4), tokens_group(Window(7), 8)]),
        layout(&[
            tokens_group(Window(1), 2),
            tokens_group(Window(9), 4),
            tokens_group(Full, 8),
        ]),
        layout(&[tokens_group(Full, 4), state, tokens_group(Window(6), 2)]),
        layout(&[state]),
        layout(&[tokens_group(Full, 4), tokens_group(Encoder, 8)]),
    ]
}

#[derive(Clone, Debug)]
enum Operation {
    Begin {
        prompt: Vec<u32>,
        salted: bool,
        read_index: bool,
    },
    /// Computes up to `count` more tokens and commits all but `taken_back` of them.
    Step {
        which: usize,
        count: usize,
        taken_back: usize,
    },
    Fork(usize),
    Free(usize),
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    // Prompts of few distinct tokens in runs: many share prefixes of several pages.
    let run = (0..2u32, 1..12usize).prop_map(|(token, length)| vec![token; length]);
    let prompt = proptest::collection::vec(run, 1..4).prop_map(|runs| runs.concat());
    let begin = (prompt, proptest::bool::weighted(0.2), any::<bool>()).prop_map(
        |(prompt, salted, read_index)| Operation::Begin {
            prompt,
            salted,
            read_index,
        },
    );
    let step = (any::<usize>(), 1..=MAX_CHUNK, 0..3usize).prop_map(|(which, count, taken_back)| {
        Operation::Step {
            which,
            count,
            taken_back,
        }
    });
    let operation = prop_oneof![
        3 => begin,
        8 => step,
        2 => any::<usize>().prop_map(Operation::Fork),
        2 => any::<usize>().prop_map(Operation::Free),
    ];
    proptest::collection::vec(operation, 1..80)
}

#[derive(Clone)]
struct Reader {
    id: SequenceId,
    tokens: Vec<u32>,
    salted: bool,
    /// What its encoder's pages hold all over; a fork's are its parent's.
    encoded: u32,
}

struct Model {
    pager: Pager,
    footprint: Footprint,
    /// Tokens of every reader's encoder input.
    input: usize,
    readers: Vec<Reader>,
    /// What each block holds: (token, salted) by slot, or for a state all tokens it has seen.
    content: Vec<Vec<(u32, bool)>>,
    next_token: u32,
}

const UNWRITTEN: (u32, bool) = (u32::MAX, false);

impl Model {
    fn new(layout: PageLayout, pages: usize) -> Model {
        let is_encoder = |group: &GroupPages| group.retention == Retention::Encoder;
        let has_encoder = layout.groups.iter().any(is_encoder);
        Model {
            footprint: Footprint::new(layout.clone(), pages, MAX_CHUNK),
            pager: Pager::new(layout, pages, !has_encoder),
            // Two pages of eight tokens.
            input: if has_encoder { 11 } else { 0 },
            readers: Vec::new(),
            content: vec![Vec::new(); pages],
            next_token: 2,
        }
    }

    fn run(&mut self, operation: Operation) {
        let pick = |which: usize, count: usize| (count > 0).then(|| which % count);
        match operation {
            Operation::Begin {
                prompt,
                salted,
                read_index,
            } => {
                let root = ChainHash::root(salted.then_some("salt"));
                let id = self
                    .pager
                    .begin(&prompt, root, read_index, prompt.len(), self.input);
                let computed = self.pager.computed(id);
                assert!(computed < prompt.len());
                assert!(read_index || computed == 0);
                self.next_token += 1;
                self.readers.push(Reader {
                    id,
                    tokens: prompt,
                    salted,
                    encoded: self.next_token,
                });
            }
            Operation::Step {
                which,
                count,
                taken_back,
            } => {
                if let Some(which) = pick(which, self.readers.len()) {
                    self.step(which, count, taken_back);
                }
            }
            Operation::Fork(which) => {
                if let Some(which) = pick(which, self.readers.len()) {
                    let mut reader = self.readers[which].clone();
                    reader.id = self.pager.fork(reader.id, reader.tokens.len());
                    self.readers.push(reader);
                }
            }
            Operation::Free(which) => {
                if let Some(which) = pick(which, self.readers.len()) {
                    self.pager.free(self.readers.swap_remove(which).id);
                }
            }
        }
        self.check();
    }

    fn step(&mut self, which: usize, count: usize, taken_back: usize) {
        let Reader {
            id,
            mut tokens,
            salted,
            encoded,
        } = self.readers[which].clone();
        let computed = self.pager.computed(id);
        let end = computed + count;
        while tokens.len() < end {
            tokens.push(self.next_token % 5);
            self.next_token += 1;
        }
        let before = self.held_by_all();
        let mut copies = Vec::new();
        if let Err(refusal) = self.pager.grow(id, end, &mut copies) {
            assert!(refusal.needed > refusal.free);
            assert_eq!(refusal.free, self.pager.pool().free());
            assert_eq!((self.held_by_all(), copies.len()), (before, 0));
            return;
        }
        for (source, target) in copies {
            self.content[target.0 as usize] = self.content[source.0 as usize].clone();
        }
        let groups = self.pager.layout.groups.clone();
        let mut tables = vec![GroupTables::default(); groups.len()];
        self.pager.push_tables(id, end, &mut tables);
        let mut has_state = false;
        for (group, table) in groups.iter().zip(&tables) {
            let blocks = table.blocks_of(0);
            if group.retention == Retention::Encoder {
                assert_eq!(table.lens, [ContextLen(self.input as u32)]);
                assert_eq!(blocks.len(), self.input.div_ceil(group.tokens_per_page));
                if !self.pager.is_encoded(id) {
                    for block in blocks {
                        assert_eq!(self.pager.pool().references(*block), 1);
                        self.content[block.0 as usize] = vec![(encoded, salted)];
                    }
                }
                continue;
            }
            assert_eq!(table.lens, [ContextLen(end as u32)]);
            if group.retention == Retention::State {
                has_state = true;
                assert_eq!(blocks.len(), group.pages_per_state);
                for block in blocks {
                    assert_eq!(self.pager.pool().references(*block), 1);
                    let seen = tokens[..end].iter().map(|t| (*t, salted));
                    self.content[block.0 as usize] = seen.collect();
                }
                continue;
            }
            let first = table.first_page[0] as usize;
            assert_eq!(first, group.first_page(computed));
            assert_eq!(first + blocks.len(), end.div_ceil(group.tokens_per_page));
            for (position, &token) in tokens.iter().enumerate().take(end).skip(computed) {
                let block = blocks[position / group.tokens_per_page - first];
                assert_eq!(
                    self.pager.pool().references(block),
                    1,
                    "a write to a shared block"
                );
                let page = &mut self.content[block.0 as usize];
                page.resize(group.tokens_per_page, UNWRITTEN);
                page[position % group.tokens_per_page] = (token, salted);
            }
        }
        // A state cannot be taken back.
        let kept = if has_state {
            end
        } else {
            end - taken_back.min(count)
        };
        self.pager.commit_encoded(id);
        self.pager.commit(id, &tokens, kept);
        self.readers[which].tokens = tokens;
    }

    fn held_by_all(&self) -> Vec<u32> {
        let mut references = vec![0; self.content.len()];
        for reader in &self.readers {
            for table in &self.pager.sequence(reader.id).tables {
                table
                    .blocks
                    .iter()
                    .for_each(|b| references[b.0 as usize] += 1);
            }
        }
        references
    }

    fn check(&self) {
        let pool = self.pager.pool();
        let held = self.held_by_all();
        for (block, references) in held.iter().enumerate() {
            assert_eq!(pool.references(BlockId(block as u32)), *references);
        }
        let used = held.iter().filter(|r| **r > 0).count();
        assert_eq!((pool.used(), pool.free()), (used, held.len() - used));
        assert_eq!(pool.shared(), held.iter().filter(|r| **r > 1).count());
        for reader in &self.readers {
            self.check_reader(reader);
        }
    }

    fn check_reader(&self, reader: &Reader) {
        let sequence = self.pager.sequence(reader.id);
        let computed = sequence.computed;
        let expected: Vec<(u32, bool)> = reader.tokens[..computed]
            .iter()
            .map(|t| (*t, reader.salted))
            .collect();
        let pages: usize = sequence.tables.iter().map(|t| t.blocks.len()).sum();
        assert!(
            pages
                <= self
                    .footprint
                    .pages_at_most(reader.tokens.len(), self.input)
        );
        for (group, table) in self.pager.layout.groups.iter().zip(&sequence.tables) {
            if matches!(group.retention, Retention::State | Retention::Encoder) {
                let encoded = [(reader.encoded, reader.salted)];
                let expected = match group.retention {
                    Retention::State => &expected[..],
                    _ => &encoded,
                };
                for block in &table.blocks {
                    assert_eq!(self.content[block.0 as usize], expected);
                }
                continue;
            }
            assert_eq!(table.first_page, group.first_page(computed));
            for position in table.first_page * group.tokens_per_page..computed {
                let block = table.blocks[position / group.tokens_per_page - table.first_page];
                let page = &self.content[block.0 as usize];
                let found = page[position % group.tokens_per_page];
                assert_eq!(
                    found, expected[position],
                    "position {position} of {group:?}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn pages_are_conserved_and_hold_what_their_readers_expect(
        which in 0..layouts().len(),
        pages in 4..60usize,
        operations in operations(),
    ) {
        let mut model = Model::new(layouts().swap_remove(which), pages);
        operations.into_iter().for_each(|operation| model.run(operation));
        while !model.readers.is_empty() {
            model.run(Operation::Free(model.readers.len() / 2));
        }
        prop_assert_eq!(model.pager.pool().free(), pages);
        prop_assert_eq!(model.pager.pool().cached(), model.pager.index.count());
    }

    /// A sequence never holds more than its footprint, in chunks of any size.
    #[test]
    fn a_footprint_is_an_upper_bound(
        which in 0..layouts().len(),
        chunk in 1..40usize,
        tokens in 1..200usize,
    ) {
        let layout = layouts().swap_remove(which);
        let bound = Footprint::new(layout.clone(), 1000, chunk).pages_at_most(tokens, tokens / 2);
        let mut pager = Pager::new(layout, bound, true);
        let prompt = vec![1; tokens];
        let id = pager.begin(&prompt, ChainHash::root(None), true, tokens, tokens / 2);
        let mut computed = 0;
        while computed < tokens {
            computed = (computed + chunk).min(tokens);
            prop_assert_eq!(pager.grow(id, computed, &mut Vec::new()), Ok(()));
            pager.commit(id, &prompt, computed);
        }
    }
}

/// Computes all of `prompt` and frees it; gives how much of it was found.
fn compute(pager: &mut Pager, prompt: &[u32], salt: Option<&str>) -> usize {
    let id = pager.begin(prompt, ChainHash::root(salt), true, prompt.len(), 0);
    let found = pager.computed(id);
    pager.grow(id, prompt.len(), &mut Vec::new()).unwrap();
    pager.commit(id, prompt, prompt.len());
    pager.free(id);
    found
}

#[test]
fn a_prefix_is_found_up_to_the_last_full_page_before_the_last_token() {
    let mut pager = Pager::new(layout(&[tokens_group(Retention::Full, 4)]), 10, true);
    let prompt: Vec<u32> = (0..12).collect();
    assert_eq!(compute(&mut pager, &prompt, None), 0);
    assert_eq!(
        compute(&mut pager, &prompt, None),
        8,
        "one token is left to compute"
    );
    assert_eq!(compute(&mut pager, &prompt[..9], None), 8);
    assert_eq!(compute(&mut pager, &prompt[..8], None), 4);
    assert_eq!(
        compute(&mut pager, &[&prompt[..7], &[99; 9]].concat(), None),
        4
    );
    assert_eq!(compute(&mut pager, &prompt, Some("other")), 0);
}

#[test]
fn without_a_prefix_cache_nothing_is_looked_up_or_kept() {
    let mut pager = Pager::new(layout(&[tokens_group(Retention::Full, 4)]), 10, false);
    let prompt: Vec<u32> = (0..12).collect();
    for _ in 0..2 {
        assert_eq!(compute(&mut pager, &prompt, None), 0);
    }
    assert!(!pager.has_prefix_cache());
    assert_eq!((pager.index.count(), pager.pool().cached()), (0, 0));
}

#[test]
fn a_window_needs_only_its_own_pages_of_a_prefix() {
    let group = tokens_group(Retention::Window(5), 4);
    let mut pager = Pager::new(layout(&[group]), 4, true);
    let prompt: Vec<u32> = (0..20).collect();
    let root = ChainHash::root(None);
    let id = pager.begin(&prompt, root, true, 20, 0);
    for end in [4, 8, 12, 16, 20] {
        pager.grow(id, end, &mut Vec::new()).unwrap();
        pager.commit(id, &prompt, end);
    }
    pager.free(id);
    // Four blocks cannot hold all five pages: the first is gone, and is not needed.
    assert_eq!(
        pager
            .index
            .find(0, root, root.child(&prompt[..4]), &prompt[..4]),
        None
    );
    assert_eq!(compute(&mut pager, &prompt, None), 16);
}

#[test]
fn the_hit_is_the_longest_valid_in_every_group() {
    let groups = [
        tokens_group(Retention::Full, 4),
        tokens_group(Retention::Full, 8),
    ];
    let mut pager = Pager::new(layout(&groups), 20, true);
    let prompt: Vec<u32> = (0..12).collect();
    assert_eq!(compute(&mut pager, &prompt, None), 0);
    // The first group knows 12 tokens of this, the second 8.
    assert_eq!(
        compute(&mut pager, &[&prompt[..], &[7; 5]].concat(), None),
        8
    );
    let state = GroupPages {
        retention: Retention::State,
        tokens_per_page: 0,
        pages_per_state: 1,
    };
    let mut pager = Pager::new(layout(&[tokens_group(Retention::Full, 4), state]), 20, true);
    assert_eq!(compute(&mut pager, &prompt, None), 0);
    assert_eq!(compute(&mut pager, &prompt, None), 0, "a state has no past");
}

#[test]
fn the_end_of_a_cached_prefix_is_overwritten_first() {
    let mut pager = Pager::new(layout(&[tokens_group(Retention::Full, 4)]), 4, true);
    let prompt: Vec<u32> = (0..16).collect();
    compute(&mut pager, &prompt, None);
    assert_eq!(pager.pool().cached(), 4);
    compute(&mut pager, &[99; 4], None);
    assert_eq!(compute(&mut pager, &prompt, None), 12);
}

#[test]
fn a_fork_copies_the_page_it_writes_and_no_other() {
    let mut pager = Pager::new(layout(&[tokens_group(Retention::Full, 4)]), 10, true);
    let prompt: Vec<u32> = (0..6).collect();
    let parent = pager.begin(&prompt, ChainHash::root(None), true, 8, 0);
    pager.grow(parent, 6, &mut Vec::new()).unwrap();
    pager.commit(parent, &prompt, 6);
    let child = pager.fork(parent, 8);
    assert_eq!(pager.pool().used(), 2);
    let mut copies = Vec::new();
    pager.grow(child, 7, &mut copies).unwrap();
    assert_eq!((copies.len(), pager.pool().used()), (1, 3));
    pager.grow(parent, 7, &mut copies).unwrap();
    assert_eq!(copies.len(), 1, "the parent now owns its last page alone");
}
