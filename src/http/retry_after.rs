//! How long the headers of a refusal ask us to stay away.
//!
//! The first source with a usable value wins: `retry-after-ms`, then `Retry-After`, then the reset headers of the
//! budgets that are used up. A header that comes in several lines counts with its longest usable one. Values that make no
//! sense (negative, not a number, garbage) count as absent; one too large to hold becomes the longest [`Duration`], for
//! the lane's `max_pause` to cap.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName};

use crate::engine::outcome::Pause;

/// Larger bare numbers in a reset header are moments since 1970 (OpenRouter, GitHub), not a wait of three decades.
const SECONDS_SINCE_1970: Duration = Duration::from_secs(1_000_000_000);
const MILLIS_SINCE_1970: Duration = Duration::from_secs(1_000_000_000_000);
const MILLI: f64 = 1e-3;

/// The pause asked for by the headers of an answer that means "too much".
pub(crate) fn pause(headers: &HeaderMap, now: SystemTime) -> Option<Pause> {
    told(headers, now).or_else(|| until_reset(headers, now)).map(into_pause)
}

/// Like [`pause`], without the reset headers: on an answer that is not about a budget they explain nothing.
pub(crate) fn explicit_pause(headers: &HeaderMap, now: SystemTime) -> Option<Pause> {
    told(headers, now).map(into_pause)
}

/// The pause in a text such as `34.07s`.
pub(crate) fn parse_pause(text: &str) -> Option<Pause> {
    span(text.trim()).map(into_pause)
}

fn into_pause(wait: Duration) -> Pause {
    if wait.is_zero() { Pause::Minimum } else { Pause::For(wait) }
}

fn told(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let millis = lines(headers, "retry-after-ms").filter_map(|text| number(text, MILLI)).max();
    let date = |text| httpdate::parse_http_date(text).ok().map(|moment| until(moment, now));
    millis.or_else(|| lines(headers, "retry-after").filter_map(|text| number(text, 1.0).or_else(|| date(text))).max())
}

/// The wait until the last of the used-up budgets is refilled.
fn until_reset(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let exhausted = headers.keys().map(HeaderName::as_str).filter(|reset| is_exhausted(headers, reset));
    exhausted.flat_map(|reset| lines(headers, reset)).filter_map(|text| reset_wait(text, now)).max()
}

/// Whether this is the reset header of a budget with nothing left. A budget that does not say what is left counts: it
/// came with a refusal.
///
/// Prefixes and dimensions vary by deployment (`x-ratelimit-reset-tokens`, `anthropic-ratelimit-tokens-reset`,
/// `x-ratelimit-api_key-reset-requests`), so only the words between the dashes are looked at.
fn is_exhausted(headers: &HeaderMap, reset: &str) -> bool {
    let has = |word| reset.split('-').any(|part| part == word);
    if !has("ratelimit") || !has("reset") {
        return false;
    }
    let parts: Vec<_> = reset.split('-').map(|part| if part == "reset" { "remaining" } else { part }).collect();
    let remaining = parts.join("-");
    !headers.contains_key(&remaining)
        || lines(headers, &remaining).any(|left| left.parse::<f64>().is_ok_and(|left| left == 0.0))
}

fn reset_wait(text: &str, now: SystemTime) -> Option<Duration> {
    if let Some(number) = number(text, 1.0) {
        return Some(wait_or_moment(number, now));
    }
    span(text).or_else(|| rfc3339(text).map(|moment| until(moment, now)))
}

fn wait_or_moment(number: Duration, now: SystemTime) -> Duration {
    let today = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    match number {
        wait if wait < SECONDS_SINCE_1970 => wait,
        moment if moment < MILLIS_SINCE_1970 => moment.saturating_sub(today),
        moment => (moment / 1000).saturating_sub(today),
    }
}

fn lines<'h>(headers: &'h HeaderMap, name: &'h str) -> impl Iterator<Item = &'h str> {
    headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).map(str::trim)
}

/// A moment in the past is a wait of zero, which is not the same as no wait named.
fn until(moment: SystemTime, now: SystemTime) -> Duration {
    moment.duration_since(now).unwrap_or_default()
}

/// A plain decimal number of units.
fn number(text: &str, seconds_per_unit: f64) -> Option<Duration> {
    // Rust would also read signs, "inf" and "nan".
    if !text.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return None;
    }
    let seconds = text.parse::<f64>().ok()? * seconds_per_unit;
    Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

/// Numbers with units, as in `1h2m3.5s` and `120ms`.
fn span(mut text: &str) -> Option<Duration> {
    let mut total = None;
    while !text.is_empty() {
        let unit_at = text.find(|c: char| c.is_ascii_alphabetic())?;
        let (digits, rest) = text.split_at(unit_at);
        let (unit, rest) = rest.split_at(rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len()));
        let part = number(digits, seconds_per(unit)?)?;
        total = Some(part.saturating_add(total.unwrap_or_default()));
        text = rest;
    }
    total
}

fn seconds_per(unit: &str) -> Option<f64> {
    Some(match unit {
        "d" => 86_400.0,
        "h" => 3_600.0,
        "m" => 60.0,
        "s" => 1.0,
        "ms" => MILLI,
        "us" => 1e-6,
        "ns" => 1e-9,
        _ => return None,
    })
}

/// `humantime` reads UTC only; an offset such as `+02:00` is taken off here.
fn rfc3339(text: &str) -> Option<SystemTime> {
    let (local, offset) = text.split_at_checked(text.len().checked_sub("+00:00".len())?)?;
    let (Some(clock), true) = (offset.get(1..), offset.starts_with(['+', '-'])) else {
        return humantime::parse_rfc3339(text).ok();
    };
    let (hours, minutes) = clock.split_once(':')?;
    let offset_by = Duration::from_secs(hours.parse::<u64>().ok()? * 3_600 + minutes.parse::<u64>().ok()? * 60);
    let local = humantime::parse_rfc3339(&format!("{local}Z")).ok()?;
    if offset.starts_with('+') { local.checked_sub(offset_by) } else { local.checked_add(offset_by) }
}

#[cfg(test)]
mod tests;
