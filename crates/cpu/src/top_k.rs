//! Owns the choice of the largest logits of each row: largest first, ties to the lower id.

/// Fills `out` with `k` ids and logits a row.
pub fn top_k(logits: &[f32], width: usize, k: usize, out: &mut (Vec<u32>, Vec<f32>)) {
    let k = k.min(width);
    out.0.clear();
    out.1.clear();
    let mut order: Vec<u32> = Vec::with_capacity(width);
    for row in logits.chunks_exact(width) {
        order.clear();
        order.extend(0..width as u32);
        let by_size =
            |a: &u32, b: &u32| row[*b as usize].total_cmp(&row[*a as usize]).then(a.cmp(b));
        if k < width && k > 0 {
            order.select_nth_unstable_by(k - 1, by_size);
        }
        order.truncate(k);
        order.sort_unstable_by(by_size);
        out.0.extend(&order);
        out.1.extend(order.iter().map(|id| row[*id as usize]));
    }
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
}
