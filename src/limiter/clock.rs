//! The one place that reads a clock.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::engine::time::Time;

/// Engine time starts a day before the first look at the clock, so that moments shortly before it (a paused test clock, a
/// deadline made earlier) are told apart.
const HEAD_START: Duration = Duration::from_secs(24 * 60 * 60);

fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(|| {
        #[expect(clippy::disallowed_methods, reason = "this is the one clock")]
        let first = std::time::Instant::now();
        Instant::from_std(first.checked_sub(HEAD_START).unwrap_or(first))
    })
}

#[cfg(not(inflight_loom))]
#[inline]
pub(crate) fn now() -> Time {
    #[expect(clippy::disallowed_methods, reason = "this is the one clock")]
    at(Instant::now())
}

/// Time stands still in a loom model: it explores orders, not durations.
#[cfg(inflight_loom)]
pub(crate) fn now() -> Time {
    Time::from_epoch(HEAD_START)
}

#[inline]
pub(crate) fn at(instant: Instant) -> Time {
    Time::from_epoch(instant.saturating_duration_since(epoch()))
}

/// Saturates about 30 years from now, as tokio's own far future does.
pub(crate) fn instant(time: Time) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    epoch() + time.since_epoch().min(FAR)
}

/// For header dates and time stamps.
pub(crate) fn wall() -> SystemTime {
    #[expect(clippy::disallowed_methods, reason = "this is the one wall clock")]
    SystemTime::now()
}
