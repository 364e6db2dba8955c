//! What came of a run.

use std::fmt::{self, Write as _};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tower_inflight::LaneSnapshot;

use crate::args::Start;

/// What came so far.
#[derive(Debug)]
pub(crate) struct Record {
    begun_at: Instant,
    refused: u32,
    tokens: u64,
    /// When, and after how long.
    first_tokens: Vec<(Duration, Duration)>,
    ticks: Vec<Tick>,
}

/// One second of a run.
#[derive(Clone, Debug)]
pub(crate) struct Tick {
    second: u64,
    limit: u32,
    in_flight: u32,
    waiting: u32,
    /// Since the start.
    refused: u32,
    /// Since the start.
    tokens: u64,
    change: String,
}

/// What a run was good for, in its second half.
#[derive(Debug)]
pub(crate) struct Figures {
    /// At the end.
    pub(crate) limit: u32,
    pub(crate) tokens_per_s: f64,
    pub(crate) first_token_p50_s: f64,
    /// In the first five seconds, and after them.
    refused: (u32, u32),
}

const FIRST_WAVE_S: u64 = 5;

impl Record {
    pub(crate) fn new(begun_at: Instant) -> Self {
        Self { begun_at, refused: 0, tokens: 0, first_tokens: Vec::new(), ticks: Vec::new() }
    }

    pub(crate) fn refused(&mut self) {
        self.refused += 1;
    }

    pub(crate) fn token(&mut self) {
        self.tokens += 1;
    }

    pub(crate) fn first_token(&mut self, after: Duration) {
        self.first_tokens.push((self.begun_at.elapsed(), after));
    }

    pub(crate) fn tick(&mut self, lane: Option<LaneSnapshot>) -> Tick {
        let (limit, in_flight, waiting) = lane.as_ref().map_or((0, 0, 0), |it| (it.limit, it.inflight, it.queued));
        let recent = lane.and_then(|lane| lane.last_change).filter(|change| change.ago_s < 1.0);
        let tick = Tick {
            second: self.begun_at.elapsed().as_secs(),
            limit,
            in_flight,
            waiting,
            refused: self.refused,
            tokens: self.tokens,
            change: recent
                .map(|change| format!("{} -> {} ({})", change.from, change.to, change.cause))
                .unwrap_or_default(),
        };
        self.ticks.push(tick.clone());
        tick
    }

    pub(crate) fn figures(&self, runs_for: Duration) -> Figures {
        let half = runs_for / 2;
        let tokens_at = |second: u64| {
            let before = self.ticks.iter().take_while(|tick| tick.second <= second).last();
            before.map_or((0, 0), |tick| (tick.second, tick.tokens))
        };
        let (from, to) = (tokens_at(half.as_secs()), tokens_at(runs_for.as_secs()));
        let mut waits: Vec<Duration> =
            self.first_tokens.iter().filter(|(at, _)| *at >= half).map(|(_, after)| *after).collect();
        waits.sort_unstable();
        let first_wave = self.ticks.iter().find(|tick| tick.second >= FIRST_WAVE_S).map_or(0, |tick| tick.refused);
        Figures {
            limit: self.ticks.last().map_or(0, |tick| tick.limit),
            tokens_per_s: (to.1 - from.1) as f64 / (to.0 - from.0).max(1) as f64,
            first_token_p50_s: waits.get(waits.len() / 2).map_or(f64::NAN, Duration::as_secs_f64),
            refused: (first_wave, self.refused - first_wave),
        }
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { second, limit, in_flight, waiting, refused, tokens, change } = self;
        write!(f, "{second:4} s  limit {limit:3}  in flight {in_flight:3}  waiting {waiting:3}  ")?;
        write!(f, "refused {refused:3}  tokens {tokens:6}  {change}")
    }
}

impl Figures {
    pub(crate) fn table(rows: &[(Start, Self)]) -> String {
        let mut table = String::from(
            "\n| limit | at the end | tokens/s | first token, median s | refused in the first 5 s | later |\n|---|---|---|---|---|---|\n",
        );
        for (start, row) in rows {
            let Self { limit, tokens_per_s, first_token_p50_s, refused: (first, later) } = row;
            let _ = writeln!(
                table,
                "| {start} | {limit} | {tokens_per_s:.1} | {first_token_p50_s:.2} | {first} | {later} |"
            );
        }
        table
    }

    pub(crate) fn to_json(rows: &[(Start, Self)]) -> Value {
        let row = |row: &Self| {
            json!({
                "limit": row.limit,
                "tokens_per_s": row.tokens_per_s,
                "first_token_p50_s": row.first_token_p50_s,
                "refused_in_first_wave": row.refused.0,
                "refused_later": row.refused.1,
            })
        };
        Value::Object(rows.iter().map(|(start, figures)| (start.to_string(), row(figures))).collect())
    }
}
