//! Owns the test of rotation and of the write to pages, against f64.

use super::SuiteArgument::{In, InOut};
use super::numbers::{HALVES, check, close, l, random, u, words};
use super::{Bench, Case};
use crate::select::{self, Element};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for element in HALVES {
        let suffix = element.suffix();
        for (name, interleaved, rotate_from, dims) in [
            (format!("rope_kv_write/{suffix}/halves"), false, 0, 64),
            (format!("rope_kv_write/{suffix}/neighbours"), true, 0, 64),
            (format!("once/rope_kv_write_{suffix}"), false, 8, 24),
        ] {
            cases.push(Case::new(name, move |bench| {
                rope(bench, element, interleaved, rotate_from, dims)
            }));
        }
    }
    cases
}

fn rope(
    bench: &mut Bench,
    element: Element,
    interleaved: bool,
    rotate_from: usize,
    dims: usize,
) -> Result<(), String> {
    let (heads, kv_heads, head_dim, tokens_per_page, layers, layer) = (3, 2, 64, 16, 2, 1);
    let positions = [0_usize, 5, 100_000, 31];
    let slots: [i32; 4] = [35, 0, 79, -1];
    let (tokens, pairs) = (positions.len(), dims / 2);
    let (q_stride, kv_stride) = (heads * head_dim, kv_heads * head_dim);
    let angle = |position: usize, i: usize| {
        position as f64 * 10_000_f64.powf(-2.0 * i as f64 / dims as f64)
    };
    let turns: Vec<f64> = (positions.iter())
        .flat_map(|&position| (0..pairs).map(move |i| angle(position, i)))
        .flat_map(|angle| [angle.cos(), angle.sin()])
        .collect();
    let turn_floats: Vec<f32> = turns.iter().map(|&v| v as f32).collect();
    let q = random(element, 21, tokens * q_stride);
    let k = random(element, 22, tokens * kv_stride);
    let v = random(element, 23, tokens * kv_stride);
    let turned = |x: &[f32], stride: usize| {
        let mut out: Vec<f64> = x.iter().map(|&v| f64::from(v)).collect();
        for (at, head) in out.chunks_mut(head_dim).enumerate() {
            let token = at * head_dim / stride;
            for i in 0..pairs {
                let first = rotate_from + if interleaved { 2 * i } else { i };
                let second = first + if interleaved { 1 } else { pairs };
                let turn = 2 * (token * pairs + i);
                let (cos, sin) = (turns[turn], turns[turn + 1]);
                let (a, b) = (head[first], head[second]);
                head[first] = a * cos - b * sin;
                head[second] = b * cos + a * sin;
            }
        }
        out
    };
    let (wanted_q, wanted_k) = (turned(&q, q_stride), turned(&k, kv_stride));
    let plane = kv_heads * tokens_per_page * head_dim;
    let page_stride = layers * 2 * plane;
    let (mut q, mut k) = (element.encode(&q), element.encode(&k));
    let mut pages = element.poisoned(5 * page_stride);
    let launch = select::rope_kv_write(
        element,
        tokens as u32,
        heads as u32,
        kv_heads as u32,
        interleaved,
    );
    bench.dispatch(
        &launch,
        &mut [
            InOut(&mut q),
            InOut(&mut k),
            In(&element.encode(&v)),
            In(&Element::F32.encode(&turn_floats)),
            In(&words(&slots.map(|s| s as u32))),
            InOut(&mut pages),
        ],
        &[
            ("page_stride", l(page_stride)),
            ("layer_offset", l(layer * 2 * plane)),
            ("heads", u(heads)),
            ("kv_heads", u(kv_heads)),
            ("head_dim", u(head_dim)),
            ("rotate_from", u(rotate_from)),
            ("pairs", u(pairs)),
            ("q_stride", u(q_stride)),
            ("k_stride", u(kv_stride)),
            ("v_stride", u(kv_stride)),
            ("tokens_per_page", u(tokens_per_page)),
        ],
    )?;
    let rounding = element.rounding() * 1.1;
    close("q", &element.decode(&q), &wanted_q, 1e-6, rounding)?;
    let got_k = element.decode(&k);
    close("k", &got_k, &wanted_k, 1e-6, rounding)?;
    let pages = element.decode(&pages);
    let mut written = 0;
    for (token, slot) in slots.iter().enumerate().filter(|(_, slot)| **slot >= 0) {
        let (page, place) = (
            *slot as usize / tokens_per_page,
            *slot as usize % tokens_per_page,
        );
        for head in 0..kv_heads {
            let key = page * page_stride
                + layer * 2 * plane
                + (head * tokens_per_page + place) * head_dim;
            let at = token * kv_stride + head * head_dim;
            let same = pages[key..][..head_dim] == got_k[at..][..head_dim]
                && pages[key + plane..][..head_dim] == v[at..][..head_dim];
            check(same, || format!("token {token} head {head} in its page"))?;
            written += 2 * head_dim;
        }
    }
    let touched = pages.iter().filter(|v| !v.is_nan()).count();
    check(touched == written, || {
        format!("{touched} elements of pages are written, not {written}")
    })
}
