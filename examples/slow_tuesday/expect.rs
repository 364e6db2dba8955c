//! What the day is expected to show.

use std::fmt::Write;

use serde::Serialize;
use tower_inflight::BreakerState;

use crate::measure::Summary;
use crate::plan::{RECOVERS_AT, STALLS_AT};
use crate::stack::{MAX_LIMIT, MAX_QUEUE, PROBES, RETRY_RATIO};

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Expectation {
    pub(crate) what: &'static str,
    pub(crate) found: String,
    pub(crate) holds: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    #[serde(flatten)]
    pub(crate) summary: &'a Summary,
    pub(crate) expectations: &'a [Expectation],
}

/// Interactive calls wait for a slot that is about to come free, and no longer: seconds of the day, most of which a busy
/// machine may add.
const SHORT_WAIT_S: f64 = 10.0;
/// Retries are counted in samples, which do not end where the budget's window does.
const RETRY_SLACK: f64 = 0.03;
/// A prompt is estimated, and what it was is known at the end of the call.
const QUOTA_SLACK: f64 = 0.03;

pub(crate) fn all(summary: &Summary) -> Vec<Expectation> {
    let Summary { refused, rounds, breaker_opened_at_min: opened_at, breaker_closed_at_min: closed_at, .. } = summary;
    let refused = |reason: &str| refused.get(reason).copied().unwrap_or_default();
    let minute = |at: &Option<f64>| at.map_or_else(|| "never".to_owned(), |at| format!("at minute {at:.1}"));
    // In the round that closes it, those whom the closing lets in may leave before it is told.
    let failed = || rounds.iter().filter(|round| round.ended == BreakerState::Open);
    let expect = |what, found, holds| Expectation { what, found, holds };
    vec![
        expect(
            "the limit goes down as the model slows down, and up again",
            format!("{} -> {} -> {}", summary.limit_when_well, summary.limit_when_slow, summary.limit_at_the_end),
            summary.limit_when_slow < summary.limit_when_well && summary.limit_at_the_end > summary.limit_when_slow,
        ),
        expect(
            "chat keeps its lane: it hardly waits for a slot while the model is slow",
            format!("p99 {:.1} s; bulk p90 {:.1} s", summary.interactive_wait_p99_s, summary.bulk_wait_p90_s),
            summary.interactive_wait_p99_s <= SHORT_WAIT_S
                && summary.interactive_wait_p99_s < summary.bulk_wait_p90_s
                && refused("queue_timeout") == 0,
        ),
        expect(
            "bulk is refused for its deadline",
            format!("{} jobs", summary.bulk_past_deadline),
            summary.bulk_past_deadline > 0,
        ),
        expect(
            "and comes back later, until nobody is left",
            format!(
                "{} of them finished; of all {}: {} finished, {} sent and failed",
                summary.bulk_past_deadline_and_finished, summary.offered, summary.finished, summary.failed
            ),
            summary.bulk_past_deadline_and_finished * 10 >= summary.bulk_past_deadline * 7
                && summary.finished + summary.failed == summary.offered,
        ),
        expect(
            "the breaker opens on the stalls",
            minute(opened_at),
            opened_at.is_some_and(|at| (STALLS_AT..RECOVERS_AT).contains(&at)),
        ),
        expect("and closes after they are over", minute(closed_at), closed_at.is_some_and(|at| at > RECOVERS_AT)),
        expect(
            "probes are real calls, and few",
            format!(
                "{} sent in half-open rounds that failed ({}); {} calls sent in all, {} seen by the gateway",
                failed().map(|round| round.sent).sum::<u64>(),
                failed().count(),
                summary.sent,
                summary.gateway_calls
            ),
            failed().all(|round| (1..=PROBES.into()).contains(&round.sent))
                && rounds.last().is_some_and(|last| last.ended == BreakerState::Closed && last.sent >= PROBES.into())
                && summary.sent == summary.gateway_calls as u64,
        ),
        expect(
            "retries stay within a tenth of first attempts",
            format!(
                "{:.1} % at most, {} sent, {} refused",
                summary.retry_ratio * 100.0,
                summary.retries,
                refused("retry_budget")
            ),
            summary.retry_ratio <= RETRY_RATIO + RETRY_SLACK && summary.retries > 0 && refused("retry_budget") > 0,
        ),
        expect(
            "no minute uses more than the quota with its burst",
            format!("{:.0} % of it at most", summary.quota_share * 100.0),
            summary.quota_share <= 1.0 + QUOTA_SLACK,
        ),
        expect(
            "open calls and queue stay bounded",
            format!("{} open at most, {} queued", summary.peak_open, summary.peak_queued),
            summary.peak_open <= MAX_LIMIT as usize && summary.peak_queued <= MAX_QUEUE,
        ),
    ]
}

pub(crate) fn text(expectations: &[Expectation]) -> String {
    let mut text = String::from("\n");
    for Expectation { what, found, holds } in expectations {
        let _ = writeln!(text, "{:<3} {what}: {found}", if *holds { "yes" } else { "NO" });
    }
    text
}
