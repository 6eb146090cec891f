//! Owns the plan: its buffers, weights, cache groups and ops, and the calls by which an architecture builds it.

use crate::buffer::{Buffer, BufferId, Element, Slice};
use crate::dim::{Dim, Sizes};
use crate::kv::{KvElement, KvGroup, KvLayer, Plane, Retention};
use crate::op::{KvSource, MoeExperts, Op, Resource};
use crate::rope::{Rope, RopeId};
use crate::step::OutputKind;
use crate::weight::{Part, Weight, WeightId};
use mettle_tensor::{DType, TensorInfo, TensorSource};
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// A name for the value of a slice after an op, the same on every backend: `layer.7.attn_out`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tap {
    pub name: String,
    pub slice: Slice,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Node {
    pub op: Op,
    pub taps: Vec<Tap>,
}

/// A forward pass: ops in order over numbered buffers.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    pub name: String,
    pub buffers: Vec<Buffer>,
    pub weights: Vec<Weight>,
    pub ropes: Vec<Rope>,
    pub kv_groups: Vec<KvGroup>,
    pub nodes: Vec<Node>,
    /// Exact names of tensors that a source may hold and this plan rightly does not read.
    pub unread: Vec<String>,
    /// Token ids of the step.
    pub token_ids: Option<Slice>,
    /// The tokens' places in their sequences, where they are embedded too.
    pub positions: Option<Slice>,
    /// The token rows whose output is wanted.
    pub logit_rows: Option<Slice>,
    /// What the host may ask for: the final hidden state and the logits of the logit rows.
    pub hidden: Option<Slice>,
    pub logits: Option<Slice>,
    /// The type a weight is declared with until a source says otherwise.
    #[serde(skip)]
    pub weight_type: DType,
    #[serde(skip)]
    pub kv_element: KvElement,
    /// Weights of one whole tensor, so that asking for one again is cheap.
    #[serde(skip)]
    whole_tensors: HashMap<String, WeightId>,
}

impl Plan {
    pub fn new(name: impl Into<String>, weight_type: DType, kv_element: KvElement) -> Plan {
        Plan {
            name: name.into(),
            buffers: Vec::new(),
            weights: Vec::new(),
            ropes: Vec::new(),
            kv_groups: Vec::new(),
            nodes: Vec::new(),
            unread: Vec::new(),
            token_ids: None,
            positions: None,
            logit_rows: None,
            hidden: None,
            logits: None,
            weight_type,
            kv_element,
            whole_tensors: HashMap::new(),
        }
    }

    /// A new buffer of activations, as a slice of all its columns.
    pub fn buffer(&mut self, name: impl Into<String>, rows: Dim, width: usize) -> Slice {
        self.add_buffer(name.into(), rows, width, Element::Activation, false)
    }

    /// A new buffer with elements of a fixed type.
    pub fn typed_buffer(
        &mut self,
        name: impl Into<String>,
        rows: Dim,
        width: usize,
        element: Element,
    ) -> Slice {
        self.add_buffer(name.into(), rows, width, element, false)
    }

    /// A buffer that the step's input fills.
    pub fn input(
        &mut self,
        name: impl Into<String>,
        rows: Dim,
        width: usize,
        element: Element,
    ) -> Slice {
        self.add_buffer(name.into(), rows, width, element, true)
    }

    fn add_buffer(
        &mut self,
        name: String,
        rows: Dim,
        width: usize,
        element: Element,
        is_input: bool,
    ) -> Slice {
        let buffer = BufferId(self.buffers.len() as u32);
        self.buffers.push(Buffer {
            name,
            rows,
            width,
            element,
            is_input,
            is_output: false,
        });
        Slice {
            buffer,
            start: 0,
            width,
        }
    }

    /// Says that the host reads this slice after the last op.
    pub fn mark_output(&mut self, slice: Slice) -> Slice {
        self.buffers[slice.buffer.0 as usize].is_output = true;
        slice
    }

    /// The weight made of the one tensor `tensor`; asking twice for the same name gives the same weight (tied embeddings).
    pub fn weight(&mut self, tensor: impl Into<String>, shape: &[usize]) -> WeightId {
        let tensor = tensor.into();
        if let Some(&known) = self.whole_tensors.get(&tensor) {
            let part = &self.weight_of(known).parts[0];
            assert_eq!(part.shape, shape, "{tensor} asked for with two shapes");
            return known;
        }
        let part = self.part(tensor.clone(), shape);
        let id = self.weight_of_parts(vec![part]);
        self.whole_tensors.insert(tensor, id);
        id
    }

    /// A whole tensor as a part of a weight, in the type that the plan declares.
    pub fn part(&self, tensor: impl Into<String>, shape: &[usize]) -> Part {
        Part {
            tensor: tensor.into(),
            shape: shape.to_vec(),
            dtype: self.weight_type,
            cut: None,
        }
    }

    /// A weight of several tensors stacked by rows, or of cut ones.
    pub fn weight_of_parts(&mut self, parts: Vec<Part>) -> WeightId {
        self.weights.push(Weight { parts });
        WeightId(self.weights.len() as u32 - 1)
    }

    pub fn rope(&mut self, rope: Rope) -> RopeId {
        let known = self.ropes.iter().position(|r| *r == rope);
        let index = known.unwrap_or_else(|| {
            self.ropes.push(rope);
            self.ropes.len() - 1
        });
        RopeId(index as u32)
    }

    /// Room for one more layer in the group with these planes (heads, width) and retention, which is made when missing.
    pub fn kv_layer(
        &mut self,
        name: &str,
        planes: &[(usize, usize)],
        retention: Retention,
    ) -> KvLayer {
        let planes: Vec<Plane> = planes
            .iter()
            .map(|&(heads, width)| Plane {
                heads,
                width,
                element: self.kv_element,
            })
            .collect();
        let known = self
            .kv_groups
            .iter()
            .position(|g| g.planes == planes && g.retention == retention && g.name == name);
        let group = known.unwrap_or_else(|| {
            self.kv_groups.push(KvGroup {
                name: name.to_owned(),
                layers: 0,
                planes,
                retention,
            });
            self.kv_groups.len() - 1
        });
        self.kv_groups[group].layers += 1;
        KvLayer {
            group,
            layer: self.kv_groups[group].layers - 1,
        }
    }

    pub fn push(&mut self, op: Op) {
        self.nodes.push(Node {
            op,
            taps: Vec::new(),
        });
    }

    /// Names the value of `slice` after the op pushed last.
    pub fn tap(&mut self, name: impl Into<String>, slice: Slice) {
        let node = self.nodes.last_mut().expect("a tap follows an op");
        node.taps.push(Tap {
            name: name.into(),
            slice,
        });
    }

    pub fn buffer_of(&self, slice: Slice) -> &Buffer {
        &self.buffers[slice.buffer.0 as usize]
    }

    pub fn weight_of(&self, id: WeightId) -> &Weight {
        &self.weights[id.0 as usize]
    }

    /// The weights that some op reads (fusion leaves the fused ones' originals behind).
    pub fn used_weights(&self) -> Vec<WeightId> {
        let mut used: Vec<WeightId> = self
            .nodes
            .iter()
            .flat_map(|n| n.op.accesses().weights)
            .collect();
        used.sort_unstable();
        used.dedup();
        used
    }

    /// How many of the ops, from the first on, a step with this output needs: hidden states need no logits.
    pub fn nodes_for(&self, output: OutputKind) -> usize {
        let (OutputKind::Hidden, Some(hidden)) = (output, self.hidden) else {
            return self.nodes.len();
        };
        let writes = |node: &Node| {
            let written = node.op.accesses().writes;
            written.iter().any(|resource| {
                matches!(resource, Resource::Columns(slice) if slice.buffer == hidden.buffer)
            })
        };
        let last = self.nodes.iter().rposition(writes);
        last.map_or(self.nodes.len(), |last| last + 1)
    }

    /// Every tensor the plan reads, as a source must hold it. Dummy weights are made from this list.
    pub fn tensors(&self) -> Vec<TensorInfo> {
        let mut tensors: Vec<TensorInfo> = Vec::new();
        let mut known: HashSet<&str> = HashSet::new();
        for id in self.used_weights() {
            for part in &self.weight_of(id).parts {
                if known.insert(&part.tensor) {
                    tensors.push(TensorInfo {
                        name: part.tensor.clone(),
                        dtype: part.dtype,
                        shape: part.source_shape().to_vec(),
                    });
                }
            }
        }
        tensors
    }

    /// Takes over the types in which `source` stores the weights, so that costs are those of the real file.
    pub fn adopt_types(&mut self, source: &dyn TensorSource) {
        for part in self.weights.iter_mut().flat_map(|w| &mut w.parts) {
            if let Some(index) = source.find(&part.tensor) {
                part.dtype = source.tensors()[index].dtype;
            }
        }
    }

    /// The bounds of a step of at most `tokens` tokens of `sequences` sequences, with as many rows of every other kind
    /// that this plan has a buffer for as that many tokens can need.
    pub fn bounds(&self, tokens: usize, sequences: usize) -> Sizes {
        let rows = |dim: Dim| match self.buffers.iter().any(|b| b.rows == dim) {
            true => tokens,
            false => 0,
        };
        let experts_a_token = self.nodes.iter().map(|node| match &node.op {
            Op::MoeExperts(experts) => experts.top_k,
            _ => 0,
        });
        let bounds = Sizes::bounds(tokens, sequences);
        Sizes {
            expert_assignments: tokens * experts_a_token.max().unwrap_or(0),
            media_patches: rows(Dim::MediaPatches),
            media_rows: rows(Dim::MediaRows),
            logit_rows: match self.logits {
                Some(_) => bounds.logit_rows,
                // What is asked for is no wider than what all tokens have anyway.
                None => tokens,
            },
            ..bounds
        }
    }

    /// Whether a step of this plan writes what other plans' cross-attention reads, and nothing else of the cache.
    pub fn fills_encoder(&self) -> bool {
        self.nodes.iter().any(|node| match &node.op {
            Op::RopeKvWrite(o) => self.kv_groups[o.kv.group].retention == Retention::Encoder,
            _ => false,
        })
    }

    /// Panics where the plan contradicts itself: an architecture file has a bug, whatever the config said.
    pub fn check(&self) {
        for (index, node) in self.nodes.iter().enumerate() {
            let accesses = node.op.accesses();
            for resource in accesses.reads.iter().chain(&accesses.writes) {
                match resource {
                    Resource::Columns(slice) => {
                        let buffer = self.buffer_of(*slice);
                        assert!(
                            slice.start + slice.width <= buffer.width,
                            "op {index} ({}): columns {}..{} of buffer {} which is {} wide",
                            node.op.name(),
                            slice.start,
                            slice.start + slice.width,
                            buffer.name,
                            buffer.width
                        );
                    }
                    Resource::Kv(kv) => {
                        assert!(
                            kv.layer < self.kv_groups[kv.group].layers,
                            "op {index}: no such KV layer"
                        );
                    }
                }
            }
            self.check_widths(index, &node.op);
        }
    }

    fn check_widths(&self, index: usize, op: &Op) {
        let same = |what: &str, a: usize, b: usize| {
            assert_eq!(a, b, "op {index} ({}): {what}", op.name());
        };
        match op {
            Op::Linear(o) => {
                let weight = self.weight_of(o.weight);
                same("input width", o.x.width, weight.columns() * o.groups);
                same("output width", o.out.width, weight.rows());
                if let Some(bias) = o.bias {
                    same("bias width", self.weight_of(bias).elements(), o.out.width);
                }
                if let Some(residual) = o.residual {
                    same("residual width", residual.width, o.out.width);
                }
            }
            Op::LmHead(o) => {
                let weight = self.weight_of(o.weight);
                same("input width", o.x.width, weight.columns());
                same("output width", o.out.width, weight.rows());
            }
            Op::Embed(o) => same("row width", o.out.width, self.weight_of(o.table).columns()),
            Op::RmsNorm(o) => {
                same("width", o.x.width, o.out.width);
                if let Some(weight) = o.weight {
                    same("weight", self.weight_of(weight).elements(), o.x.width);
                }
            }
            Op::Attention(o) => {
                same("query width", o.q.width, o.heads * o.head_dim);
                same("output width", o.out.width, o.heads * o.value_dim);
                same("heads per KV head", o.heads % o.kv_heads, 0);
                if let KvSource::Rows { k, v, .. } = o.kv {
                    same("key width", k.width, o.kv_heads * o.head_dim);
                    same("value width", v.width, o.kv_heads * o.value_dim);
                }
            }
            Op::RopeKvWrite(o) => {
                if let Some(rope) = o.rope {
                    let dims = self.ropes[rope.0 as usize].dims;
                    assert!(
                        o.rotate_from + dims <= o.head_dim,
                        "op {index}: {dims} rotated"
                    );
                }
                if let Some(v) = o.v {
                    let plane = &self.kv_groups[o.kv.group].planes[1];
                    same("value width", v.width, plane.heads * plane.width);
                }
                same("query width", o.q.width, o.heads * o.head_dim);
                same("key width", o.k.width, o.kv_heads * o.head_dim);
            }
            Op::QkNorm(o) => same("width", o.x.width, o.heads * o.head_dim),
            Op::HeadCopy(o) => {
                same("columns left of a head's", o.x.width % o.heads, 0);
                same("columns left of a head's", o.out.width % o.heads, 0);
                assert!(
                    o.x_from + o.width <= o.x.width / o.heads,
                    "op {index}: head_copy source"
                );
                assert!(
                    o.out_from + o.width <= o.out.width / o.heads,
                    "op {index}: head_copy target"
                );
            }
            Op::LayerNorm(o) => {
                same("width", o.x.width, o.out.width);
                for weight in [o.weight].into_iter().chain(o.bias) {
                    same("weight", self.weight_of(weight).elements(), o.x.width);
                }
            }
            Op::CrossAttention(o) => {
                same("query width", o.q.width, o.heads * o.head_dim);
                same("output width", o.out.width, o.heads * o.head_dim);
            }
            Op::MoeExperts(o) => {
                let (gate_up, down) = (self.weight_of(o.gate_up), self.weight_of(o.down));
                same(
                    "gate and up rows",
                    gate_up.rows(),
                    o.expert_count * 2 * o.width,
                );
                same("gate and up columns", gate_up.columns(), o.x.width);
                same("down rows", down.rows(), o.expert_count * o.out.width);
                same("down columns", down.columns(), o.width);
                let row = MoeExperts::row_width(o.x.width, o.width);
                same("scratch columns", o.scratch.width, row);
            }
            Op::MoeRoute(o) => {
                same("experts chosen", o.experts.width, o.top_k);
                same("shares", o.shares.width, o.top_k);
            }
            Op::GatedAct(o) => {
                same("gate and up", o.gate.width, o.up.width);
                same("output width", o.out.width, o.up.width);
            }
            _ => {}
        }
    }
}
