//! How many slots there are and who holds them: the same arithmetic for a lane and for the pool around it.

use super::priority::Priority;

/// A set of classes, by own class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClassSet(u8);

impl ClassSet {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const INTERACTIVE: Self = Self(1 << Priority::Interactive as u8);
    pub(crate) const ALL: Self = Self(0b111);

    pub(crate) const fn contains(self, class: Priority) -> bool {
        self.0 & (1 << class as u8) != 0
    }

    pub(crate) const fn intersect(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<Priority> for ClassSet {
    fn from_iter<I: IntoIterator<Item = Priority>>(classes: I) -> Self {
        Self(classes.into_iter().fold(0, |set, class| set | 1 << class as u8))
    }
}

/// Slots in use, by class, against a limit.
///
/// The count is the only truth: being above a lowered limit means no grants until it drains, and nothing else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    /// `None`: unlimited.
    limit: Option<u32>,
    reserve: u32,
    in_use: [u32; 3],
}

impl Capacity {
    /// A `limit` of 0 means unlimited.
    pub(crate) fn new(limit: u32, reserve: u32) -> Self {
        let mut capacity = Self { limit: None, reserve, in_use: [0; 3] };
        capacity.resize(limit, reserve);
        capacity
    }

    pub(crate) fn resize(&mut self, limit: u32, reserve: u32) {
        self.limit = (limit > 0).then_some(limit);
        self.reserve = reserve;
    }

    pub(crate) fn limit(&self) -> Option<u32> {
        self.limit
    }

    /// Slots kept for interactive callers: always one fewer than the limit at most, so that the others can move.
    pub(crate) fn reserve(&self) -> u32 {
        self.limit.map_or(0, |limit| self.reserve.min(limit - 1))
    }

    pub(crate) fn in_use(&self) -> u32 {
        self.in_use.iter().sum()
    }

    pub(crate) fn in_use_by_class(&self) -> [u32; 3] {
        self.in_use
    }

    /// The classes that may take a slot while no more than `most` may be in use, nor more than the limit.
    #[inline]
    pub(crate) fn open_to(&self, most: u32) -> ClassSet {
        let Some(limit) = self.limit else { return ClassSet::ALL };
        let limit = limit.min(most);
        let [interactive, default, bulk] = self.in_use;
        let others = default + bulk;
        if interactive + others >= limit {
            ClassSet::NONE
        } else if others >= limit - self.reserve.min(limit - 1) {
            ClassSet::INTERACTIVE
        } else {
            ClassSet::ALL
        }
    }

    #[inline]
    pub(crate) fn take(&mut self, class: Priority) {
        self.in_use[class.index()] += 1;
    }

    #[inline]
    pub(crate) fn give_back(&mut self, class: Priority) {
        debug_assert!(self.in_use[class.index()] > 0, "a slot is given back once");
        self.in_use[class.index()] = self.in_use[class.index()].saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Case 23.
    #[test]
    fn a_reserve_larger_than_a_shrunk_limit_leaves_the_others_one_slot() {
        let mut capacity = Capacity::new(8, 2);
        capacity.resize(1, 2);
        assert_eq!(capacity.reserve(), 0);
        assert_eq!(capacity.open_to(u32::MAX), ClassSet::ALL);
    }

    // Case 24.
    #[test]
    fn the_reserve_is_open_to_interactive_callers_alone() {
        let mut capacity = Capacity::new(4, 1);
        for _ in 0..3 {
            assert!(capacity.open_to(u32::MAX).contains(Priority::Bulk));
            capacity.take(Priority::Bulk);
        }
        assert_eq!(capacity.open_to(u32::MAX), ClassSet::INTERACTIVE);
        capacity.take(Priority::Interactive);
        assert_eq!(capacity.open_to(u32::MAX), ClassSet::NONE);
    }

    #[test]
    fn interactive_callers_may_use_every_slot() {
        let mut capacity = Capacity::new(4, 1);
        for _ in 0..4 {
            assert!(capacity.open_to(u32::MAX).contains(Priority::Interactive));
            capacity.take(Priority::Interactive);
        }
        assert!(capacity.open_to(u32::MAX).is_empty());
    }

    proptest! {
        #[test]
        fn no_class_ever_takes_more_than_its_part(
            limit in 1_u32..12, reserve in 0_u32..14, wants in prop::collection::vec(0_usize..3, 0..40),
        ) {
            let mut capacity = Capacity::new(limit, reserve);
            for class in wants.into_iter().map(|n| Priority::ALL[n]) {
                if capacity.open_to(u32::MAX).contains(class) {
                    capacity.take(class);
                }
            }
            let [_, default, bulk] = capacity.in_use;
            prop_assert!(capacity.in_use() <= limit);
            prop_assert!(default + bulk <= limit - reserve.min(limit - 1));
        }
    }
}
