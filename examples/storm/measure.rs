//! The numbers of a run.

use std::time::Duration;

use serde::Serialize;
use tower_inflight::Priority;

use crate::record::{AnswerTimes, JobRecord, Run};
use crate::stack::Stack;
use crate::upstream::Upstream;

/// What is said about a run; the serialised part is the JSON report.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    #[serde(skip)]
    pub(crate) stack: Stack,
    pub(crate) offered: usize,
    pub(crate) finished: usize,
    pub(crate) failed: usize,
    pub(crate) upstream_calls: usize,
    /// `None` (`null`) if no job finished.
    pub(crate) upstream_calls_per_finished: Option<f64>,
    pub(crate) goodput_fraction: f64,
    pub(crate) interactive_first_token_p50_ms: f64,
    pub(crate) interactive_first_token_p99_ms: f64,
    pub(crate) bulk_makespan_s: f64,
    pub(crate) peak_open_streams: usize,
    pub(crate) retries: usize,
    #[serde(skip)]
    pub(crate) finished_at_first_attempt: usize,
    #[serde(skip)]
    pub(crate) wasted_fraction: Option<f64>,
}

impl Summary {
    pub(crate) fn of(run: &Run, upstream: &Upstream) -> Self {
        let jobs = &run.jobs;
        let finished = jobs.iter().filter(|job| job.answer.is_some()).count();
        let first_tokens = first_token_waits(jobs);
        let ms = |wait: Duration| round(wait.as_secs_f64() * 1e3);
        Self {
            stack: run.stack,
            offered: jobs.len(),
            finished,
            failed: jobs.len() - finished,
            upstream_calls: run.upstream_calls,
            upstream_calls_per_finished: (finished > 0).then(|| round(run.upstream_calls as f64 / finished as f64)),
            goodput_fraction: round(goodput(jobs, upstream) / upstream.capacity),
            interactive_first_token_p50_ms: ms(percentile(&first_tokens, 50)),
            interactive_first_token_p99_ms: ms(percentile(&first_tokens, 99)),
            bulk_makespan_s: round(bulk_makespan(jobs).as_secs_f64()),
            peak_open_streams: run.stats.peak_open,
            retries: jobs.iter().map(|job| job.attempts.saturating_sub(1) as usize).sum(),
            finished_at_first_attempt: jobs.iter().filter(|job| job.answer.is_some() && job.attempts == 1).count(),
            wasted_fraction: wasted(run),
        }
    }
}

/// Useful tokens per second while there was work for every slot: from the first arrival to the last moment with as many
/// unfinished jobs as the upstream has slots. A token is useful if its client got the whole answer. Tokens are spread
/// evenly over the time of their answer, so that the ends of the window cut answers and not the measure.
fn goodput(jobs: &[JobRecord], upstream: &Upstream) -> f64 {
    let end = end_of_work(jobs, upstream.slots);
    let useful: f64 = jobs
        .iter()
        .filter_map(|job| Some((job.answer.as_ref()?, job.ended_at)))
        .map(|(answer, ended_at)| tokens_until(end, answer, ended_at))
        .sum();
    useful / end.as_secs_f64()
}

fn tokens_until(end: Duration, answer: &AnswerTimes, ended_at: Duration) -> f64 {
    let whole = ended_at.saturating_sub(answer.head_at).as_secs_f64();
    let inside = end.min(ended_at).saturating_sub(answer.head_at).as_secs_f64();
    if whole > 0.0 { f64::from(answer.tokens) * inside / whole } else { 0.0 }
}

fn end_of_work(jobs: &[JobRecord], slots: usize) -> Duration {
    let mut ends: Vec<_> = jobs.iter().map(|job| job.ended_at).collect();
    ends.sort_unstable();
    let unfinished_at = |at| jobs.iter().filter(|job| job.arrived_at < at && job.ended_at >= at).count();
    ends.into_iter().rev().find(|&at| unfinished_at(at) >= slots).unwrap_or_default()
}

/// From arrival to the first token, sorted. Who gave up waited at least until then.
fn first_token_waits(jobs: &[JobRecord]) -> Vec<Duration> {
    let mut waits: Vec<_> = jobs
        .iter()
        .filter(|job| job.priority == Priority::Interactive)
        .map(|job| job.answer.as_ref().map_or(job.ended_at, |answer| answer.first_token_at) - job.arrived_at)
        .collect();
    waits.sort_unstable();
    waits
}

/// The smallest value that at least so many per cent of the values do not exceed.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

fn bulk_makespan(jobs: &[JobRecord]) -> Duration {
    let bulk = || jobs.iter().filter(|job| job.priority == Priority::Bulk);
    let begin = bulk().map(|job| job.arrived_at).min().unwrap_or_default();
    let end = bulk().map(|job| job.ended_at).max().unwrap_or_default();
    end - begin
}

/// The part of the gateway's tokens that was made for nobody. A real server does not say.
fn wasted(run: &Run) -> Option<f64> {
    let made = run.stats.useful_tokens + run.stats.wasted_tokens;
    (made > 0).then(|| run.stats.wasted_tokens as f64 / made as f64)
}

fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
