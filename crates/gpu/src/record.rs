//! Owns the translation of a plan's ops into commands for one step. What cannot be run was refused by `support`.

use crate::commands::{Bind, Commands, reads, writes};
use crate::metadata::Metadata;
use crate::params::*;
use crate::place::{BufferIndex, Place, Rows, element_bytes, element_name};
use crate::weights::{Segment, Weights};
use mettle_kernels::select::{self, DeviceProfile, Element, LinearShape, Weight as Format};
use mettle_plan::{
    Arena, Attention, Dim, Element as BufferElement, Embed, KvLayer, KvSource, Op, PageLayout,
    Plan, RmsNorm, RopeKvWrite, RopeStyle, Slice, WeightId,
};

/// Everything that a plan's ops are recorded from.
pub struct Recorder<'a> {
    pub plan: &'a Plan,
    pub arena: &'a Arena,
    pub hazards: &'a [bool],
    pub layout: &'a PageLayout,
    pub weights: &'a Weights,
    pub metadata: &'a Metadata,
    pub device: &'a DeviceProfile,
    pub element: Element,
    pub batch_invariant: bool,
    pub buffers: Buffers,
    pub tokens: u32,
    pub logit_rows: u32,
    /// How many ops the step's output needs.
    pub nodes: usize,
    /// Bytes of `partials` that dispatches since the last barrier use, and the most that any did.
    pub partial_bytes: usize,
    pub most_partial_bytes: usize,
}

/// The numbers of the buffers that are not weights.
#[derive(Clone, Copy)]
pub struct Buffers {
    pub arena: BufferIndex,
    pub pages: BufferIndex,
    pub partials: BufferIndex,
    /// Bound where a kernel has a parameter that this use of it does not read.
    pub unused: BufferIndex,
    /// Ids, and behind them logits.
    pub top: BufferIndex,
    /// One after another, one for each tap asked for.
    pub first_tap: BufferIndex,
}

/// Attention's numbers that are not its op's.
#[derive(Clone, Copy)]
struct Pages {
    page_stride: u64,
    layer_offset: u64,
    tokens_per_page: u32,
}

impl Recorder<'_> {
    /// Records all ops; `tap` says which buffer keeps a tap, if any.
    pub fn all(&mut self, commands: &mut Commands, tap: impl Fn(&str) -> Option<u32>) {
        let plan = self.plan;
        for (index, node) in plan.nodes[..self.nodes].iter().enumerate() {
            commands.start_node(index);
            if self.hazards[index] {
                commands.barrier();
                self.partial_bytes = 0;
            }
            if self.rows_of(plan.buffer_of(node.op.primary()).rows) == 0 {
                continue;
            }
            self.op(commands, &node.op);
            for wanted in &node.taps {
                if let Some(number) = tap(&wanted.name) {
                    self.tap(commands, wanted.slice, number);
                }
            }
        }
    }

    fn tap(&mut self, commands: &mut Commands, slice: Slice, number: u32) {
        let buffer = self.plan.buffer_of(slice);
        let bytes = self.rows_of(buffer.rows) as usize * buffer.width * self.bytes_of(slice);
        let from = self.whole(slice);
        let to = Place::new(
            BufferIndex(self.buffers.first_tap.0 + number),
            0,
            from.element,
        );
        commands.barrier();
        commands.copy(from, to, bytes);
        commands.barrier();
    }

    /// The step's `k` largest logits of each row. Long rows are cut into parts, whose results are looked through again.
    pub fn top_k(&mut self, commands: &mut Commands, logits: Slice, k: u32) {
        let x = self.rows(logits);
        let choice = select::top_k(self.logit_rows, x.width, k).expect("checked by submit");
        let ids = Place::new(self.buffers.top, 0, "uint");
        let values_at = top_values_at((self.logit_rows * k) as usize);
        let values = Place::new(self.buffers.top, values_at, "float");
        commands.barrier();
        self.partial_bytes = 0;
        let found = (self.logit_rows * choice.parts * k) as usize;
        let (part_ids, part_values) = match choice.merge {
            Some(_) => (self.partials(found).of("uint"), self.partials(found)),
            None => (ids, values),
        };
        let unused = self.unused("uint");
        let binds = [
            reads("logits", x.place),
            reads("candidates", unused),
            writes("ids", part_ids),
            writes("values", part_values),
        ];
        let params = TopKParams {
            width: x.width,
            stride: x.stride,
            k,
            part_width: choice.part_width,
            parts: choice.parts,
        };
        commands.dispatch(choice.main, &binds, &params);
        if let Some(merge) = choice.merge {
            commands.barrier();
            let binds = [
                reads("logits", part_values),
                reads("candidates", part_ids),
                writes("ids", ids),
                writes("values", values),
            ];
            let width = choice.parts * k;
            let params = TopKParams {
                width,
                stride: width,
                k,
                part_width: width,
                parts: 1,
            };
            commands.dispatch(merge, &binds, &params);
        }
    }

    fn rows_of(&self, dim: Dim) -> u32 {
        match dim {
            Dim::Tokens => self.tokens,
            Dim::LogitRows => self.logit_rows,
            _ => 0,
        }
    }

    fn bytes_of(&self, slice: Slice) -> usize {
        match self.plan.buffer_of(slice).element {
            BufferElement::Activation => element_bytes(self.element),
            BufferElement::F32 | BufferElement::U32 => 4,
        }
    }

    /// The buffer that a slice is of.
    fn whole(&self, slice: Slice) -> Place {
        let element = match self.plan.buffer_of(slice).element {
            BufferElement::Activation => element_name(self.element),
            BufferElement::F32 => "float",
            BufferElement::U32 => "uint",
        };
        let offset = self.arena.ranges[slice.buffer.0 as usize].start;
        Place::new(self.buffers.arena, offset, element)
    }

    fn rows(&self, slice: Slice) -> Rows {
        Rows {
            place: self
                .whole(slice)
                .bytes_on(slice.start * self.bytes_of(slice)),
            stride: self.plan.buffer_of(slice).width as u32,
            width: slice.width as u32,
        }
    }

    fn unused(&self, element: &'static str) -> Place {
        Place::new(self.buffers.unused, 0, element)
    }

    fn activation(&self) -> &'static str {
        element_name(self.element)
    }

    /// Room for `floats` f32 that no dispatch since the last barrier uses.
    fn partials(&mut self, floats: usize) -> Place {
        let place = Place::new(self.buffers.partials, self.partial_bytes, "float");
        self.partial_bytes = (self.partial_bytes + floats * 4).next_multiple_of(256);
        self.most_partial_bytes = self.most_partial_bytes.max(self.partial_bytes);
        place
    }

    fn op(&mut self, commands: &mut Commands, op: &Op) {
        match op {
            Op::Embed(o) => self.embed(commands, o),
            Op::RmsNorm(o) => self.rms_norm(commands, o),
            Op::Linear(o) => {
                let residual = o.residual.map(|r| self.rows(r));
                self.linear(commands, o.x, o.weight, o.bias, residual, o.out);
            }
            Op::LmHead(o) => self.linear(commands, o.x, o.weight, None, None, o.out),
            Op::QkNorm(o) => {
                let x = self.rows(o.x);
                let launch = select::head_norm(self.element, self.tokens, o.heads as u32);
                let binds = [
                    writes("x", x.place),
                    reads("weight", self.weights.dense(o.weight.expect("was checked"))),
                ];
                let params = HeadNormParams {
                    head_dim: o.head_dim as u32,
                    x_stride: x.stride,
                    eps: o.eps,
                    weight_offset: o.weight_offset,
                };
                commands.dispatch(launch, &binds, &params);
            }
            Op::RopeKvWrite(o) => self.rope_kv_write(commands, o),
            Op::Attention(o) => self.attention(commands, o),
            Op::GatedAct(o) => {
                let (gate, up, out) = (self.rows(o.gate), self.rows(o.up), self.rows(o.out));
                let launch = self.elementwise("silu_mul", o.out);
                let binds = [
                    reads("gate", gate.place),
                    reads("up", up.place),
                    writes("out", out.place),
                ];
                let params = SiluMulParams {
                    width: out.width,
                    gate_stride: gate.stride,
                    up_stride: up.stride,
                    out_stride: out.stride,
                };
                commands.dispatch(launch, &binds, &params);
            }
            Op::Elementwise(o) => {
                let b = o.b.expect("an addition has two inputs");
                let (a, b, out) = (self.rows(o.a), self.rows(b), self.rows(o.out));
                let launch = self.elementwise("add", o.out);
                let binds = [
                    reads("a", a.place),
                    reads("b", b.place),
                    writes("out", out.place),
                ];
                let params = AddParams {
                    width: out.width,
                    a_stride: a.stride,
                    b_stride: b.stride,
                    out_stride: out.stride,
                };
                commands.dispatch(launch, &binds, &params);
            }
            Op::Gather(o) => {
                let (x, out) = (self.rows(o.x), self.rows(o.out));
                let launch = self.elementwise("gather", o.out);
                let binds = [
                    reads("x", x.place),
                    reads("rows", self.metadata.logit_rows),
                    writes("out", out.place),
                ];
                let params = GatherParams {
                    width: out.width,
                    x_stride: x.stride,
                    out_stride: out.stride,
                };
                commands.dispatch(launch, &binds, &params);
            }
            other => unreachable!("op {} was refused before", other.name()),
        }
    }

    /// A kernel with a thread for each element of `out`.
    fn elementwise(&self, name: &'static str, out: Slice) -> select::Launch {
        let rows = self.rows_of(self.plan.buffer_of(out).rows);
        select::elementwise(name, self.element, rows, out.width as u32)
    }

    fn embed(&mut self, commands: &mut Commands, o: &Embed) {
        let out = self.rows(o.out);
        let [table] = self.weights.segments(o.table) else {
            unreachable!("refused: a table of several types");
        };
        let params = EmbedParams {
            width: out.width,
            vocabulary: table.rows as u32,
            out_stride: out.stride,
            scale: o.scale,
        };
        let ids = reads("ids", self.metadata.token_ids);
        match table.format {
            Format::Dense => {
                let launch = self.elementwise("embed", o.out);
                let binds = [ids, reads("table", table.values), writes("out", out.place)];
                commands.dispatch(launch, &binds, &params);
            }
            Format::Q8_0 | Format::Q4_1 => {
                let (name, element) = match table.format {
                    Format::Q8_0 => ("embed_q8_0", "char"),
                    _ => ("embed_q4_1", "uchar"),
                };
                let launch = self.elementwise(name, o.out);
                let binds = [
                    ids,
                    reads("quants", table.values.of(element)),
                    reads("scales", table.scales.expect("quantized")),
                    writes("out", out.place),
                ];
                commands.dispatch(launch, &binds, &params);
            }
        }
    }

    fn rms_norm(&mut self, commands: &mut Commands, o: &RmsNorm) {
        let (x, out) = (self.rows(o.x), self.rows(o.out));
        let add = o.add.map(|add| self.rows(add));
        let rows = self.rows_of(self.plan.buffer_of(o.x).rows);
        let launch = select::rms_norm(self.element, rows, add.is_some(), o.weight.is_some());
        let unused = self.unused(self.activation());
        let binds = [
            writes("x", x.place),
            reads("add", add.map_or(unused, |a| a.place)),
            reads(
                "weight",
                o.weight.map_or(unused, |id| self.weights.dense(id)),
            ),
            writes("out", out.place),
        ];
        let params = RmsNormParams {
            width: x.width,
            x_stride: x.stride,
            add_stride: add.map_or(0, |a| a.stride),
            out_stride: out.stride,
            eps: o.eps,
            weight_offset: o.weight_offset,
        };
        commands.dispatch(launch, &binds, &params);
    }

    /// One dispatch for each stretch of rows that are stored alike; they write different columns of `out`.
    fn linear(
        &mut self,
        commands: &mut Commands,
        x: Slice,
        weight: WeightId,
        bias: Option<WeightId>,
        residual: Option<Rows>,
        out: Slice,
    ) {
        let weights = self.weights;
        let m = self.rows_of(self.plan.buffer_of(x).rows);
        let (x, out_rows) = (self.rows(x), self.rows(out));
        let bias = bias.map(|id| weights.dense(id));
        for segment in weights.segments(weight) {
            self.linear_segment(commands, m, x, segment, bias, residual, out_rows);
        }
    }

    fn linear_segment(
        &mut self,
        commands: &mut Commands,
        m: u32,
        x: Rows,
        segment: &Segment,
        bias: Option<Place>,
        residual: Option<Rows>,
        out: Rows,
    ) {
        let is_f32 = out.place.element == "float";
        let shape = LinearShape {
            m,
            n: segment.rows as u32,
            k: segment.columns as u32,
            element: self.element,
            weight: segment.format,
            out: if is_f32 { Element::F32 } else { self.element },
            has_bias: bias.is_some(),
            has_residual: residual.is_some(),
            has_rows: false,
            rows_aligned: is_aligned(x),
            batch_invariant: self.batch_invariant,
        };
        let choice = select::linear(&shape, self.device).expect("refused: rows out of alignment");
        let unused = self.unused(self.activation());
        let column_bytes = segment.first_row * element_bytes(self.element);
        let at_columns =
            |place: Option<Place>| place.map_or(unused, |place| place.bytes_on(column_bytes));
        let bias = reads("bias", at_columns(bias));
        let residual_stride = residual.map_or(0, |r| r.stride);
        let residual = reads("residual", at_columns(residual.map(|r| r.place)));
        let out_bytes = segment.first_row * if is_f32 { 4 } else { 2 };
        let out_place = out.place.bytes_on(out_bytes);
        let rows = reads("rows", self.unused("uint"));
        // Where K is split, the parts go beside each other and a second kernel adds them up.
        let (main_out, main_stride) = match choice.reduce {
            Some(_) => (self.partials(choice.partial_floats), shape.n),
            None => (out_place, out.stride),
        };
        let params = LinearParams {
            m,
            n: shape.n,
            k: shape.k,
            x_stride: x.stride,
            residual_stride,
            out_stride: main_stride,
            part_k: choice.part_k,
        };
        let (x, main_out) = (reads("x", x.place), writes("out", main_out));
        match segment.scales {
            None => {
                let weight = reads("weight", segment.values);
                let binds = [x, weight, bias, residual, rows, main_out];
                commands.dispatch(choice.main, &binds, &params);
            }
            Some(scales) => {
                let (quants, scales) = (reads("quants", segment.values), reads("scales", scales));
                let binds = [x, quants, scales, bias, residual, rows, main_out];
                commands.dispatch(choice.main, &binds, &params);
            }
        }
        if let Some(reduce) = choice.reduce {
            commands.barrier();
            let binds = [
                reads("partials", main_out.place),
                bias,
                residual,
                writes("out", out_place),
            ];
            let params = LinearReduceParams {
                m,
                n: shape.n,
                parts: choice.parts,
                residual_stride,
                out_stride: out.stride,
            };
            commands.dispatch(reduce, &binds, &params);
        }
    }

    fn pages(&self, kv: KvLayer) -> Pages {
        let group = &self.plan.kv_groups[kv.group];
        let tokens_per_page = self.layout.groups[kv.group].tokens_per_page;
        let plane: usize = group.planes.iter().map(|p| p.heads * p.width).sum();
        Pages {
            page_stride: (self.layout.page_bytes / 2) as u64,
            layer_offset: (kv.layer * plane * tokens_per_page) as u64,
            tokens_per_page: tokens_per_page as u32,
        }
    }

    fn rope_kv_write(&mut self, commands: &mut Commands, o: &RopeKvWrite) {
        let (q, k) = (self.rows(o.q), self.rows(o.k));
        let v = self.rows(o.v.expect("refused: latent attention"));
        let rope = o.rope.map(|id| &self.plan.ropes[id.0 as usize]);
        let turns = match o.rope {
            Some(id) => self.metadata.turns[id.0 as usize],
            None => self.unused("float2"),
        };
        let pages = self.pages(o.kv);
        let interleaved = rope.is_some_and(|r| r.style == RopeStyle::Interleaved);
        let (heads, kv_heads) = (o.heads as u32, o.kv_heads as u32);
        let launch = select::rope_kv_write(self.element, self.tokens, heads, kv_heads, interleaved);
        let kv = Place::new(self.buffers.pages, 0, self.activation());
        let binds = [
            writes("q", q.place),
            writes("k", k.place),
            reads("v", v.place),
            reads("turns", turns),
            reads("slots", self.metadata.groups[o.kv.group].slots),
            writes("pages", kv),
        ];
        let params = RopeParams {
            page_stride: pages.page_stride,
            layer_offset: pages.layer_offset,
            heads,
            kv_heads,
            head_dim: o.head_dim as u32,
            rotate_from: o.rotate_from as u32,
            pairs: rope.map_or(0, |r| r.dims as u32 / 2),
            q_stride: q.stride,
            k_stride: k.stride,
            v_stride: v.stride,
            tokens_per_page: pages.tokens_per_page,
        };
        commands.dispatch(launch, &binds, &params);
    }

    /// Short sequences query by query, long ones in tiles: different rows of `out`.
    fn attention(&mut self, commands: &mut Commands, o: &Attention) {
        let KvSource::Paged(kv) = o.kv else {
            unreachable!("refused: attention without a cache");
        };
        if self.metadata.prefill.tiles > 0 {
            self.attention_prefill(commands, o, kv);
        }
        if self.metadata.decode.queries > 0 {
            self.attention_decode(commands, o, kv);
        }
    }

    fn attention_prefill(&mut self, commands: &mut Commands, o: &Attention, kv: KvLayer) {
        let (q, out, pages) = (self.rows(o.q), self.rows(o.out), self.pages(kv));
        let (tiles, group) = (self.metadata.prefill, self.metadata.groups[kv.group]);
        let shape = select::PrefillShape {
            element: self.element,
            tiles: tiles.tiles,
            heads: o.heads as u32,
            head_dim: o.head_dim as u32,
            rows_aligned: is_aligned(q) && (o.head_dim * 2).is_multiple_of(16),
        };
        let launch =
            select::attention_prefill(&shape, self.device).expect("refused: the head's size");
        let binds = [
            reads("q", q.place),
            reads("pages", Place::new(self.buffers.pages, 0, q.place.element)),
            reads("tiles", tiles.tile_list),
            reads("query_start", tiles.query_start),
            reads("contexts", tiles.contexts),
            reads("tables", group.sequence_tables),
            reads("blocks", group.blocks),
            writes("out", out.place),
        ];
        let params = PrefillParams {
            page_stride: pages.page_stride,
            layer_offset: pages.layer_offset,
            heads: o.heads as u32,
            kv_heads: o.kv_heads as u32,
            head_dim: o.head_dim as u32,
            tokens_per_page: pages.tokens_per_page,
            q_stride: q.stride,
            out_stride: out.stride,
            window: o.window.unwrap_or(0) as u32,
            scale: o.scale,
        };
        commands.dispatch(launch, &binds, &params);
    }

    fn attention_decode(&mut self, commands: &mut Commands, o: &Attention, kv: KvLayer) {
        let (q, out, pages) = (self.rows(o.q), self.rows(o.out), self.pages(kv));
        let (decode, group) = (self.metadata.decode, self.metadata.groups[kv.group]);
        let shape = select::DecodeShape {
            element: self.element,
            queries: decode.queries,
            heads: o.heads as u32,
            kv_heads: o.kv_heads as u32,
            head_dim: o.head_dim as u32,
            longest_context: decode.longest_context,
            tokens_per_page: pages.tokens_per_page,
            batch_invariant: self.batch_invariant,
        };
        let choice =
            select::attention_decode(&shape, self.device).expect("refused: the head's size");
        let partials = match choice.partial_floats {
            0 => self.unused("float"),
            floats => self.partials(floats),
        };
        let binds: [Bind; 8] = [
            reads("q", q.place),
            reads("pages", Place::new(self.buffers.pages, 0, q.place.element)),
            reads("rows", decode.rows),
            reads("contexts", decode.contexts),
            reads("tables", group.query_tables),
            reads("blocks", group.blocks),
            writes("partials", partials),
            writes("out", out.place),
        ];
        let params = DecodeParams {
            page_stride: pages.page_stride,
            layer_offset: pages.layer_offset,
            heads: o.heads as u32,
            kv_heads: o.kv_heads as u32,
            head_dim: o.head_dim as u32,
            tokens_per_page: pages.tokens_per_page,
            q_stride: q.stride,
            out_stride: out.stride,
            part_tokens: choice.part_tokens,
            parts: choice.parts,
            window: o.window.unwrap_or(0) as u32,
            scale: o.scale,
        };
        commands.dispatch(choice.attend, &binds, &params);
        if let Some(reduce) = choice.reduce {
            commands.barrier();
            let binds = [
                reads("partials", partials),
                reads("rows", decode.rows),
                writes("out", out.place),
            ];
            commands.dispatch(reduce, &binds, &params);
        }
    }
}

/// Where the logits of so many ids lie behind them.
pub fn top_values_at(ids: usize) -> usize {
    (ids * 4).next_multiple_of(16)
}

/// Every row starts at a multiple of 16 bytes.
pub fn is_aligned(x: Rows) -> bool {
    x.place.offset.is_multiple_of(16) && (x.stride * 2).is_multiple_of(16)
}
