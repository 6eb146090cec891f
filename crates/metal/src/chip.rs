//! Owns what is known of a chip by its name alone.

/// GPU cores of a chip whose registry entry does not say: those of the full-sized chip of the latest generation that has
/// been out for long (M4: 10, 20, 40; Ultra: twice a Max). Only the choice of tiles and of context splits depends on it,
/// so that being off by a few cores costs a little speed and no correctness.
pub fn usual_cores(name: &str) -> u32 {
    let sizes = [("Ultra", 80), ("Max", 40), ("Pro", 20)];
    let is_size = |size: &str| name.split(' ').any(|word| word == size);
    sizes
        .iter()
        .find(|(size, _)| is_size(size))
        .map_or(10, |(_, cores)| *cores)
}

/// Bytes that may be allocated of those that the system recommends at most: the rest is for what Metal itself allocates
/// and for the screen.
pub fn budget(recommended: u64) -> usize {
    const HELD_BACK: u64 = 2 << 30;
    usize::try_from(recommended.saturating_sub(HELD_BACK)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_words_of_the_name() {
        assert_eq!(usual_cores("Apple M1"), 10);
        assert_eq!(usual_cores("Apple M3 Pro"), 20);
        assert_eq!(usual_cores("Apple M2 Max"), 40);
        assert_eq!(usual_cores("Apple M3 Ultra"), 80);
        assert_eq!(usual_cores("Apple Paravirtual device"), 10);
        assert_eq!(usual_cores("Apple Promising"), 10);
    }

    #[test]
    fn a_small_machine_has_a_budget_of_nothing_and_not_less() {
        assert_eq!(budget(48 << 30), 46 << 30);
        assert_eq!(budget(1 << 30), 0);
    }
}
