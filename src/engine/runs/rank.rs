//! Sums over the front of a growing sequence of counts, each in O(log n): a Fenwick tree.

#[derive(Debug, Default)]
pub(super) struct Sums {
    /// Entry `n - 1` holds the sum of the `lowest_bit(n)` counts that end with the n-th.
    tree: Vec<u32>,
}

impl Sums {
    pub(super) fn len(&self) -> usize {
        self.tree.len()
    }

    pub(super) fn clear(&mut self) {
        self.tree = Vec::new();
    }

    /// Appends a count.
    pub(super) fn push(&mut self, count: u32) {
        let n = self.tree.len() + 1;
        let before = self.first(n - 1) - self.first(n - lowest_bit(n));
        self.tree.push(before + count);
    }

    /// The n-th count, from 1, grows by one.
    pub(super) fn increment(&mut self, n: usize) {
        self.change(n, |sum| *sum += 1);
    }

    /// The n-th count, from 1, shrinks by one.
    pub(super) fn decrement(&mut self, n: usize) {
        self.change(n, |sum| *sum -= 1);
    }

    /// The sum of the first `n` counts.
    pub(super) fn first(&self, n: usize) -> u32 {
        let mut at = n.min(self.tree.len());
        let mut sum = 0;
        while at > 0 {
            sum += self.tree[at - 1];
            at -= lowest_bit(at);
        }
        sum
    }

    fn change(&mut self, n: usize, change: impl Fn(&mut u32)) {
        let mut at = n;
        while at <= self.tree.len() {
            change(&mut self.tree[at - 1]);
            at += lowest_bit(at);
        }
    }
}

fn lowest_bit(n: usize) -> usize {
    n & n.wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_are_those_of_a_plain_sequence(
            counts in prop::collection::vec(0_u32..9, 0..70), grown in prop::collection::vec(0_usize..70, 0..40),
        ) {
            let mut plain = counts.clone();
            let mut sums = Sums::default();
            counts.iter().for_each(|count| sums.push(*count));
            for at in grown.into_iter().filter(|at| *at < counts.len()) {
                plain[at] += 1;
                sums.increment(at + 1);
            }
            for n in 0..=plain.len() {
                prop_assert_eq!(sums.first(n), plain[..n].iter().sum::<u32>());
            }
        }
    }
}
