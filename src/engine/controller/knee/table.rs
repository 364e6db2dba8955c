//! Every number the controller is made of. Times are in seconds, holds in rounds.
//!
//! The study that chose them varied each by half, up and down, over 48 scenarios: the mean goodput moved between 0.960
//! and 0.981 of an oracle's. None of them is delicate.

// When a round ends.
/// Answers that must have begun: a mean over fewer says nothing.
pub(super) const MIN_FIRSTS: f64 = 4.0;
/// A round lasts at least so many mean baseline waits; shorter ones are mostly edge.
pub(super) const ROUND_BASES: f64 = 8.0;
/// And until so many answers of the round's own calls are complete, as a share of the limit.
pub(super) const DONE_SHARE: f64 = 0.25;
/// It ends at once when this share of the calls in flight is queued upstream,
pub(super) const EARLY_SHARE: f64 = 0.4;
/// if there are more than so many,
pub(super) const EARLY_CALLS: f64 = 1.5;
/// and it has lasted so many mean baseline waits.
pub(super) const EARLY_BASES: f64 = 4.0;

// When a limit is in use.
/// This share of it in flight,
pub(super) const SATURATED_SHARE: f64 = 0.7;
/// and this share of the calls held back by it.
pub(super) const SATURATED_SENDS: f64 = 0.5;

// A queue upstream that is not worth a cut.
/// Below one call, so that a capacity of 1 is found;
pub(super) const QUEUE_CALLS: f64 = 0.6;
/// and half of the wait that is normal,
pub(super) const QUEUE_PREFILL: f64 = 0.5;
/// or a wait that nobody feels. An answer that is not later than this is prompt.
pub(super) const QUEUE_SECONDS: f64 = 0.25;
/// A queue has to stand out by so many standard errors: one round in fifteen cries wolf.
pub(super) const QUEUE_ERRORS: f64 = 1.5;

// The baseline.
/// Rounds in each of two epochs. Long enough that a bad round is forgotten, short enough to follow a drift.
pub(super) const EPOCH_ROUNDS: u32 = 15;
/// Rounds over which waits are averaged before the least average counts.
pub(super) const BLOCK_ROUNDS: u32 = 3;
/// The mean wait at a quiet upstream is at most so many times the least.
pub(super) const SCALE_MAX: f64 = 20.0;

// The shape of answers.
/// Answers over which shares are averaged.
pub(super) const ANSWERS: f64 = 32.0;
/// More than this share in one piece: work is measured by whole answers.
pub(super) const ONE_PIECE_SHARE: f64 = 0.5;
/// More than this share that should have come in pieces and did not: first bytes show no queue.
pub(super) const SURPRISE_SHARE: f64 = 0.02;

// Work.
/// Calls that are so many times more must bring this part of the logarithm as work: 7 % for twice as many. Work is measured to
/// about 1.5 % at 256 calls.
pub(super) const ELASTICITY: f64 = 0.1;
/// The same where first bytes show no queue, and whole answers are all there is to count.
pub(super) const ELASTICITY_BLIND: f64 = 0.3;
/// Work is compared once the calls in flight are so many times the reference,
pub(super) const GAINED: f64 = 1.2;
/// or fewer by this share.
pub(super) const LOST: f64 = 0.05;
/// With fewer calls, missing work proves nothing: servers that compute in batches may be slower with two or three calls than
/// with one, and faster with four (llama.cpp on one core: 60, 54, 54 and 70 tokens/s). A mean of four in flight is a little less.
pub(super) const FEW: f64 = 3.5;

// Looking up and down.
/// Longest hold after looks that were refused or brought nothing: about one refusal in twelve limits' worth of calls.
pub(super) const HOLD_MAX: f64 = 12.0;
/// Longest hold after looks that met a queue: these cost no call.
pub(super) const HOLD_MAX_QUEUE: f64 = 8.0;
/// Hold after the capacity changed: it allows three quick looks before they are rare again.
pub(super) const HOLD_AFTER_CHANGE: f64 = 0.25;
/// A fall below this share of the limit is a change of capacity.
pub(super) const NEAR: f64 = 0.7;
/// A look that came no further than so many times its start, and one call, found nothing.
pub(super) const SAME_LEVEL: f64 = 1.1;
/// Steps up to this many calls come at once, larger ones with the successes of the round,
pub(super) const STEP_AT_ONCE: f64 = 2.0;
/// within this part of it, so that the rest of it can measure them.
pub(super) const UP_PACE: f64 = 2.0;
/// A look downwards goes to this share of the limit,
pub(super) const TRIM: f64 = 0.75;
/// not below so many calls, where work cannot be measured,
pub(super) const TRIM_FROM: f64 = 8.0;
/// when looks upwards have become as rare as this,
pub(super) const TRIM_HOLD: f64 = 4.0;
/// and takes the place of every second look,
pub(super) const TRIM_EVERY: u32 = 2;
/// or of every fourth at an upstream that refuses: it has its own way to say that it is too much.
pub(super) const TRIM_EVERY_REFUSED: u32 = 4;

// What worked before.
/// A level of so many times the limit is worth going back to.
pub(super) const PEAK: f64 = 1.5;
/// Time to the first quick look after a fall; doubled with each look.
pub(super) const QUICK_FIRST: f64 = 2.0;

// A ceiling that costs a pause.
/// No look for so many times the pause: looks then cost 5 % of the time at most,
pub(super) const PRICE: f64 = 20.0;
/// and 2.5 % from the second look that failed on.
pub(super) const PRICE_MAX: f64 = 40.0;
/// Never longer than this: the pause is somebody else's word.
pub(super) const CEILING_MAX: f64 = 3600.0;

// Refusals and failures.
/// What a success adds to the credit for stray refusals: one call in 100 may be refused for nothing,
pub(super) const STRAY_CREDIT: f64 = 0.01;
/// so many of them at once.
pub(super) const STRAY_CREDIT_MAX: f64 = 3.0;
/// Refusals of calls sent one after another, with no acceptance between, that mean: nothing is taken.
pub(super) const COLLAPSE_REFUSALS: u32 = 2;
/// The same for failures, which are not about load as a rule.
pub(super) const OUTAGE_FAILURES: u32 = 4;
/// Time between two trials at first; doubled each time,
pub(super) const TRIAL_FIRST: f64 = 0.5;
/// up to this while calls are refused, which costs the upstream little,
pub(super) const TRIAL_MAX_REFUSED: f64 = 3.0;
/// and to this while they fail.
pub(super) const TRIAL_MAX_FAILED: f64 = 15.0;
/// More or less of it, so that processes do not march in step.
pub(super) const TRIAL_JITTER: f64 = 0.2;
/// Any number will do.
pub(super) const JITTER_SEED: u64 = 5;
