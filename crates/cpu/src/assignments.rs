//! Owns the order in which a step's (token, expert) pairs are computed: by expert, so that each expert's weights are read
//! once, and inside an expert by token.

/// The tokens of one chosen expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    pub expert: usize,
    /// Their rows of the scratch: neighbours.
    pub first: usize,
    pub rows: usize,
    /// What a panel of all groups before this one costs, and what one of this costs.
    before: usize,
    cost: usize,
}

/// Reading and unpacking a panel of weights takes about as long as multiplying it with so many rows.
const COST_OF_WEIGHTS: usize = 8;

/// Memory for the pairs of the largest step.
pub struct Assignments {
    /// The row of the scratch of each pair, a token's side by side, best expert first.
    places: Vec<u32>,
    groups: Vec<Group>,
    /// By expert: its pairs, then the next free row.
    next: Vec<u32>,
}

impl Assignments {
    pub fn new(pairs: usize, experts: usize) -> Assignments {
        Assignments {
            places: Vec::with_capacity(pairs),
            groups: Vec::with_capacity(pairs.min(experts)),
            next: Vec::with_capacity(experts),
        }
    }

    pub fn bytes(&self) -> usize {
        let numbers = self.places.capacity() + self.next.capacity();
        numbers * size_of::<u32>() + self.groups.capacity() * size_of::<Group>()
    }

    /// Sorts pairs, given as the expert of each.
    pub fn sort(&mut self, experts: usize, pairs: impl Iterator<Item = u32> + Clone) {
        self.next.clear();
        self.next.resize(experts, 0);
        for expert in pairs.clone() {
            self.next[expert as usize] += 1;
        }
        self.groups.clear();
        let (mut first, mut before) = (0, 0);
        for (expert, next) in self.next.iter_mut().enumerate() {
            let rows = std::mem::replace(next, first as u32) as usize;
            if rows > 0 {
                let cost = COST_OF_WEIGHTS + rows;
                self.groups.push(Group {
                    expert,
                    first,
                    rows,
                    before,
                    cost,
                });
                first += rows;
                before += cost;
            }
        }
        self.places.clear();
        for expert in pairs {
            let next = &mut self.next[expert as usize];
            self.places.push(*next);
            *next += 1;
        }
    }

    /// The row of the scratch that a pair is computed in.
    pub fn place(&self, pair: usize) -> usize {
        self.places[pair] as usize
    }

    /// Calls `work` with the parts of item `item` of `items`: a group, and the first and last (exclusive) of the `units`
    /// that each expert's work consists of. All items together are all units of all groups, once, in shares of about the
    /// same cost.
    pub fn for_each_part(
        &self,
        units: usize,
        item: usize,
        items: usize,
        mut work: impl FnMut(&Group, usize, usize),
    ) {
        let total = self.groups.last().map_or(0, |g| g.before + g.cost) * units;
        let (start, end) = (total * item / items, total * (item + 1) / items);
        for group in &self.groups {
            // Units that start before this much of all work is done.
            let before = |work: usize| {
                let inside = work.saturating_sub(group.before * units);
                inside.div_ceil(group.cost).min(units)
            };
            let (from, to) = (before(start), before(end));
            if from < to {
                work(group, from, to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(experts: usize, pairs: &[u32]) -> Assignments {
        let mut assignments = Assignments::new(pairs.len(), experts);
        assignments.sort(experts, pairs.iter().copied());
        assignments
    }

    #[test]
    fn pairs_of_an_expert_are_neighbours_in_the_order_of_tokens() {
        let pairs = [3, 1, 0, 3, 3, 1, 5, 0];
        let assignments = sorted(6, &pairs);
        let places: Vec<usize> = (0..pairs.len()).map(|p| assignments.place(p)).collect();
        assert_eq!(places, [4, 2, 0, 5, 6, 3, 7, 1]);
        let groups: Vec<_> = assignments
            .groups
            .iter()
            .map(|g| (g.expert, g.first, g.rows))
            .collect();
        assert_eq!(groups, [(0, 0, 2), (1, 2, 2), (3, 4, 3), (5, 7, 1)]);
    }

    #[test]
    fn items_are_every_unit_once() {
        let skewed: Vec<u32> = (0..300)
            .map(|i| if i % 3 == 0 { i % 17 } else { 4 })
            .collect();
        for pairs in [&skewed[..], &[2, 7], &[0]] {
            let assignments = sorted(17, pairs);
            for units in [1, 3, 22] {
                for items in [1, 2, 8, units].into_iter().filter(|i| *i <= units) {
                    let mut done = vec![vec![0; units]; 17];
                    for item in 0..items {
                        assignments.for_each_part(units, item, items, |group, from, to| {
                            done[group.expert][from..to]
                                .iter_mut()
                                .for_each(|d| *d += 1);
                        });
                    }
                    for (expert, done) in done.iter().enumerate() {
                        let wanted = pairs.contains(&(expert as u32)) as i32;
                        assert!(done.iter().all(|d| *d == wanted), "{items}: {done:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn sorting_again_allocates_nothing() {
        let mut assignments = Assignments::new(64, 8);
        let before = assignments.bytes();
        for round in 0..10 {
            assignments.sort(8, (0..64).map(|i| (i * round) % 8));
            assert_eq!(assignments.bytes(), before);
        }
    }
}
