//! The recommended controller: finds the knee of the upstream by itself.
//!
//! ```text
//!             ┌ Answers   which of them come in pieces
//!             ├ Baseline  the wait for a first byte that is normal, by size of request
//! hooks ──▶ Round ─────── what was measured ──▶ Search ──▶ limit
//!             ├ Waiting   the queue upstream     ├ Reference  what a limit was good for
//!             │                                  ├ Peak       what worked before a fall
//!             └ Refusals ─ wave, or stray ─────▶ └ Ceiling    what costs a pause to touch
//!                       └▶ Trial  one call at a time ──▶ pause
//! ```
//!
//! All times in here are seconds, as `f64`: they are averaged, multiplied and divided, and the study they were tuned in
//! (`docs/controllers-comparison.md`) had them so. What each part is worth: `docs/controllers-ablation.md`.

mod answers;
mod baseline;
mod ceiling;
mod peak;
mod reference;
mod refusals;
mod round;
mod search;
mod table;
mod trial;
mod waiting;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::answers::Shape;
use self::baseline::{Baseline, Bucket};
use self::refusals::{Refusal, Refusals};
use self::round::{Reading, Round};
use self::search::Search;
use self::table::{JITTER_SEED, OUTAGE_FAILURES, QUEUE_SECONDS};
use self::trial::Trial;
use self::waiting::Waiting;
use super::bounds::{Bounds, InvalidController};
use super::{Controller, Mark, Sample, Sent};
use crate::engine::jitter::Jitter;
use crate::engine::outcome::Outcome;

/// What a [`Knee`] may do. Nothing in it needs tuning.
///
/// ```
/// use tower_inflight::controller::KneeConfig;
///
/// // A lane whose upstream is known to take 500 calls at once need not find that out.
/// let large = KneeConfig { initial_limit: 500, ..KneeConfig::default() };
/// assert_eq!((large.min_limit, large.max_limit), (1, 4096));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KneeConfig {
    /// Limit of a lane that nothing is known of. Default 16: from there, 1 and 256 are a few rounds away.
    pub initial_limit: u32,
    /// Never below. Default 1.
    pub min_limit: u32,
    /// Never above. Default 4,096: twice the largest upstream it was tried on.
    pub max_limit: u32,
}

impl Default for KneeConfig {
    fn default() -> Self {
        Self { initial_limit: 16, min_limit: 1, max_limit: 4096 }
    }
}

impl KneeConfig {
    fn check(&self) -> Result<Bounds, InvalidController> {
        Bounds::parse(self.min_limit, self.initial_limit, self.max_limit)
    }
}

/// Finds the least limit beyond which only waiting grows, without any tuning.
///
/// It needs no number to start from, follows an upstream whose capacity changes, and works with upstreams that refuse
/// what is too much and with such that let it queue.
///
/// - **Queue**: what calls wait for their first byte beyond the least they ever waited is, by Little's law, the number
///   of them that are queued upstream. Where that is more than can be felt, the limit goes down by as many.
/// - **Refusals**: a refused call shows how many are accepted. The limit is set to that at once, and a single refusal
///   among many acceptances is forgiven.
/// - **Looking**: from time to time the limit is raised a little, and now and then lowered, to see whether more work
///   gets done. Looks that find nothing become rare; where a refusal asks for a long pause (`retry-after: 60`), so rare
///   that they cost 5 % of the time at most.
/// - **Coming back**: after a fall, single calls try soon whether the old level works again. After refusals of
///   everything, and after failures of everything, calls are tried one at a time.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tower_inflight::Outcome;
/// use tower_inflight::controller::{Controller, Knee, KneeConfig, Sample, Sent};
///
/// let mut knee = Knee::new(KneeConfig::default())?;
/// assert_eq!(knee.limit(), 16);
///
/// // Sixteen are sent, and all but four of them refused: four is what the upstream takes.
/// let sent: Vec<Sent> = (1..=16).map(|n| Sent::new(Duration::from_millis(n.into()), n)).collect();
/// let marks: Vec<_> = sent.iter().map(|sent| knee.on_sent(sent)).collect();
/// for (n, in_flight) in (4..16).zip((5..=16).rev()) {
///     let mut sample = Sample::new(sent[n], marks[n], Duration::from_millis(20), Outcome::Overload);
///     sample.in_flight = in_flight;
///     knee.on_end(&sample);
/// }
/// assert_eq!(knee.limit(), 4);
/// # Ok::<(), tower_inflight::controller::InvalidController>(())
/// ```
///
/// # When not to use it
/// Where the capacity is promised, [`Fixed`](super::Fixed) is simpler. A cap on requests or tokens per minute is not a
/// matter of calls in flight: add a rate limit for that.
#[derive(Debug)]
pub struct Knee {
    bounds: Bounds,
    search: Search,
    round: Round,
    waiting: Waiting,
    baseline: Box<Baseline>,
    refusals: Refusals,
    failures: u32,
    trial: Option<Trial>,
    jitter: Jitter,
}

impl Knee {
    /// Begins at `initial_limit`.
    ///
    /// # Errors
    /// A setting that can never work.
    pub fn new(config: KneeConfig) -> Result<Self, InvalidController> {
        let bounds = config.check()?;
        let mut knee = Self {
            bounds,
            search: Search::new(f64::from(config.initial_limit), bounds),
            round: Round::default(),
            waiting: Waiting::new(),
            baseline: Box::new(Baseline::new()),
            refusals: Refusals::default(),
            failures: 0,
            trial: None,
            jitter: Jitter::new(JITTER_SEED),
        };
        knee.begin_round(0.0);
        Ok(knee)
    }

    /// Another sequence of random numbers: they space out trials, and processes should not march in step.
    pub(crate) fn with_seed(self, seed: u64) -> Self {
        Self { jitter: Jitter::new(seed), ..self }
    }

    fn begin_round(&mut self, now: f64) {
        self.round.restart(now, self.search.limit(), &self.waiting);
    }

    fn end_round(&mut self, now: f64) {
        let reading = self.round.read(now, self.search.limit(), &self.waiting);
        self.baseline.end_round(self.round.waits());
        self.refusals.end_round();
        self.search.end_round(now, &reading);
        self.begin_round(now);
    }

    /// As [`Self::end_round`], at once: what was measured so far is enough for a cut, and for nothing else.
    fn end_round_early(&mut self, now: f64) {
        let reading = self.round.read(now, self.search.limit(), &self.waiting);
        self.baseline.end_round(None);
        self.refusals.end_round();
        self.search.end_round(now, &Reading { noise: 0.0, ..reading });
        self.begin_round(now);
    }

    /// The upstream answers the call. Ends a trial.
    fn on_accepted(&mut self, now: f64, sent_at: f64, in_flight: u32) {
        self.refusals.on_accepted(sent_at, in_flight);
        if self.trial.as_ref().is_some_and(|trial| trial.includes(sent_at)) {
            self.trial = None;
            self.failures = 0;
            self.search.resume(now, self.round.in_flight());
            self.waiting.forget_until(now);
            self.begin_round(now);
        }
    }

    fn on_success(&mut self, now: f64, sample: &Sample) {
        self.failures = 0;
        self.refusals.on_success();
        // Not for those that waited under a lower limit, which nobody fills any more.
        if sample.sent.is_saturated && round::is_used(f64::from(sample.in_flight), self.search.limit()) {
            self.search.on_saturated_success();
        }
        self.measure_answer(now, sample);
        if self.trial.is_some() || !self.round.began_by(seconds(sample.sent.at)) {
            return;
        }
        if self.round.is_complete(now) {
            self.end_round(now);
        } else if self.round.is_overloaded(now, &self.waiting) {
            self.end_round_early(now);
        } else if self.search.looks_quickly(now) {
            self.begin_round(now);
        }
    }

    fn measure_answer(&mut self, now: f64, sample: &Sample) {
        let shape = if sample.further_chunks == 0 { Shape::OnePiece } else { Shape::Pieces };
        self.round.answers.on_answer(expectation(sample.mark).map_or(Shape::OnePiece, |_| Shape::Pieces), shape);
        let sent_at = seconds(sample.sent.at);
        if !self.round.began_by(sent_at) {
            return;
        }
        match shape {
            Shape::OnePiece => self.round.on_one_piece(now - sent_at, f64::from(sample.answer_bytes.max(1))),
            Shape::Pieces => {
                let first_byte_at = sample.first_byte_at.map_or(now, seconds);
                self.round.on_pieces(now - first_byte_at, f64::from(sample.further_chunks) + 1.0);
            }
        }
    }

    fn on_refused(&mut self, now: f64, sample: &Sample) {
        let others = self.round.in_flight();
        let sent_at = seconds(sample.sent.at);
        if self.trial.is_some() {
            self.refusals.on_refused_in_trial(now, sent_at);
            self.search.lower_goal(others);
            return;
        }
        // No ceiling was found where as many were accepted lately, nor where nothing was under way.
        let is_ceiling = others >= 1.0 && !self.refusals.is_proven(sample.sent.in_flight);
        let pause = sample.retry_after.filter(|_| is_ceiling).map_or(0.0, seconds);
        let refusal = self.refusals.on_refused(now, sent_at, sample.sent.in_flight);
        if refusal == Refusal::Fresh || refusal == Refusal::Late && others < self.search.limit() {
            self.search.on_refused(now, others, refusal, pause);
            self.begin_round(now);
        }
        if self.refusals.is_collapse() {
            self.trial = Some(Trial::after_refusals(now));
        }
    }

    fn on_failed(&mut self, now: f64) {
        self.failures += 1;
        if self.trial.is_none() && self.failures >= OUTAGE_FAILURES {
            self.search.on_outage();
            self.trial = Some(Trial::after_failures(now));
        }
    }
}

impl Controller for Knee {
    fn limit(&self) -> u32 {
        self.bounds.round_down(match self.trial {
            // Hung calls may hold every slot; the trial must get past them.
            Some(_) => self.round.in_flight() + 1.0,
            None => self.search.limit(),
        })
    }

    fn paused_until(&self) -> Option<Duration> {
        self.trial.as_ref().map(|trial| Duration::from_secs_f64(trial.next_at()))
    }

    fn on_sent(&mut self, sent: &Sent) -> Mark {
        let now = seconds(sent.at);
        if self.round.is_draining() {
            self.waiting.forget(now);
            self.round.restart_drained(now, self.search.limit(), &self.waiting);
        }
        self.round.set_in_flight(now, sent.in_flight);
        self.round.on_sent(sent.is_saturated);
        if let Some(trial) = &mut self.trial {
            trial.on_sent(now, &mut self.jitter);
        }
        match self.round.answers.expected(sent.asks_for_stream) {
            Shape::OnePiece => {
                self.round.start_answer(now);
                ONE_PIECE
            }
            Shape::Pieces => {
                let mark = expecting(self.baseline.expected(Bucket::of(sent.request_bytes)));
                self.waiting.enter(now, f64::from(mark.0));
                mark
            }
        }
    }

    fn on_first_byte(&mut self, at: Duration, sent: &Sent, mark: Mark) {
        let (now, sent_at) = (seconds(at), seconds(sent.at));
        let Some(expected) = expectation(mark) else {
            self.on_accepted(now, sent_at, sent.in_flight);
            return self.round.on_begun_in_one_piece();
        };
        self.waiting.leave(sent_at, expected);
        self.round.start_answer(now);
        let (bucket, wait) = (Bucket::of(sent.request_bytes), now - sent_at);
        self.baseline.learn(bucket, wait);
        self.on_accepted(now, sent_at, sent.in_flight);
        let excess = wait - self.baseline.expected(bucket);
        self.waiting.settle(sent_at, excess);
        self.round.on_begun(wait, excess, self.baseline.scale());
        let is_prompt = sent.is_saturated && excess <= QUEUE_SECONDS;
        if is_prompt && self.search.on_prompt_answer(now, f64::from(sent.in_flight)) {
            self.begin_round(now);
        }
    }

    fn on_end(&mut self, sample: &Sample) {
        let now = seconds(sample.ended_at);
        self.round.set_in_flight(now, sample.in_flight.saturating_sub(1));
        match expectation(sample.mark) {
            Some(expected) if sample.first_byte_at.is_none() => self.waiting.leave(seconds(sample.sent.at), expected),
            _ => self.round.stop_answer(now),
        }
        match sample.outcome {
            Outcome::Success => self.on_success(now, sample),
            Outcome::Overload => self.on_refused(now, sample),
            Outcome::Transport | Outcome::Stalled | Outcome::Unavailable => self.on_failed(now),
            _ => {}
        }
    }
}

/// Marks a call whose first byte will say nothing. Any other mark is the wait to expect.
const ONE_PIECE: Mark = Mark(f32::NAN);

#[expect(clippy::cast_possible_truncation, reason = "what is added is what is taken away: the rounded wait")]
fn expecting(wait: f64) -> Mark {
    Mark(wait as f32)
}

fn expectation(mark: Mark) -> Option<f64> {
    (!mark.0.is_nan()).then(|| f64::from(mark.0))
}

fn seconds(time: Duration) -> f64 {
    // Not `as_secs_f64`: its division takes as long as the rest of a hook.
    time.as_secs() as f64 + f64::from(time.subsec_nanos()) * 1e-9
}

#[cfg(test)]
mod tests;
