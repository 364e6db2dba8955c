//! What the model does on that day.

use std::time::Duration;

use crate::scale::{minutes, seconds};
use crate::support::{GatewayConfig, Head};

/// Times are in minutes of the day.
pub(crate) const SLOWS_AT: f64 = 2.0;
/// The time to first token is at its worst from here on.
const SLOWEST_AT: f64 = 2.5;
pub(crate) const STALLS_AT: f64 = 4.0;
pub(crate) const RECOVERS_AT: f64 = 6.0;
/// Who is not served by then has lost: the end of the run, even if somebody still waits.
pub(crate) const ENDS_AT: f64 = 13.0;

const FIRST_TOKEN_S: (f64, f64) = (0.7, 4.0);
const STALLED: f64 = 0.3;

/// An answer's 400 tokens leave over 5 s.
const TOKENS_PER_SECOND: f64 = 80.0;
pub(crate) const ANSWER_TOKENS: u32 = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Well,
    Slow,
    Stalling,
    Recovering,
}

impl Phase {
    pub(crate) const ALL: [(Self, f64); 4] =
        [(Self::Well, 0.0), (Self::Slow, SLOWS_AT), (Self::Stalling, STALLS_AT), (Self::Recovering, RECOVERS_AT)];

    pub(crate) fn at(minute: f64) -> Self {
        Self::ALL.into_iter().rev().find(|&(_, from)| minute >= from).map_or(Self::Well, |(phase, _)| phase)
    }

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Slow => "slow",
            Self::Stalling => "stalling",
            Self::Recovering => "recovering",
        }
    }
}

/// How the model is to behave at this minute.
pub(crate) fn behave(config: &mut GatewayConfig, minute: f64) {
    let phase = Phase::at(minute);
    config.time_to_first_token = first_token(phase, minute);
    config.stalled = if phase == Phase::Stalling { STALLED } else { 0.0 };
}

fn first_token(phase: Phase, minute: f64) -> Duration {
    let (well, slowest) = FIRST_TOKEN_S;
    let risen = match phase {
        Phase::Well | Phase::Recovering => 0.0,
        Phase::Slow | Phase::Stalling => ((minute - SLOWS_AT) / (SLOWEST_AT - SLOWS_AT)).clamp(0.0, 1.0),
    };
    seconds(well + (slowest - well) * risen)
}

pub(crate) fn gateway() -> GatewayConfig {
    let mut config = GatewayConfig {
        // More than anybody sends: this model has no line of its own, it is slow for all.
        slots: 1_000,
        tokens_per_second: f64::from(ANSWER_TOKENS)
            / seconds(f64::from(ANSWER_TOKENS) / TOKENS_PER_SECOND).as_secs_f64(),
        longest_answer: ANSWER_TOKENS,
        tokens_per_event: 20,
        head: Head::WithFirstToken,
        linger: seconds(1.0),
        ..GatewayConfig::default()
    };
    behave(&mut config, 0.0);
    config
}

pub(crate) fn ends_after() -> Duration {
    minutes(ENDS_AT)
}
