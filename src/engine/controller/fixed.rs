//! A limit that stays where it is.

use std::num::NonZeroU32;

use super::{Controller, Sample};

/// A fixed limit, for an upstream whose capacity is known.
///
/// Right where somebody promised a number: a provider's quota of parallel calls, a model server with so many slots. It
/// does not follow an upstream that changes; a pause that the upstream asks for is honoured by the lane all the same.
///
/// ```
/// use std::num::NonZeroU32;
/// use tower_inflight::controller::{Controller, Fixed};
///
/// let four = NonZeroU32::new(4).ok_or("a limit of 0")?;
/// assert_eq!(Fixed::new(four).limit(), 4);
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Debug)]
pub struct Fixed(NonZeroU32);

impl Fixed {
    /// Always `limit`.
    #[must_use]
    pub const fn new(limit: NonZeroU32) -> Self {
        Self(limit)
    }
}

impl Controller for Fixed {
    fn limit(&self) -> u32 {
        self.0.get()
    }

    fn on_end(&mut self, _: &Sample) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::controller::testing::call;
    use crate::engine::outcome::Outcome;

    #[test]
    fn nothing_moves_it() {
        let mut fixed = Fixed::new(NonZeroU32::new(4).unwrap());
        for outcome in Outcome::ALL {
            fixed.on_end(&call(outcome).sample());
        }
        assert_eq!(fixed.limit(), 4);
        assert_eq!(fixed.paused_until(), None);
    }
}
