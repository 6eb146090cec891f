//! Owns the merges of a SentencePiece BPE vocabulary, which its file does not list: every way to make a piece of two
//! others, the best score first.

use std::cmp::Reverse;
use std::collections::HashSet;

/// A piece that others may be merged into. `first` ones come before every score: SentencePiece looks for pieces that a
/// user defined before it merges anything.
pub(crate) struct Mergeable<'v> {
    pub(crate) text: &'v str,
    pub(crate) id: u32,
    pub(crate) score: f32,
    pub(crate) first: bool,
}

/// Trying every cut of a piece takes the square of its length, and no vocabulary has pieces this long.
const LONGEST: usize = 1024;

/// As transformers derives them. Two splits of one piece only compete in a text that repeats itself (`aa a aa`): the
/// longer left half wins there, where SentencePiece would take the leftmost.
pub(crate) fn merges(mut pieces: Vec<Mergeable<'_>>) -> Vec<(String, String)> {
    let known: HashSet<&str> = pieces.iter().map(|piece| piece.text).collect();
    pieces.sort_by(|a, b| {
        let by_score = b.first.cmp(&a.first).then(match a.first {
            true => std::cmp::Ordering::Equal,
            false => b.score.total_cmp(&a.score),
        });
        by_score.then(a.id.cmp(&b.id))
    });
    let mut merges = Vec::new();
    for piece in pieces.iter().filter(|piece| piece.text.len() <= LONGEST) {
        let cuts = piece.text.char_indices().skip(1).map(|(at, _)| at);
        let halves = cuts.map(|at| piece.text.split_at(at));
        let mut halves: Vec<_> = halves
            .filter(|(left, right)| known.contains(left) && known.contains(right))
            .collect();
        halves.sort_by_key(|(left, _)| Reverse(left.len()));
        merges.extend(halves.iter().map(|(left, right)| pair(left, right)));
    }
    merges
}

fn pair(left: &str, right: &str) -> (String, String) {
    (left.to_owned(), right.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn derived(pieces: &[(&str, f32, bool)]) -> Vec<String> {
        let pieces = pieces.iter().zip(0..);
        let pieces = pieces.map(|((text, score, first), id)| Mergeable {
            text,
            id,
            score: *score,
            first: *first,
        });
        let merges = merges(pieces.collect());
        merges.iter().map(|(a, b)| format!("{a} {b}")).collect()
    }

    #[test]
    fn best_score_first_then_the_longer_left_half() {
        let pieces = [
            ("aaa", -2.0, false),
            ("aa", -1.0, false),
            ("éa", -0.5, false),
            ("xyz", 0.0, false),
            ("a", -8.0, false),
            ("é", -9.0, false),
        ];
        assert_eq!(derived(&pieces), ["é a", "a a", "aa a", "a aa"]);
    }

    #[test]
    fn equal_scores_go_by_id_and_user_defined_pieces_lead() {
        let pieces = [
            ("ba", 0.0, false),
            ("ab", 0.0, false),
            ("aa", -1000.0, true),
            ("bb", -10.0, true),
            ("a", f32::NAN, false),
            ("b", 0.0, false),
        ];
        assert_eq!(derived(&pieces), ["a a", "b b", "b a", "a b"]);
    }
}
