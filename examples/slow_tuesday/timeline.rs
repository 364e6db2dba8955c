//! The day as lines of text, one for each minute.

use tower_inflight::{BreakerState, Priority};

use crate::day::Minute;
use crate::measure::percentile;
use crate::plan::Phase;
use crate::record::Sample;
use crate::scale::{to_seconds, to_tokens_per_second};

pub(crate) const HEAD: &str = concat!(
    "                       in        queue of      |           |   tokens/s    | refused: past  breaker retry  queue | chat's first token\n",
    "min  the model  limit flight  chat default bulk | breaker   | admitted used |      deadline  open   budget  full | p50    p99",
);

/// State is that of the minute's end, counts are those of the minute. Tokens and times are those of the day.
pub(crate) fn line(minute: &Minute) -> String {
    let Minute { n, begin, end, first_tokens } = minute;
    let refused = |reason: &str| {
        let count = |sample: &Sample| sample.refused.get(reason).copied().unwrap_or_default();
        count(end) - count(begin)
    };
    let lasted = end.at - begin.at;
    let per_second = |from: u64, to: u64| format!("{:.0}k", to_tokens_per_second(to - from, lasted) / 1e3);
    let chat = first_tokens.iter().filter(|took| took.class == Priority::Interactive).map(|took| took.time);
    let mut chat: Vec<_> = chat.collect();
    chat.sort_unstable();
    let first_token = |percent| match chat.as_slice() {
        [] => "-".to_owned(),
        some => format!("{:.1} s", to_seconds(percentile(some, percent))),
    };
    format!(
        "{n:>3}  {:<10} {:>5} {:>6}  {:>4} {:>7} {:>4} | {:<9} | {:>8} {:>4} | {:>13} {:>6} {:>7} {:>6} | {:<6} {}",
        Phase::at(f64::from(*n)).title(),
        end.limit,
        end.in_flight,
        end.queued.interactive,
        end.queued.default,
        end.queued.bulk,
        name(end.breaker),
        per_second(begin.sent.tokens(), end.sent.tokens()),
        per_second(begin.used_tokens, end.used_tokens),
        refused("deadline"),
        refused("breaker_open"),
        refused("retry_budget"),
        refused("queue_full"),
        first_token(50),
        first_token(99),
    )
}

const fn name(state: BreakerState) -> &'static str {
    match state {
        BreakerState::Closed => "closed",
        BreakerState::Open => "OPEN",
        BreakerState::HalfOpen => "half-open",
        _ => "?",
    }
}
