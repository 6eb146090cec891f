//! Owns the test of top-k: exact, so equal to a sort.

use super::SuiteArgument::{In, Out};
use super::numbers::{check, random, read_words, u};
use super::{Bench, Case};
use crate::select::{self, Element};

fn top_k(
    bench: &mut Bench,
    rows: usize,
    width: usize,
    k: usize,
    logits: &[f32],
) -> Result<(), String> {
    let choice = select::top_k(rows as u32, width as u32, k as u32).ok_or("no such top-k")?;
    let parts = choice.parts as usize;
    let mut ids = Element::F32.poisoned(rows * parts * k);
    let mut values = Element::F32.poisoned(rows * parts * k);
    bench.dispatch(
        &choice.main,
        &mut [
            In(&Element::F32.encode(logits)),
            In(&[0; 4]),
            Out(&mut ids),
            Out(&mut values),
        ],
        &[
            ("width", u(width)),
            ("stride", u(width)),
            ("k", u(k)),
            ("part_width", u(choice.part_width as usize)),
            ("parts", u(parts)),
        ],
    )?;
    if let Some(merge) = choice.merge {
        let (candidates, found) = (ids, values);
        ids = Element::F32.poisoned(rows * k);
        values = Element::F32.poisoned(rows * k);
        bench.dispatch(
            &merge,
            &mut [In(&found), In(&candidates), Out(&mut ids), Out(&mut values)],
            &[
                ("width", u(parts * k)),
                ("stride", u(parts * k)),
                ("k", u(k)),
                ("part_width", u(parts * k)),
                ("parts", u(1)),
            ],
        )?;
    }
    let (ids, values) = (read_words(&ids), Element::F32.decode(&values));
    for row in 0..rows {
        let x = &logits[row * width..][..width];
        let mut order: Vec<u32> = (0..width as u32).collect();
        let size = |id: u32| match x[id as usize] {
            nan if nan.is_nan() => (false, 0.0),
            number => (true, number),
        };
        let largest_first = |a: &u32, b: &u32| {
            let ((a_counts, x), (b_counts, y)) = (size(*a), size(*b));
            b_counts.cmp(&a_counts).then(y.total_cmp(&x)).then(a.cmp(b))
        };
        order.sort_by(largest_first);
        let got = &ids[row * k..][..k];
        check(*got == order[..k], || {
            format!("row {row}: {got:?}, not {:?}", &order[..k])
        })?;
        let wanted: Vec<f32> = order[..k].iter().map(|&id| x[id as usize]).collect();
        let got = &values[row * k..][..k];
        let bits = |values: &[f32]| -> Vec<u32> { values.iter().map(|v| v.to_bits()).collect() };
        check(bits(got) == bits(&wanted), || {
            format!("row {row}: values {got:?}")
        })?;
    }
    Ok(())
}

pub(super) fn cases() -> Vec<Case> {
    let sizes = [
        (1, 1),
        (5, 5),
        (300, 1),
        (1000, 50),
        (5000, 256),
        (4097, 1),
        (20011, 7),
    ];
    let mut cases: Vec<Case> = sizes
        .into_iter()
        .map(|(width, k)| {
            Case::new(format!("top_k/width{width}/k{k}"), move |bench| {
                let logits = random(Element::F32, width as u64, 3 * width);
                top_k(bench, 3, width, k, &logits)
            })
        })
        .collect();
    cases.push(Case::new(
        "top_k/ties_go_to_the_lower_index".into(),
        |bench| {
            let steps: Vec<f32> = (0..2000).map(|i| ((i * 37) % 11) as f32 - 5.0).collect();
            top_k(bench, 2, 1000, 120, &steps)?;
            let steps: Vec<f32> = (0..2 * 9001)
                .map(|i| ((i * 37) % 11) as f32 - 5.0)
                .collect();
            top_k(bench, 2, 9001, 120, &steps)?;
            top_k(bench, 1, 700, 40, &[1.5; 700])
        },
    ));
    // Numbers with no other between them, in which every bit of the order counts.
    cases.push(Case::new("top_k/neighbouring_numbers".into(), |bench| {
        let logits: Vec<f32> = (0..900_u32)
            .map(|i| f32::from_bits(0x3f80_0000 + i * 37 % 450))
            .collect();
        top_k(bench, 1, 900, 101, &logits)?;
        top_k(bench, 1, 900, 1, &logits)
    }));
    // As many in the highest bin of the first round as are wanted.
    cases.push(Case::new("top_k/a_bin_holds_exactly_k".into(), |bench| {
        let logits: Vec<f32> = (0..600)
            .map(|i| {
                if i % 100 == 7 {
                    100.0 + i as f32 / 64.0
                } else {
                    0.01
                }
            })
            .collect();
        top_k(bench, 1, 600, 6, &logits)
    }));
    cases.push(Case::new("top_k/k_of_256_among_equals".into(), |bench| {
        top_k(bench, 1, 700, 256, &[1.5; 700])
    }));
    // NaN counts as the smallest, whatever its bits, below minus infinity; the sort knows the same order.
    cases.push(Case::new("top_k/nan_comes_last".into(), |bench| {
        let logits: Vec<f32> = (0..40)
            .map(|i| match i % 4 {
                0 => f32::NEG_INFINITY,
                1 => f32::from_bits(0x7f80_0001),
                2 => f32::from_bits(0xffc0_0000),
                _ => i as f32,
            })
            .collect();
        top_k(bench, 1, 40, 33, &logits)
    }));
    cases.push(Case::new("once/top_k_f32".into(), |bench| {
        top_k(bench, 2, 300, 256, &random(Element::F32, 5, 600))
    }));
    cases
}
