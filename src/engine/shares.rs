//! Shares of a lane's limit, by class: who goes first while not everybody has what is due to them.
//!
//! A class *claims* a slot while it has fewer than its shares come to. A waiter of a class that claims goes before one of a
//! class that does not; otherwise the order is as without shares. Nothing is kept free for anybody: what a class does not
//! use is lent to the others, and comes back as their calls end.

use super::capacity::ClassSet;
use super::priority::Priority;

const WHOLE: u32 = 1_000_000;

/// Parts of the limit, in millionths: exact where fractions are not, and three tenths of ten slots are three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares([u32; 3]);

impl Shares {
    /// `parts` by class, from 0 to 1, together at most 1.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to a million")]
    pub(crate) fn new(parts: [f64; 3]) -> Self {
        Self(parts.map(|part| (part.clamp(0.0, 1.0) * f64::from(WHOLE)).round() as u32))
    }

    /// Together at most the whole.
    pub(crate) fn fit(self) -> bool {
        self.0.iter().sum::<u32>() <= WHOLE
    }

    /// Whole slots of each class, each less than one off its share.
    ///
    /// Rounded up over a class and all above it together: these never get less than their shares, so it is bulk that first
    /// gives up what a small limit cannot give, and default next.
    pub(crate) fn slots(self, limit: u32) -> [u32; 3] {
        let mut parts = 0;
        let mut given = 0;
        self.0.map(|part| {
            parts += u64::from(part);
            let up_to_here = (parts * u64::from(limit)).div_ceil(u64::from(WHOLE));
            let slots = u32::try_from(up_to_here).map_or(limit, |slots| slots.min(limit)) - given;
            given += slots;
            slots
        })
    }

    /// The classes that have less than their shares.
    pub(crate) fn below(self, limit: u32, in_use: [u32; 3]) -> ClassSet {
        let slots = self.slots(limit);
        Priority::ALL.into_iter().filter(|class| in_use[class.index()] < slots[class.index()]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_shrinking_limit_takes_from_bulk_first_then_from_default() {
        let shares = Shares::new([0.5, 0.3, 0.2]);
        let of = |limit| shares.slots(limit);
        assert_eq!(
            [10, 9, 6, 4, 3, 2, 1, 0].map(of),
            [[5, 3, 2], [5, 3, 1], [3, 2, 1], [2, 2, 0], [2, 1, 0], [1, 1, 0], [1, 0, 0], [0, 0, 0],]
        );
    }

    #[test]
    fn what_is_nobodys_share_is_in_nobodys_slots() {
        assert_eq!(Shares::new([0.0, 0.25, 0.25]).slots(8), [0, 2, 2]);
        assert_eq!(Shares::new([0.0; 3]).slots(8), [0; 3]);
    }

    #[test]
    fn tenths_that_make_a_whole_fit() {
        assert!(Shares::new([0.7, 0.2, 0.1]).fit());
        assert!(Shares::new([1.0 / 3.0; 3]).fit());
        assert!(!Shares::new([0.7, 0.2, 0.11]).fit());
    }

    proptest! {
        #[test]
        fn slots_are_less_than_one_off_and_never_more_than_there_are(
            parts in prop::array::uniform3(0_u32..=1_000), limit in 0_u32..5_000,
        ) {
            let whole = parts.iter().sum::<u32>().max(1);
            let parts = parts.map(|part| f64::from(part) / f64::from(whole));
            let slots = Shares::new(parts).slots(limit);
            prop_assert!(slots.iter().sum::<u32>() <= limit);
            for (part, slots) in parts.into_iter().zip(slots) {
                // A millionth of 5,000 slots is what rounding the parts may add.
                prop_assert!((part * f64::from(limit) - f64::from(slots)).abs() < 1.01, "{part} of {limit}: {slots}");
            }
        }
    }
}
