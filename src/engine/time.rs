//! Engine time: nanoseconds since an epoch that the shell chose.

use std::ops::Add;
use std::time::Duration;

/// A moment as the engine knows it. Eight bytes instead of an `Instant`'s sixteen: a waiter keeps three of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Time(u64);

impl Time {
    pub(crate) const ZERO: Self = Self(0);
    /// Later than anything that will happen: 584 years after the epoch.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    #[inline]
    pub(crate) fn from_epoch(elapsed: Duration) -> Self {
        Self(nanos(elapsed))
    }

    pub(crate) fn since_epoch(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Zero when `earlier` is in fact later.
    #[inline]
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The same in nanoseconds.
    #[inline]
    pub(crate) fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The same in seconds.
    #[inline]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_wrap,
        reason = "a nanosecond counts for a hundred days, and no budget takes longer to fill"
    )]
    pub(crate) fn secs_since(self, earlier: Self) -> f64 {
        // By way of a signed number: processors convert those, and not the others.
        self.0.saturating_sub(earlier.0).min(i64::MAX as u64) as i64 as f64 * 1e-9
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, after: Duration) -> Self {
        Self(self.0.saturating_add(nanos(after)))
    }
}

#[inline]
fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(duration.subsec_nanos()))
}
