//! From that Tuesday to this machine and back.

use std::time::Duration;

/// How long a minute of the day takes here: a twentieth. Slow enough that a noisy machine does not look like a slow model.
pub(crate) const MINUTE: Duration = Duration::from_secs(3);

/// How many calls of the day one call here stands for. So a laptop can make them, and what it makes of the quota is the same
/// part of it.
pub(crate) const CALLS: f64 = 5.0;

/// So many seconds of the day, here.
pub(crate) fn seconds(of_the_day: f64) -> Duration {
    minutes(of_the_day / 60.0)
}

pub(crate) fn minutes(of_the_day: f64) -> Duration {
    MINUTE.mul_f64(of_the_day)
}

/// So much time here, in seconds of the day.
pub(crate) fn to_seconds(here: Duration) -> f64 {
    to_minutes(here) * 60.0
}

pub(crate) fn to_minutes(here: Duration) -> f64 {
    here.as_secs_f64() / MINUTE.as_secs_f64()
}

/// So many tokens in so much time here, in tokens per second of the day.
pub(crate) fn to_tokens_per_second(tokens: u64, here: Duration) -> f64 {
    tokens as f64 * CALLS / to_seconds(here)
}
