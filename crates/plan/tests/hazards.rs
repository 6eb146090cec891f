//! Hazards and arena on random plans, against a model of memory that knows nothing of either: a set of cells.
//! The generator says itself what each op reads and writes, so `Op::accesses` is under test as well.

use mettle_plan::*;
use mettle_tensor::DType;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

const BOUNDS: Sizes = Sizes {
    tokens: 3,
    sequences: 2,
    logit_rows: 1,
    context_partitions: 1,
    expert_assignments: 4,
    media_patches: 2,
    media_rows: 1,
};
const ELEMENT_BYTES: usize = 4;
const KV_LAYERS: usize = 3;

/// What an op touches, as its generator understands it.
#[derive(Clone, Debug, Default)]
struct Touched {
    reads: Vec<Resource>,
    writes: Vec<Resource>,
}

/// A place in memory: an element of a buffer (by buffer and offset, or by its byte in the arena) or a layer's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Cell {
    Element(u32, usize),
    Byte(usize),
    Kv(usize),
}

#[derive(Clone, Debug)]
struct Recipe {
    /// (dimension, width, whether the host reads it afterwards)
    buffers: Vec<(usize, usize, bool)>,
    /// (kind, numbers that pick slices)
    ops: Vec<(u8, [u16; 12])>,
}

fn recipes() -> impl Strategy<Value = Recipe> {
    let buffer = (0..Dim::ALL.len(), 1..9_usize, prop::bool::weighted(0.1));
    let op = (0..9_u8, prop::array::uniform12(any::<u16>()));
    (
        prop::collection::vec(buffer, 1..32),
        prop::collection::vec(op, 1..20),
    )
        .prop_map(|(buffers, ops)| Recipe { buffers, ops })
}

struct Case {
    plan: Plan,
    touched: Vec<Touched>,
}

impl Recipe {
    fn build(&self) -> Case {
        let mut plan = Plan::new("random", DType::F32, KvElement::F32);
        let weight = plan.weight("w", &[1, 1]);
        let buffers: Vec<Slice> = self
            .buffers
            .iter()
            .enumerate()
            .map(|(i, &(dim, width, output))| {
                let slice = plan.buffer(format!("b{i}"), Dim::ALL[dim], width);
                match output {
                    true => plan.mark_output(slice),
                    false => slice,
                }
            })
            .collect();
        let layers: Vec<KvLayer> = (0..KV_LAYERS)
            .map(|_| plan.kv_layer("kv", &[(1, 1)], Retention::Full))
            .collect();
        let mut touched = Vec::new();
        for (kind, numbers) in &self.ops {
            let mut numbers = numbers.iter().map(|n| *n as usize);
            let mut slice = || {
                let mut next = || numbers.next().expect("four slices at the most");
                let buffer = buffers[next() % buffers.len()];
                let start = next() % buffer.width;
                buffer.columns(start, 1 + next() % (buffer.width - start))
            };
            let (op, access) = random_op(*kind, weight, &layers, &mut slice);
            plan.push(op);
            touched.push(access);
        }
        Case { plan, touched }
    }
}

fn random_op(
    kind: u8,
    weight: WeightId,
    layers: &[KvLayer],
    slice: &mut dyn FnMut() -> Slice,
) -> (Op, Touched) {
    let touched = |reads: &[Slice], writes: &[Slice]| Touched {
        reads: reads.iter().copied().map(Resource::Columns).collect(),
        writes: writes.iter().copied().map(Resource::Columns).collect(),
    };
    let (a, b, c) = (slice(), slice(), slice());
    let kv = layers[(a.start + b.width) % layers.len()];
    match kind {
        0 => {
            let op = Op::Elementwise(Elementwise {
                expr: Expr::Add,
                a,
                b: Some(b),
                out: c,
            });
            (op, touched(&[a, b], &[c]))
        }
        1 => {
            let op = Op::Linear(Linear {
                x: a,
                weight,
                bias: None,
                residual: Some(b),
                adapters: None,
                groups: 1,
                out: c,
            });
            (op, touched(&[a, b], &[c]))
        }
        2 => {
            let op = Op::RmsNorm(RmsNorm {
                x: a,
                add: Some(b),
                weight: Some(weight),
                weight_offset: 0.0,
                eps: 1e-5,
                out: c,
            });
            (op, touched(&[a, b], &[a, c]))
        }
        3 => {
            let op = Op::RmsNorm(RmsNorm {
                x: a,
                add: None,
                weight: None,
                weight_offset: 0.0,
                eps: 1e-5,
                out: b,
            });
            (op, touched(&[a], &[b]))
        }
        4 => {
            let op = Op::RopeKvWrite(RopeKvWrite {
                q: a,
                k: b,
                v: Some(c),
                rope: None,
                head_dim: 1,
                rotate_from: 0,
                heads: 1,
                kv_heads: 1,
                kv,
            });
            let mut access = touched(&[a, b, c], &[a, b]);
            access.writes.push(Resource::Kv(kv));
            (op, access)
        }
        5 => {
            let op = Op::Attention(Attention {
                q: a,
                kv: KvSource::Paged(kv),
                heads: 1,
                kv_heads: 1,
                head_dim: 1,
                value_dim: 1,
                values_in_keys: false,
                scale: 1.0,
                window: None,
                softcap: None,
                sinks: None,
                bias: None,
                visible_to: Some(b),
                out: c,
            });
            let mut access = touched(&[a, b], &[c]);
            access.reads.push(Resource::Kv(kv));
            (op, access)
        }
        6 => {
            let op = Op::HeadCopy(HeadCopy {
                x: a,
                out: b,
                heads: 1,
                width: 1,
                x_from: 0,
                out_from: 0,
            });
            (op, touched(&[a, b], &[b]))
        }
        7 => {
            let op = Op::GatedAct(GatedAct {
                gate: a,
                up: b,
                activation: Activation::Silu,
                out: c,
            });
            (op, touched(&[a, b], &[c]))
        }
        _ => (Op::Softcap(Softcap { x: a, cap: 1.0 }), touched(&[a], &[a])),
    }
}

impl Case {
    /// The cells of a resource: rows one after another, each as wide as the buffer.
    fn cells(&self, resource: &Resource, arena: Option<&Arena>) -> BTreeSet<Cell> {
        let slice = match resource {
            Resource::Kv(kv) => return BTreeSet::from([Cell::Kv(kv.layer)]),
            Resource::Columns(slice) => slice,
        };
        let buffer = self.plan.buffer_of(*slice);
        let mut cells = BTreeSet::new();
        for row in 0..BOUNDS.get(buffer.rows) {
            for column in slice.start..slice.start + slice.width {
                let offset = row * buffer.width + column;
                match arena {
                    None => drop(cells.insert(Cell::Element(slice.buffer.0, offset))),
                    Some(arena) => {
                        let start = arena.ranges[slice.buffer.0 as usize].start;
                        let first = start + offset * ELEMENT_BYTES;
                        cells.extend((first..first + ELEMENT_BYTES).map(Cell::Byte));
                    }
                }
            }
        }
        cells
    }

    fn all_cells(&self, resources: &[Resource], arena: Option<&Arena>) -> BTreeSet<Cell> {
        let cells = resources.iter().flat_map(|r| self.cells(r, arena));
        cells.collect()
    }

    fn conflict(&self, i: usize, j: usize, arena: Option<&Arena>) -> bool {
        let reads = |op: usize| self.all_cells(&self.touched[op].reads, arena);
        let writes = |op: usize| self.all_cells(&self.touched[op].writes, arena);
        let meet = |a: BTreeSet<Cell>, b: BTreeSet<Cell>| !a.is_disjoint(&b);
        meet(writes(i), reads(j)) || meet(reads(i), writes(j)) || meet(writes(i), writes(j))
    }

    fn arena(&self) -> Arena {
        Arena::new(&self.plan, &BOUNDS, ELEMENT_BYTES)
    }

    /// Runs the ops in this order; each hashes all it reads into all it writes.
    fn run(&self, order: &[usize], arena: Option<&Arena>) -> BTreeMap<Cell, u64> {
        let mut memory: HashMap<Cell, u64> = HashMap::new();
        for &op in order {
            let mut hasher = DefaultHasher::new();
            op.hash(&mut hasher);
            for cell in self.all_cells(&self.touched[op].reads, arena) {
                (cell, memory.get(&cell)).hash(&mut hasher);
            }
            let value = hasher.finish();
            for cell in self.all_cells(&self.touched[op].writes, arena) {
                memory.insert(cell, value);
            }
        }
        memory.into_iter().collect()
    }
}

/// The ops in another order that the barriers allow: shuffled between one barrier and the next.
fn shuffled(barriers: &[bool], seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..barriers.len()).collect();
    let segment = |op: usize| barriers[..=op].iter().filter(|b| **b).count();
    order.sort_by_key(|&op| {
        let mut hasher = DefaultHasher::new();
        (op, seed).hash(&mut hasher);
        (segment(op), hasher.finish())
    });
    order
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_conflict_is_left_without_a_barrier(recipe in recipes(), in_arena in any::<bool>()) {
        let case = recipe.build();
        let arena = in_arena.then(|| case.arena());
        let barriers = hazards(&case.plan, arena.as_ref());
        prop_assert_eq!(barriers.len(), case.plan.nodes.len());
        for j in 0..barriers.len() {
            for i in 0..j {
                if case.conflict(i, j, arena.as_ref()) {
                    prop_assert!(
                        barriers[i + 1..=j].iter().any(|b| *b),
                        "ops {} and {} touch the same memory, and no barrier is between them", i, j
                    );
                }
            }
        }
    }

    #[test]
    fn no_barrier_is_without_a_conflict(recipe in recipes()) {
        let case = recipe.build();
        let barriers = hazards(&case.plan, None);
        let mut since = 0;
        for (j, barrier) in barriers.iter().enumerate() {
            if *barrier {
                let needed = (since..j).any(|i| case.conflict(i, j, None));
                prop_assert!(needed, "nothing since op {} needs the barrier before op {}", since, j);
                since = j;
            }
        }
    }

    #[test]
    fn any_order_between_barriers_leaves_the_same_memory(
        recipe in recipes(),
        in_arena in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let case = recipe.build();
        let arena = in_arena.then(|| case.arena());
        let barriers = hazards(&case.plan, arena.as_ref());
        let in_order: Vec<usize> = (0..barriers.len()).collect();
        let expected = case.run(&in_order, arena.as_ref());
        let order = shuffled(&barriers, seed);
        prop_assert_eq!(case.run(&order, arena.as_ref()), expected, "in the order {:?}", order);
    }

    #[test]
    fn buffers_alive_together_share_no_bytes(recipe in recipes()) {
        let case = recipe.build();
        let arena = case.arena();
        let ops = case.touched.len();
        // The ops during which each buffer holds something; an output holds it after the last op, too.
        let mut alive: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        for (op, touched) in case.touched.iter().enumerate() {
            for resource in touched.reads.iter().chain(&touched.writes) {
                if let Resource::Columns(slice) = resource {
                    let life = alive.entry(slice.buffer.0).or_insert((op, op));
                    life.1 = op;
                }
            }
        }
        for (id, life) in &mut alive {
            if case.plan.buffers[*id as usize].is_output {
                life.1 = ops;
            }
        }
        for time in 0..=ops {
            let mut bytes: BTreeSet<usize> = BTreeSet::new();
            for (id, life) in &alive {
                if !(life.0..=life.1).contains(&time) {
                    continue;
                }
                let buffer = &case.plan.buffers[*id as usize];
                let size = BOUNDS.get(buffer.rows) * buffer.width * ELEMENT_BYTES;
                let start = arena.ranges[*id as usize].start;
                prop_assert!(start + size <= arena.bytes);
                for byte in start..start + size {
                    prop_assert!(bytes.insert(byte), "byte {} has two owners during op {}", byte, time);
                }
            }
        }
    }
}

/// A generator whose plans all conflict, or never do, would prove nothing.
#[test]
fn random_plans_have_some_barriers_and_not_everywhere() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut all, mut none, mut aliased) = (0, 0, 0);
    for _ in 0..300 {
        let case = recipes().new_tree(&mut runner).unwrap().current().build();
        let arena = case.arena();
        let (plain, shared) = (hazards(&case.plan, None), hazards(&case.plan, Some(&arena)));
        let count = |barriers: &[bool]| barriers.iter().filter(|b| **b).count();
        assert!(!plain[0], "nothing comes before the first op");
        if plain.len() > 1 {
            all += usize::from(count(&plain) == plain.len() - 1);
            none += usize::from(count(&plain) == 0);
        }
        aliased += usize::from(count(&shared) > count(&plain));
    }
    assert!(
        all < 150,
        "{all} of 300 plans have a barrier before every op"
    );
    assert!(none > 0, "every plan has a barrier");
    assert!(
        aliased > 0,
        "no plan needs a barrier because buffers share memory"
    );
}

#[test]
fn independent_ops_need_no_barrier() {
    let mut plan = Plan::new("independent", DType::F32, KvElement::F32);
    let shared = plan.buffer("shared", Dim::Tokens, 4);
    for name in ["a", "b", "c"] {
        let out = plan.buffer(name, Dim::Tokens, 4);
        plan.push(Op::Elementwise(Elementwise {
            expr: Expr::Scale(2.0),
            a: shared,
            b: None,
            out,
        }));
    }
    assert_eq!(hazards(&plan, None), [false; 3]);
}
