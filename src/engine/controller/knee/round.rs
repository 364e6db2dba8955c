//! What is measured between two decisions.

use super::answers::Answers;
use super::table::{
    DONE_SHARE, EARLY_BASES, EARLY_CALLS, EARLY_SHARE, ELASTICITY, ELASTICITY_BLIND, MIN_FIRSTS, ONE_PIECE_SHARE,
    QUEUE_CALLS, QUEUE_ERRORS, QUEUE_PREFILL, QUEUE_SECONDS, ROUND_BASES, SATURATED_SENDS, SATURATED_SHARE,
};
use super::waiting::Waiting;

/// The calls since the last decision.
///
/// A round lasts until about as many answers have begun as the limit allows, and long enough that its edges do not
/// matter.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) answers: Answers,
    started: f64,
    target: f64,
    is_draining: bool,
    excess_at_start: f64,
    in_flight: Integral,
    streaming: Integral,
    sent: f64,
    sent_saturated: f64,
    begun: f64,
    waits: Waits,
    /// Calls sent in this round that ended well.
    done: f64,
    in_pieces: Work,
    in_one_piece: Work,
}

/// A count that changes over time, and its integral.
#[derive(Clone, Copy, Debug, Default)]
struct Integral {
    count: f64,
    sum: f64,
    at: f64,
}

/// How long the answers that began had been waited for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waits {
    /// As it was.
    pub(super) waited: f64,
    /// As it should have been.
    pub(super) expected: f64,
    /// As it should have been at least.
    pub(super) least: f64,
    pub(super) excess: f64,
    pub(super) excess_squared: f64,
}

/// Answers that ended well: how many, the time they took, and how much they were.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    answers: f64,
    seconds: f64,
    pieces: f64,
}

/// What a round says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Mean calls in flight.
    pub(super) in_flight: f64,
    /// Mean calls queued upstream.
    pub(super) queued: f64,
    /// How much of that may be chance.
    pub(super) noise: f64,
    /// Calls queued upstream that are not worth a cut.
    pub(super) tolerated: f64,
    /// Useful work: pieces of answers per second.
    pub(super) work: f64,
    /// The share of added calls that has to come back as work.
    pub(super) elasticity: f64,
    /// The limit was what held calls back.
    pub(super) is_saturated: bool,
}

/// Whether so many calls make use of the limit.
pub(super) fn is_used(in_flight: f64, limit: f64) -> bool {
    in_flight > SATURATED_SHARE * limit.floor()
}

impl Reading {
    pub(super) fn shows_queue(&self) -> bool {
        self.queued - self.noise > self.tolerated
    }
}

impl Integral {
    fn set(&mut self, now: f64, count: f64) {
        self.sum = self.sum_at(now);
        self.at = now;
        self.count = count.max(0.0);
    }

    fn sum_at(&self, now: f64) -> f64 {
        self.sum + self.count * (now - self.at)
    }

    fn restarted(&self, now: f64) -> Self {
        Self { count: self.count, sum: 0.0, at: now }
    }
}

impl Work {
    fn add(&mut self, seconds: f64, pieces: f64) {
        self.answers += 1.0;
        self.seconds += seconds;
        self.pieces += pieces;
    }

    fn per_piece(&self) -> f64 {
        if self.pieces > 0.0 { self.seconds / self.pieces } else { 1.0 }
    }
}

impl Round {
    pub(super) fn restart(&mut self, now: f64, limit: f64, waiting: &Waiting) {
        let in_flight = self.in_flight.restarted(now);
        let limit = limit.floor();
        *self = Self {
            answers: std::mem::take(&mut self.answers),
            started: now,
            target: limit.max(MIN_FIRSTS),
            is_draining: in_flight.count > limit,
            excess_at_start: waiting.excess(now),
            in_flight,
            streaming: self.streaming.restarted(now),
            ..Self::default()
        };
    }

    /// More calls are in flight than the limit allows. The first that is sent ends that, and the round begins anew.
    pub(super) fn is_draining(&self) -> bool {
        self.is_draining
    }

    pub(super) fn restart_drained(&mut self, now: f64, limit: f64, waiting: &Waiting) {
        self.restart(now, limit, waiting);
        self.is_draining = false;
    }

    pub(super) fn in_flight(&self) -> f64 {
        self.in_flight.count
    }

    /// A call sent then is of this round.
    pub(super) fn began_by(&self, sent: f64) -> bool {
        sent >= self.started
    }

    pub(super) fn set_in_flight(&mut self, now: f64, in_flight: u32) {
        if self.in_flight.count == 0.0 {
            // Time with nothing under way is no part of a round: an hour of it would make the next queue look like none.
            let idle = now - self.in_flight.at.max(self.started);
            self.started = (self.started + idle).min(now);
        }
        self.in_flight.set(now, f64::from(in_flight));
    }

    pub(super) fn on_sent(&mut self, is_saturated: bool) {
        self.sent += 1.0;
        self.sent_saturated += f64::from(u8::from(is_saturated));
    }

    /// A call is being answered, or is expected to be answered in one piece.
    pub(super) fn start_answer(&mut self, now: f64) {
        self.streaming.set(now, self.streaming.count + 1.0);
    }

    pub(super) fn stop_answer(&mut self, now: f64) {
        self.streaming.set(now, self.streaming.count - 1.0);
    }

    /// An answer began, of a call that waited for it `excess` seconds longer than expected.
    pub(super) fn on_begun(&mut self, wait: f64, excess: f64, scale: f64) {
        self.begun += 1.0;
        self.waits.waited += wait;
        self.waits.expected += wait - excess;
        self.waits.least += (wait - excess) / scale;
        self.waits.excess += excess;
        self.waits.excess_squared += excess * excess;
    }

    /// An answer came of a call that was expected to be answered in one piece.
    pub(super) fn on_begun_in_one_piece(&mut self) {
        self.begun += 1.0;
    }

    /// A call of this round ended well, `seconds` after its first byte.
    pub(super) fn on_pieces(&mut self, seconds: f64, pieces: f64) {
        self.done += 1.0;
        self.in_pieces.add(seconds, pieces);
    }

    /// A call of this round ended well, `seconds` after it was sent, with an answer in one piece of that many bytes.
    pub(super) fn on_one_piece(&mut self, seconds: f64, bytes: f64) {
        self.done += 1.0;
        self.in_one_piece.add(seconds, bytes);
    }

    /// Long enough: everybody has been through, and the calls that straddle its edges are few.
    pub(super) fn is_complete(&self, now: f64) -> bool {
        self.begun >= self.target
            && self.done >= (DONE_SHARE * self.target).max(1.0)
            && (now - self.started) * self.begun >= ROUND_BASES * self.waits.least
    }

    /// So much is queued that until the end of the round it would only become more.
    pub(super) fn is_overloaded(&self, now: f64, waiting: &Waiting) -> bool {
        let elapsed = self.elapsed(now);
        if self.is_blind() || self.begun == 0.0 || elapsed * self.begun <= EARLY_BASES * self.waits.expected {
            return false;
        }
        let in_flight = self.in_flight.sum_at(now) / elapsed;
        let queued = self.queued(now, in_flight, waiting);
        in_flight > EARLY_CALLS && queued > EARLY_SHARE * in_flight && queued > self.tolerated(now)
    }

    pub(super) fn read(&self, now: f64, limit: f64, waiting: &Waiting) -> Reading {
        let elapsed = self.elapsed(now);
        let in_flight = self.in_flight.sum_at(now) / elapsed;
        let is_blind = self.is_blind();
        let work = if self.is_in_one_piece() {
            in_flight / self.in_one_piece.per_piece()
        } else {
            self.streaming.sum_at(now) / elapsed / self.in_pieces.per_piece()
        };
        let is_held_back = self.sent_saturated >= SATURATED_SENDS * self.sent;
        Reading {
            in_flight,
            queued: if is_blind { 0.0 } else { self.queued(now, in_flight, waiting) },
            noise: QUEUE_ERRORS * self.waits.spread(self.begun) / elapsed,
            tolerated: self.tolerated(now),
            work,
            elasticity: if is_blind { ELASTICITY_BLIND } else { ELASTICITY },
            is_saturated: is_held_back && is_used(in_flight, limit),
        }
    }

    /// Enough waits for their mean to count.
    pub(super) fn waits(&self) -> Option<Waits> {
        (self.begun >= MIN_FIRSTS && self.waits.least > 0.0).then_some(self.waits)
    }

    fn elapsed(&self, now: f64) -> f64 {
        (now - self.started).max(1e-9)
    }

    fn queued(&self, now: f64, in_flight: f64, waiting: &Waiting) -> f64 {
        ((waiting.excess(now) - self.excess_at_start) / self.elapsed(now)).clamp(0.0, in_flight)
    }

    fn tolerated(&self, now: f64) -> f64 {
        let waits = (QUEUE_PREFILL * self.waits.expected).max(QUEUE_SECONDS * self.begun);
        QUEUE_CALLS + waits / self.elapsed(now)
    }

    fn is_in_one_piece(&self) -> bool {
        self.in_one_piece.answers > ONE_PIECE_SHARE * self.done
    }

    /// First bytes say nothing about a queue.
    fn is_blind(&self) -> bool {
        self.is_in_one_piece() || self.answers.hide_queue()
    }
}

impl Waits {
    /// The standard error of the sum of the excess.
    fn spread(&self, count: f64) -> f64 {
        (self.excess_squared - self.excess * self.excess / count.max(1.0)).max(0.0).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(limit: f64) -> (Round, Waiting) {
        let (mut round, waiting) = (Round::default(), Waiting::new());
        round.restart(0.0, limit, &waiting);
        (round, waiting)
    }

    #[test]
    fn the_mean_in_flight_is_over_time() {
        let (mut round, waiting) = round(4.0);
        round.set_in_flight(0.0, 4);
        round.set_in_flight(6.0, 2);
        assert_eq!(round.read(8.0, 4.0, &waiting).in_flight, 3.5);
    }

    #[test]
    fn the_queue_is_what_calls_wait_beyond_the_baseline() {
        let (mut round, mut waiting) = round(4.0);
        round.set_in_flight(0.0, 4);
        for _ in 0..4 {
            waiting.enter(0.0, 1.0);
        }
        let reading = round.read(10.0, 4.0, &waiting);
        assert_eq!(reading.queued, 3.6);
        assert!(reading.shows_queue());
    }

    #[test]
    fn a_scattered_excess_may_be_chance() {
        let (mut round, mut waiting) = round(4.0);
        round.set_in_flight(0.0, 4);
        for excess in [-0.5, -0.5, 0.0, 11.0] {
            waiting.enter(0.0, 1.0);
            waiting.leave(0.0, 1.0);
            waiting.settle(0.0, excess);
            round.on_begun(1.0 + excess, excess, 1.0);
        }
        let reading = round.read(4.0, 4.0, &waiting);
        assert!(reading.queued > reading.tolerated);
        assert!(!reading.shows_queue(), "{reading:?}");
    }

    #[test]
    fn a_round_waits_for_its_calls_and_for_its_edges() {
        let (mut round, _) = round(4.0);
        for _ in 0..4 {
            round.on_begun(1.0, 0.0, 1.0);
        }
        assert!(!round.is_complete(100.0), "no answer is complete");
        round.on_pieces(1.0, 50.0);
        assert!(!round.is_complete(7.9));
        assert!(round.is_complete(8.0));
    }

    #[test]
    fn more_in_flight_than_the_limit_is_a_drain() {
        let (mut round, waiting) = round(8.0);
        round.set_in_flight(0.0, 8);
        round.restart(1.0, 4.0, &waiting);
        assert!(round.is_draining());
        round.restart_drained(2.0, 4.0, &waiting);
        assert!(!round.is_draining());
    }

    #[test]
    fn work_is_pieces_a_second() {
        let (mut round, waiting) = round(2.0);
        round.set_in_flight(0.0, 2);
        round.start_answer(0.0);
        round.start_answer(0.0);
        round.on_pieces(10.0, 500.0);
        assert_eq!(round.read(10.0, 2.0, &waiting).work, 2.0 / 0.02);
    }

    #[test]
    fn answers_in_one_piece_show_work_and_no_queue() {
        let (mut round, mut waiting) = round(2.0);
        round.set_in_flight(0.0, 2);
        waiting.enter(0.0, 0.1);
        round.on_one_piece(5.0, 1000.0);
        let reading = round.read(10.0, 2.0, &waiting);
        assert_eq!((reading.queued, reading.work), (0.0, 400.0));
        assert!(!round.is_overloaded(10.0, &waiting));
    }

    #[test]
    fn a_limit_is_in_use_when_it_holds_calls_back() {
        let (mut round, waiting) = round(4.0);
        round.set_in_flight(0.0, 4);
        round.on_sent(false);
        assert!(!round.read(1.0, 4.0, &waiting).is_saturated);
        round.on_sent(true);
        assert!(round.read(1.0, 4.0, &waiting).is_saturated);
        assert!(!round.read(1.0, 10.0, &waiting).is_saturated, "far from the limit");
    }
}
