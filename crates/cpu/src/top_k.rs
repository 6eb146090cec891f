//! Owns the choice of the largest logits of each row: largest first, ties to the lower id.

/// Up to this many are kept in order while walking over a row; more are selected and then sorted.
const FEW: usize = 64;

/// Fills `out` with `k` ids and logits a row.
pub fn top_k(logits: &[f32], width: usize, k: usize, out: &mut (Vec<u32>, Vec<f32>)) {
    let k = k.min(width);
    out.0.clear();
    out.1.clear();
    for row in logits.chunks_exact(width) {
        match k {
            0 => {}
            1..=FEW => few(row, k, out),
            _ => many(row, k, out),
        }
    }
}

/// An integer that orders as `total_cmp` does.
fn rank(logit: f32) -> i32 {
    let bits = logit.to_bits() as i32;
    bits ^ ((bits >> 31) as u32 >> 1) as i32
}

fn few(row: &[f32], k: usize, (ids, logits): &mut (Vec<u32>, Vec<f32>)) {
    let first = ids.len();
    let mut least = i32::MIN;
    for (id, logit) in row.iter().enumerate() {
        let found = ids.len() - first;
        // Equal ones come later: the lower id is there already.
        if found == k && rank(*logit) <= least {
            continue;
        }
        if found == k {
            ids.pop();
            logits.pop();
        }
        let place = logits[first..].partition_point(|kept| rank(*kept) >= rank(*logit));
        ids.insert(first + place, id as u32);
        logits.insert(first + place, *logit);
        least = logits.last().map_or(least, |logit| rank(*logit));
    }
}

fn many(row: &[f32], k: usize, (ids, logits): &mut (Vec<u32>, Vec<f32>)) {
    let mut order: Vec<u32> = (0..row.len() as u32).collect();
    let by_size = |a: &u32, b: &u32| {
        let (a_rank, b_rank) = (rank(row[*a as usize]), rank(row[*b as usize]));
        b_rank.cmp(&a_rank).then(a.cmp(b))
    };
    if k < order.len() {
        order.select_nth_unstable_by(k - 1, by_size);
    }
    order.truncate(k);
    order.sort_unstable_by(by_size);
    ids.extend(&order);
    logits.extend(order.iter().map(|id| row[*id as usize]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_first_and_ties_to_the_lower_id() {
        let logits = [1.0, 3.0, 3.0, -1.0, 0.0, 0.0, 0.0, 5.0];
        let mut out = (Vec::new(), Vec::new());
        top_k(&logits, 4, 2, &mut out);
        assert_eq!(out.0, [1, 2, 3, 0]);
        assert_eq!(out.1, [3.0, 3.0, 5.0, 0.0]);
        top_k(&logits, 4, 9, &mut out);
        assert_eq!(out.0, [1, 2, 0, 3, 3, 0, 1, 2]);
    }

    #[test]
    fn few_and_many_agree_with_sorting_everything() {
        let row: Vec<f32> = (0..500)
            .map(|i| match i % 97 {
                0 => f32::NAN,
                1 => -0.0,
                2 => 0.0,
                3 => f32::NEG_INFINITY,
                n => ((i * 7919 + n) % 101) as f32 - 50.0,
            })
            .collect();
        let mut order: Vec<u32> = (0..500).collect();
        order.sort_by(|a, b| row[*b as usize].total_cmp(&row[*a as usize]).then(a.cmp(b)));
        let mut out = (Vec::new(), Vec::new());
        for k in [1, 2, 5, 63, 64, 65, 499, 500, 501] {
            top_k(&[&row[..], &row[..]].concat(), 500, k, &mut out);
            let k = k.min(500);
            assert_eq!(out.0[..k], order[..k], "{k}");
            assert_eq!(out.0[k..], order[..k], "{k}");
            let bits = |id: &u32| row[*id as usize].to_bits();
            let expected: Vec<u32> = order[..k].iter().map(bits).collect();
            let found: Vec<u32> = out.1[..k].iter().map(|l| l.to_bits()).collect();
            assert_eq!(found, expected, "{k}");
        }
    }
}
