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
        order.sort_by(|&a, &b| x[b as usize].total_cmp(&x[a as usize]).then(a.cmp(&b)));
        let got = &ids[row * k..][..k];
        check(*got == order[..k], || {
            format!("row {row}: {got:?}, not {:?}", &order[..k])
        })?;
        let wanted: Vec<f32> = order[..k].iter().map(|&id| x[id as usize]).collect();
        let got = &values[row * k..][..k];
        check(*got == wanted, || format!("row {row}: values {got:?}"))?;
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
    cases.push(Case::new("once/top_k_f32".into(), |bench| {
        top_k(bench, 2, 300, 256, &random(Element::F32, 5, 600))
    }));
    cases
}
