//! Keeps calls from an upstream that is broken, and tries it again with a few of them.
//!
//! ```text
//!            too many calls failed, or began late
//!   CLOSED ───────────────────────────────────────▶ OPEN ◀───────────────┐
//!     ▲                                               │ its time is over  │ a probe failed, or began late
//!     │                all probes succeeded           ▼                   │
//!     └────────────────────────────────────────── HALF-OPEN ──────────────┘
//! ```
//!
//! Each change of state begins a new generation. A call carries the generation it was let in under, and a result of an
//! older one changes nothing: what was sent before the breaker opened says nothing about the upstream after.
//!
//! A *probe* is a real call that is let in while the breaker is half-open. Its place is leased: it comes back when the
//! call ends, however it ends, or when the lease is over, whichever is first, and once. So a probe that never reports
//! costs a place for the length of a lease and not for ever.

mod round;

use std::fmt;
use std::time::Duration;

use self::round::Round;
use super::change::{Cause, ChangeKind};
use super::outcome::{Outcome, OutcomeKind};
use super::rolling::Rolling;
use super::steering::Ending;
use super::step::Changes;
use super::time::Time;

/// A breaker stays open up to a tenth longer than configured, so that several processes do not come back at once.
const SPREAD_PART: u32 = 10;

/// Half-open and untried for this long, it has nothing left that is worth keeping a lane for: as long as a lane without
/// calls keeps a lowered limit.
const REMEMBERED: Duration = Duration::from_secs(60 * 60);

/// When a breaker opens, for how long, and what closes it. Checked by the configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BreakerPolicy {
    /// The share of failed calls at which it opens; more than 0, at most 1.
    pub(crate) failure_rate: f64,
    pub(crate) slow: Option<SlowRule>,
    /// Fewer results than this within the window open nothing. Never zero.
    pub(crate) min_calls: u32,
    pub(crate) window: Duration,
    pub(crate) open_for: Duration,
    /// At least `open_for`.
    pub(crate) max_open_for: Duration,
    /// So many calls are let in while half-open, and all of them must succeed. Never zero.
    pub(crate) probes: u32,
    /// How long a probe holds its place at most. Never zero.
    pub(crate) probe_timeout: Duration,
}

/// Which calls are slow, and how many of them are too many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SlowRule {
    /// From sending the call to its first byte.
    pub(crate) after: Duration,
    /// More than 0, at most 1.
    pub(crate) rate: f64,
}

/// What a breaker lets through.
///
/// ```
/// use tower_inflight::BreakerState;
///
/// assert_eq!(BreakerState::default(), BreakerState::Closed);
/// assert_eq!(BreakerState::HalfOpen.to_string(), "half_open");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BreakerState {
    /// Every call: all is well, or there is no breaker.
    #[default]
    Closed,
    /// None.
    Open,
    /// A few, to see whether the upstream is back.
    HalfOpen,
}

/// What a call keeps of the breaker that let it in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pass {
    generation: u32,
    /// Which probe of its generation; 0: it is none.
    probe: u32,
}

#[derive(Debug)]
pub(crate) struct Breaker {
    /// `None`: off. Then it is closed and stays so.
    policy: Option<BreakerPolicy>,
    phase: Phase,
    generation: u32,
    /// Results while closed.
    tally: Rolling<3>,
    /// Half-open rounds in a row that did not close it.
    failed_rounds: u32,
}

#[derive(Debug)]
enum Phase {
    Closed,
    /// Once this moment is past, half-open in all but name: the first call makes it so.
    Open {
        until: Time,
    },
    HalfOpen(Round),
}

/// What a call that ended says about the upstream.
#[derive(Clone, Copy, Debug)]
struct Evidence {
    outcome: Outcome,
    is_slow: bool,
}

/// What is tallied.
const CALLS: usize = 0;
const FAILED: usize = 1;
const SLOW: usize = 2;

impl Breaker {
    pub(super) fn new(policy: Option<BreakerPolicy>) -> Self {
        Self { policy, phase: Phase::Closed, generation: 0, tally: tally(policy), failed_rounds: 0 }
    }

    /// Another policy, from the next result on. Open, the breaker stays so for as long as it was to; half-open, its round
    /// begins anew; with none, it closes.
    pub(super) fn set_policy(&mut self, policy: Option<BreakerPolicy>, now: Time, changes: &mut Changes<'_>) {
        if policy == self.policy {
            return;
        }
        let window = |policy: Option<BreakerPolicy>| policy.map(|policy| policy.window);
        if window(policy) != window(self.policy) {
            self.tally = tally(policy);
        }
        self.policy = policy;
        match self.phase {
            Phase::Open { .. } | Phase::HalfOpen(_) if policy.is_none() => self.close(Cause::Config, changes),
            Phase::HalfOpen(_) => self.begin(Phase::HalfOpen(Round::new(now))),
            Phase::Open { .. } | Phase::Closed => {}
        }
    }

    /// It hears of results. Off, it need not be told.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.policy.is_some()
    }

    /// A call may be sent now. If it is, [`take`](Self::take) its pass in the same step.
    #[inline]
    pub(super) fn admits(&self, now: Time) -> bool {
        matches!(self.phase, Phase::Closed) || self.admits_probe(now)
    }

    #[cold]
    fn admits_probe(&self, now: Time) -> bool {
        match (&self.phase, self.policy) {
            (Phase::Open { until }, _) => now >= *until,
            (Phase::HalfOpen(round), Some(policy)) => round.has_room(policy.probes, now),
            _ => true,
        }
    }

    /// The pass of a call that is let in. It goes back once: with [`give_back`](Self::give_back) if the call was not sent,
    /// else with [`on_end`](Self::on_end).
    #[inline]
    pub(super) fn take(&mut self, now: Time, changes: &mut Changes<'_>) -> Pass {
        let probe = if matches!(self.phase, Phase::Closed) { 0 } else { self.take_probe(now, changes) };
        Pass { generation: self.generation, probe }
    }

    #[cold]
    fn take_probe(&mut self, now: Time, changes: &mut Changes<'_>) -> u32 {
        debug_assert!(self.admits(now), "a call that is not let in takes nothing");
        if matches!(self.phase, Phase::Open { .. }) {
            self.enter(Phase::HalfOpen(Round::new(now)), Cause::Elapsed, changes);
        }
        match (&mut self.phase, self.policy) {
            (Phase::HalfOpen(round), Some(policy)) => round.take(policy.probe_timeout, now),
            _ => 0,
        }
    }

    /// A call that was let in is not sent.
    #[inline]
    pub(super) fn give_back(&mut self, pass: Pass) {
        if pass.generation == self.generation {
            if let Phase::HalfOpen(round) = &mut self.phase {
                round.give_back(pass.probe);
            }
        }
    }

    /// A call that was sent is over. `luck` is a random number from 0 to 1.
    pub(super) fn on_end(
        &mut self,
        pass: Pass,
        ending: &Ending,
        sent_at: Time,
        luck: f64,
        now: Time,
        changes: &mut Changes<'_>,
    ) {
        self.give_back(pass);
        let Some(policy) = self.policy.filter(|_| pass.generation == self.generation) else { return };
        let Some(evidence) = Evidence::of(ending, sent_at, policy.slow, now) else { return };
        match &mut self.phase {
            Phase::Closed => {
                if let Some(cause) = self.count(evidence, policy, now) {
                    self.open(policy, cause, luck, now, changes);
                }
            }
            // Overdue or not: a probe that took longer than its lease is as good a witness as any.
            Phase::HalfOpen(round) => {
                if let Some(cause) = evidence.against() {
                    self.failed_rounds += 1;
                    self.open(policy, cause, luck, now, changes);
                } else if round.succeed() >= policy.probes {
                    self.close(Cause::Answer(evidence.outcome), changes);
                }
            }
            Phase::Open { .. } => {}
        }
    }

    /// For how long it stays open; `None` unless it is.
    #[inline]
    pub(super) fn time_left(&self, now: Time) -> Option<Duration> {
        match self.phase {
            Phase::Open { until } if now < until => Some(until.since(now)),
            _ => None,
        }
    }

    /// For how long its probes may still be out, where all are and nobody is let in meanwhile; `None` unless it is so.
    pub(super) fn probes_left(&self, now: Time) -> Option<Duration> {
        match &self.phase {
            Phase::HalfOpen(round) if !self.admits(now) => Some(round.next_overdue(now).since(now)),
            _ => None,
        }
    }

    /// When more may pass without anything else happening: when it becomes half-open, or a probe is overdue.
    pub(super) fn next_timeout(&self, now: Time) -> Time {
        match &self.phase {
            Phase::Open { until } if now < *until => *until,
            Phase::HalfOpen(round) if !self.admits(now) => round.next_overdue(now),
            _ => Time::NEVER,
        }
    }

    pub(super) fn state(&self, now: Time) -> BreakerState {
        match self.phase {
            Phase::Closed => BreakerState::Closed,
            Phase::Open { until } if now < until => BreakerState::Open,
            Phase::Open { .. } | Phase::HalfOpen(_) => BreakerState::HalfOpen,
        }
    }

    /// Nothing to remember.
    pub(super) fn is_idle(&self, now: Time) -> bool {
        match &self.phase {
            Phase::Closed => true,
            Phase::Open { until } => now >= *until + REMEMBERED,
            Phase::HalfOpen(round) => round.is_untried_since(now, REMEMBERED),
        }
    }

    /// Counts a result, and says why it was one too many.
    fn count(&mut self, evidence: Evidence, policy: BreakerPolicy, now: Time) -> Option<Cause> {
        self.tally.add(CALLS, now);
        if evidence.is_failure() {
            self.tally.add(FAILED, now);
        }
        if evidence.is_slow {
            self.tally.add(SLOW, now);
        }
        let [calls, failed, slow] = self.tally.sums(now);
        let is_share = |part: u32, rate: f64| f64::from(part) >= f64::from(calls) * rate;
        if calls < policy.min_calls {
            None
        } else if failed > 0 && is_share(failed, policy.failure_rate) {
            Some(Cause::Failures)
        } else if slow > 0 && policy.slow.is_some_and(|rule| is_share(slow, rule.rate)) {
            Some(Cause::Slowness)
        } else {
            None
        }
    }

    fn open(&mut self, policy: BreakerPolicy, cause: Cause, luck: f64, now: Time, changes: &mut Changes<'_>) {
        let doubled = policy.open_for.saturating_mul(1 << self.failed_rounds.min(31));
        let length = doubled.min(policy.max_open_for);
        let until = now + length + (length / SPREAD_PART).mul_f64(luck);
        self.enter(Phase::Open { until }, cause, changes);
    }

    fn close(&mut self, cause: Cause, changes: &mut Changes<'_>) {
        self.failed_rounds = 0;
        self.enter(Phase::Closed, cause, changes);
    }

    #[cold]
    fn enter(&mut self, phase: Phase, cause: Cause, changes: &mut Changes<'_>) {
        let (from, to) = (self.phase.state(), phase.state());
        self.begin(phase);
        changes.note(ChangeKind::Breaker { from, to }, cause);
    }

    fn begin(&mut self, phase: Phase) {
        self.phase = phase;
        self.generation = self.generation.wrapping_add(1);
        self.tally.clear();
    }
}

fn tally(policy: Option<BreakerPolicy>) -> Rolling<3> {
    Rolling::new(policy.map_or(Duration::ZERO, |policy| policy.window))
}

impl Phase {
    fn state(&self) -> BreakerState {
        match self {
            Self::Closed => BreakerState::Closed,
            Self::Open { .. } => BreakerState::Open,
            Self::HalfOpen(_) => BreakerState::HalfOpen,
        }
    }
}

impl Evidence {
    /// `None`: it says nothing. Too much to do is not broken: the limit and the pause answer that.
    fn of(ending: &Ending, sent_at: Time, slow: Option<SlowRule>, now: Time) -> Option<Self> {
        let outcome = ending.verdict.outcome();
        if !matches!(outcome.kind(), OutcomeKind::Success | OutcomeKind::Failure) {
            return None;
        }
        let began_at = if ending.first_byte_at == Time::ZERO { now } else { ending.first_byte_at };
        let is_late = |rule: SlowRule| outcome == Outcome::Stalled || began_at.since(sent_at) > rule.after;
        Some(Self { outcome, is_slow: slow.is_some_and(is_late) })
    }

    fn is_failure(self) -> bool {
        self.outcome.kind() == OutcomeKind::Failure
    }

    /// Why it sends a half-open breaker back.
    fn against(self) -> Option<Cause> {
        if self.is_failure() { Some(Cause::Answer(self.outcome)) } else { self.is_slow.then_some(Cause::Slowness) }
    }
}

impl BreakerState {
    /// The name used in snapshots.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

impl fmt::Display for BreakerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;
