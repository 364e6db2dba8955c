//! The numbers of the day.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tower_inflight::{BreakerState, Priority};

use crate::day::Day;
use crate::load::PROMPT_TOKENS;
use crate::plan::{ANSWER_TOKENS, Phase};
use crate::record::{Sample, Sent, Took, Turn};
use crate::scale::{CALLS, MINUTE, to_minutes, to_seconds};
use crate::stack::{BURST_S, QUOTA_PER_MINUTE};

/// What is said about the day, in its minutes, seconds and tokens. Counts of calls are as they were here.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) offered: usize,
    pub(crate) finished: usize,
    /// They were sent and failed, retries included.
    pub(crate) failed: usize,
    pub(crate) refused: BTreeMap<&'static str, u64>,
    pub(crate) limit_when_well: u32,
    pub(crate) limit_when_slow: u32,
    pub(crate) limit_at_the_end: u32,
    /// From asking for a slot to having it, while the model is slow.
    pub(crate) interactive_wait_p99_s: f64,
    pub(crate) bulk_wait_p90_s: f64,
    /// From asking to the first token, over the whole day.
    pub(crate) interactive_first_token_p50_s: f64,
    pub(crate) interactive_first_token_p99_s: f64,
    /// Jobs of bulk work that were refused for their deadline, and those of them that came back and were sent.
    pub(crate) bulk_past_deadline: usize,
    pub(crate) bulk_past_deadline_and_finished: usize,
    pub(crate) breaker_opened_at_min: Option<f64>,
    /// For good; `None` if it is not closed in the end.
    pub(crate) breaker_closed_at_min: Option<f64>,
    /// What was sent in each half-open round.
    pub(crate) rounds: Vec<Round>,
    pub(crate) sent: u64,
    pub(crate) gateway_calls: usize,
    pub(crate) retries: u64,
    /// Retries per first attempt within the minute before a retry, of the retry with most of them.
    pub(crate) retry_ratio: f64,
    /// What the calls of a minute used, as a part of what the quota allows with its burst; of the minute with most of them.
    pub(crate) quota_share: f64,
    pub(crate) peak_open: usize,
    pub(crate) peak_queued: u32,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Round {
    pub(crate) sent: u64,
    pub(crate) ended: BreakerState,
}

impl Summary {
    pub(crate) fn of(day: &Day) -> Self {
        let last = day.samples.last();
        let finished = day.jobs.iter().filter(|job| job.is_finished).count();
        let past_deadline = || day.jobs.iter().filter(|job| job.was_past_deadline);
        let limits = |phase: Phase| within(&day.samples, phase).map(|sample| sample.limit);
        let wait = |class: Priority, percent| {
            to_seconds(of_class(day.waits.iter().filter(|took| phase_at(took.at) == Phase::Slow), class, percent))
        };
        let first_token = |percent| to_seconds(of_class(day.first_tokens.iter(), Priority::Interactive, percent));
        let queued = |sample: &Sample| sample.queued.interactive + sample.queued.default + sample.queued.bulk;
        let is_closed = day.turns.last().is_some_and(|turn| turn.to == BreakerState::Closed);
        let sent = last.map_or_else(Sent::default, |sample| sample.sent);
        Self {
            offered: day.offered,
            finished,
            failed: day.jobs.len() - finished,
            refused: last.map_or_else(BTreeMap::new, |sample| sample.refused.clone()),
            limit_when_well: limits(Phase::Well).last().unwrap_or_default(),
            limit_when_slow: limits(Phase::Slow).min().unwrap_or_default(),
            limit_at_the_end: last.map_or(0, |sample| sample.limit),
            interactive_wait_p99_s: round(wait(Priority::Interactive, 99)),
            bulk_wait_p90_s: round(wait(Priority::Bulk, 90)),
            interactive_first_token_p50_s: round(first_token(50)),
            interactive_first_token_p99_s: round(first_token(99)),
            bulk_past_deadline: past_deadline().count(),
            bulk_past_deadline_and_finished: past_deadline().filter(|job| job.is_finished).count(),
            breaker_opened_at_min: day.turns.first().map(|turn| round(to_minutes(turn.at))),
            breaker_closed_at_min: day.turns.last().filter(|_| is_closed).map(|turn| round(to_minutes(turn.at))),
            rounds: rounds(&day.turns),
            sent: sent.all(),
            gateway_calls: day.gateway_calls,
            retries: sent.retries,
            retry_ratio: round(retry_ratio(&day.samples)),
            quota_share: round(quota_share(&day.samples)),
            peak_open: day.peak_open,
            peak_queued: day.samples.iter().map(queued).max().unwrap_or_default(),
        }
    }
}

pub(crate) fn phase_at(at: Duration) -> Phase {
    Phase::at(to_minutes(at))
}

fn within(samples: &[Sample], phase: Phase) -> impl Iterator<Item = &Sample> {
    samples.iter().filter(move |sample| phase_at(sample.at) == phase)
}

fn of_class<'a>(took: impl Iterator<Item = &'a Took>, class: Priority, percent: usize) -> Duration {
    let mut times: Vec<_> = took.filter(|took| took.class == class).map(|took| took.time).collect();
    times.sort_unstable();
    percentile(&times, percent)
}

/// The smallest value that at least so many per cent of the values do not exceed.
pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// From each turn to half-open until the next turn was told.
fn rounds(turns: &[Turn]) -> Vec<Round> {
    let rounds = turns.windows(2).filter(|pair| pair[0].to == BreakerState::HalfOpen);
    rounds.map(|pair| Round { sent: pair[1].sent - pair[0].sent, ended: pair[1].to }).collect()
}

fn retry_ratio(samples: &[Sample]) -> f64 {
    let with_retries = samples.windows(2).filter(|pair| pair[1].sent.retries > pair[0].sent.retries);
    let ratio = |end: &Sample| {
        let (_, begin) = minute_before(samples, end);
        let first = end.sent.first - begin.first;
        (end.sent.retries - begin.retries) as f64 / first.max(1) as f64
    };
    with_retries.map(|pair| ratio(&pair[1])).fold(0.0, f64::max)
}

fn quota_share(samples: &[Sample]) -> f64 {
    let share = |end: &Sample| {
        let (since, before) = minute_before(samples, end);
        let tokens = (end.sent.all() - before.all()) as f64 * f64::from(PROMPT_TOKENS + ANSWER_TOKENS) * CALLS;
        tokens / (QUOTA_PER_MINUTE as f64 * (to_minutes(end.at - since) + BURST_S / 60.0))
    };
    samples.iter().map(share).fold(0.0, f64::max)
}

/// What had been sent a minute before, and when that was: a little longer ago, since it is a sample.
fn minute_before(samples: &[Sample], end: &Sample) -> (Duration, Sent) {
    let begin = samples.iter().rev().find(|begin| begin.at + MINUTE <= end.at);
    begin.map_or_else(Default::default, |begin| (begin.at, begin.sent))
}

fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
