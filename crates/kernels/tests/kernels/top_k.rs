//! Owns the test of top-k: exact, so equal to a sort.

use crate::support::*;

fn top_k(rows: usize, width: usize, k: usize, logits: &[f32], seeds: &[u32]) {
    for &seed in seeds {
        let ids = Storage::F32.poisoned(rows * k);
        let values = Storage::F32.poisoned(rows * k);
        Dispatch {
            kernel: "top_k_f32".to_string(),
            buffers: &[&Storage::F32.buffer(logits), &ids, &values],
            params: &[("width", u(width)), ("stride", u(width)), ("k", u(k))],
            constants: &[],
            groups: [rows, 1, 1],
            threads: 256,
            threadgroup_bytes: (256 + 16 + 512) * 4,
        }
        .run(seed);
        let (ids, values) = (read_words(&ids), Storage::F32.read(&values));
        for row in 0..rows {
            let x = &logits[row * width..][..width];
            let mut order: Vec<u32> = (0..width as u32).collect();
            order.sort_by(|&a, &b| x[b as usize].total_cmp(&x[a as usize]).then(a.cmp(&b)));
            assert_eq!(
                ids[row * k..][..k],
                order[..k],
                "width {width} k {k} seed {seed}"
            );
            let wanted: Vec<f32> = order[..k].iter().map(|&id| x[id as usize]).collect();
            assert_eq!(values[row * k..][..k], wanted);
        }
    }
}

#[test]
fn random_logits() {
    for (width, k) in [(1, 1), (5, 5), (300, 1), (1000, 50), (5000, 256)] {
        top_k(
            3,
            width,
            k,
            &random(Storage::F32, width as u64, 3 * width),
            &SEEDS,
        );
    }
}

#[test]
fn ties_go_to_the_lower_index() {
    let steps: Vec<f32> = (0..2000).map(|i| ((i * 37) % 11) as f32 - 5.0).collect();
    top_k(2, 1000, 120, &steps, &SEEDS);
    top_k(1, 700, 40, &[1.5; 700], &SEEDS);
}

/// For the sanitizer.
pub fn one_of_each(seed: u32) {
    top_k(2, 300, 256, &random(Storage::F32, 5, 600), &[seed]);
    top_k(1, 5, 5, &random(Storage::F32, 5, 5), &[seed]);
}
