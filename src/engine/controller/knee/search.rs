//! Where to go next: the level of the limit, round by round.

use super::ceiling::Ceiling;
use super::peak::Peak;
use super::reference::Reference;
use super::refusals::Refusal;
use super::round::Reading;
use super::table::{
    BLOCK_ROUNDS, FEW, HOLD_AFTER_CHANGE, HOLD_MAX, HOLD_MAX_QUEUE, MIN_FIRSTS, NEAR, SAME_LEVEL, STEP_AT_ONCE, TRIM,
    TRIM_EVERY, TRIM_EVERY_REFUSED, TRIM_FROM, TRIM_HOLD, UP_PACE,
};
use crate::engine::controller::bounds::Bounds;

/// Looks for the knee: the least limit beyond which only waiting grows.
///
/// ```text
/// Start ── goal reached, or more calls bring no more work ──▶ Hold
/// Hold ─── time to look ──▶ Up, now and then Trim
/// Up ───── refused, no gain, or not in use ──▶ Hold
/// Up ───── more found, and more was known to work ──▶ Start
/// Trim ─── work lost ──▶ Up, from where it came
/// any ──── a queue upstream ──▶ Drain ──▶ Hold
/// Start ── a queue from the first ──▶ Base ──▶ Hold
/// ```
#[derive(Debug)]
pub(super) struct Search {
    bounds: Bounds,
    limit: f64,
    mode: Mode,
    growth: Growth,
    /// Where Start ends: at what was accepted when a call was refused, or at what worked before a fall.
    goal: f64,
    reference: Option<Reference>,
    /// Rounds to hold before the next look.
    hold: f64,
    looks: u32,
    found_by: FoundBy,
    peak: Peak,
    ceiling: Ceiling,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// Double, round by round.
    Start,
    /// Stay, and measure.
    Hold { left: f64 },
    /// Try more, in growing steps.
    Up { from: f64, step: f64, is_confirming: bool },
    /// Try less.
    Trim,
    /// Let the queue upstream run empty.
    Drain,
    /// The upstream was never seen without a queue: see what it is like with half of what seems to fit.
    Base { fitting: f64, left: u32 },
}

/// What showed the present limit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FoundBy {
    Queue,
    Refusal,
}

/// Growth within a round, spread over its successes: all at once, its first tokens would queue behind each other.
#[derive(Clone, Copy, Debug, Default)]
struct Growth {
    left: f64,
    per_success: f64,
}

impl Search {
    pub(super) fn new(initial: f64, bounds: Bounds) -> Self {
        let mut search = Self {
            bounds,
            limit: initial,
            mode: Mode::Start,
            growth: Growth::default(),
            goal: f64::INFINITY,
            reference: None,
            hold: 1.0,
            looks: 0,
            found_by: FoundBy::Queue,
            peak: Peak::new(),
            ceiling: Ceiling::new(),
        };
        search.begin_round(0.0);
        search
    }

    pub(super) fn limit(&self) -> f64 {
        self.limit
    }

    /// A round is over, and another begins.
    pub(super) fn end_round(&mut self, now: f64, reading: &Reading) {
        if reading.shows_queue() {
            self.shed(now, reading);
        } else {
            self.decide(now, reading);
        }
        self.begin_round(now);
    }

    /// A call that had to wait for its slot ended well.
    pub(super) fn on_saturated_success(&mut self) {
        if self.growth.left <= 0.0 {
            return;
        }
        let step = self.growth.per_success.min(self.growth.left);
        self.growth.left -= step;
        self.limit += step;
        if self.mode == Mode::Start {
            self.limit = self.limit.min(self.goal);
        }
    }

    /// An answer began as if nothing were queued, of a call that had to wait for its slot here and was then one of
    /// `in_flight`. Whether that changes the plan: a new round is due.
    pub(super) fn on_prompt_answer(&mut self, now: f64, in_flight: f64) -> bool {
        match self.mode {
            // It has been there before, so it need not wait for whole answers to go on.
            Mode::Start if self.goal.is_finite() => {
                self.limit = self.limit.max((self.limit + 1.0).min(self.goal).min(self.top(now)));
                false
            }
            Mode::Up { from, .. } if in_flight > from && self.peak.is_above(self.limit) => {
                self.return_to_peak();
                self.begin_round(now);
                true
            }
            _ => false,
        }
    }

    /// Whether to look upwards before the round is over: a new round is due.
    pub(super) fn looks_quickly(&mut self, now: f64) -> bool {
        let may_look = matches!(self.mode, Mode::Hold { .. } | Mode::Drain) && self.limit < self.top(now);
        let looks = may_look && self.peak.is_look_due(now, self.limit);
        if looks {
            self.enter_up();
            self.begin_round(now);
        }
        looks
    }

    /// The upstream refused a call while `in_flight` others were under way: that many it takes. It asked for a `pause`,
    /// or did not: 0.
    pub(super) fn on_refused(&mut self, now: f64, in_flight: f64, refusal: Refusal, pause: f64) {
        let taken = in_flight.max(self.bounds.min);
        let is_at_limit = in_flight + 1.0 >= self.limit.floor();
        if refusal == Refusal::Fresh {
            self.found_by = FoundBy::Refusal;
            match self.mode {
                Mode::Up { from, .. } => self.back_off(from, in_flight, HOLD_MAX),
                Mode::Start => {}
                _ if is_at_limit || in_flight >= NEAR * self.limit => {}
                _ => self.hold = HOLD_AFTER_CHANGE,
            }
        }
        if refusal == Refusal::Fresh || is_at_limit {
            self.goal = taken;
        }
        if pause > 0.0 {
            self.ceiling.on_refused(now, taken, pause);
        }
        self.cut(now, self.limit.min(taken));
        if self.is_at_goal() {
            self.enter_hold();
        } else {
            self.enter_start();
        }
        self.begin_round(now);
    }

    /// Calls fail, which says nothing about load: afterwards, back to where it was.
    pub(super) fn on_outage(&mut self) {
        self.goal = self.limit;
    }

    /// Even with `in_flight` calls under way, the upstream refuses one more.
    pub(super) fn lower_goal(&mut self, in_flight: f64) {
        self.goal = self.goal.min(in_flight.max(self.bounds.min));
    }

    /// The upstream takes calls again, and has `in_flight` of them.
    pub(super) fn resume(&mut self, now: f64, in_flight: f64) {
        self.limit = in_flight.min(self.goal).max(self.bounds.min);
        self.hold = HOLD_AFTER_CHANGE;
        self.enter_start();
        self.begin_round(now);
    }

    fn decide(&mut self, now: f64, reading: &Reading) {
        match self.mode {
            Mode::Start => self.end_start_round(now, reading),
            Mode::Hold { left } => self.end_hold_round(now, reading, left - 1.0),
            Mode::Up { from, step, is_confirming } => self.end_up_round(now, reading, from, step, is_confirming),
            Mode::Trim => self.end_trim_round(reading),
            Mode::Drain => self.enter_hold(),
            Mode::Base { fitting, left: 1 } => {
                self.limit = fitting;
                self.enter_hold();
            }
            Mode::Base { fitting, left } => self.mode = Mode::Base { fitting, left: left - 1 },
        }
    }

    fn end_start_round(&mut self, now: f64, reading: &Reading) {
        if !reading.is_saturated {
            return;
        }
        if let Some(before) = self.reference {
            if self.goal.is_infinite() && before.is_well_below(reading) && before.was_as_good_as(reading) {
                if self.proves_nothing(now, reading) {
                    return;
                }
                self.limit = before.in_flight().ceil();
                self.peak.forget(self.limit);
                self.hold = 1.0;
                return self.enter_hold();
            }
        }
        self.peak.on_worked(reading.in_flight);
        self.reference = Some(Reference::new(self.limit, reading));
        if self.is_at_goal() {
            self.limit = self.goal.floor();
            self.hold = self.hold.min(1.0);
            self.enter_hold();
        }
    }

    fn end_hold_round(&mut self, now: f64, reading: &Reading, left: f64) {
        self.mode = Mode::Hold { left };
        if !reading.is_saturated {
            return;
        }
        self.peak.on_worked(reading.in_flight);
        match &mut self.reference {
            Some(reference) => reference.add(reading),
            None => self.reference = Some(Reference::new(self.limit, reading)),
        }
        if left > 0.0 || self.limit >= self.top(now) {
            return;
        }
        self.looks += 1;
        let trim_every = if self.found_by == FoundBy::Refusal { TRIM_EVERY_REFUSED } else { TRIM_EVERY };
        if self.limit >= TRIM_FROM && self.hold >= TRIM_HOLD && self.looks % trim_every == 0 {
            self.limit = (self.limit * TRIM).floor();
            self.mode = Mode::Trim;
        } else {
            self.enter_up();
        }
    }

    fn end_up_round(&mut self, now: f64, reading: &Reading, from: f64, step: f64, is_confirming: bool) {
        if !reading.is_saturated {
            return self.enter_hold();
        }
        if let Some(reference) = self.reference.filter(|reference| reference.is_well_below(reading)) {
            if reference.was_as_good_as(reading) {
                if self.proves_nothing(now, reading) {
                    self.mode = Mode::Up { from, step: 2.0 * step, is_confirming: false };
                    return;
                }
                if !is_confirming {
                    self.mode = Mode::Up { from, step, is_confirming: true };
                    return;
                }
                self.limit = reference.limit();
                self.peak.forget(self.limit);
                self.hold = (2.0 * self.hold).min(HOLD_MAX);
                return self.enter_hold();
            }
            self.reference = Some(Reference::new(self.limit, reading));
            self.hold = 1.0;
        }
        self.peak.on_worked(reading.in_flight);
        if self.peak.is_above(self.limit) {
            return self.return_to_peak();
        }
        self.mode = Mode::Up { from, step: 2.0 * step, is_confirming: false };
    }

    fn end_trim_round(&mut self, reading: &Reading) {
        let Some(reference) = self.reference else { return self.enter_hold() };
        if !reference.was_no_better_than(reading) {
            self.limit = reference.limit();
            return self.enter_up();
        }
        self.reference = Some(Reference::new(self.limit, reading));
        let trimmed = (self.limit * TRIM).floor();
        if trimmed < TRIM_FROM {
            self.enter_hold();
        } else {
            self.limit = trimmed;
        }
    }

    /// Calls are queued upstream: go down by as many.
    fn shed(&mut self, now: f64, reading: &Reading) {
        let fitting = (reading.in_flight - reading.queued).round().max(self.bounds.min);
        let is_first_reading = self.mode == Mode::Start && self.reference.is_none() && self.goal.is_infinite();
        match self.mode {
            Mode::Up { from, .. } => self.back_off(from, fitting, HOLD_MAX_QUEUE),
            _ if fitting < NEAR * self.limit => self.hold = HOLD_AFTER_CHANGE,
            _ => {}
        }
        self.hold = self.hold.min(HOLD_MAX_QUEUE);
        self.found_by = FoundBy::Queue;
        if fitting >= self.limit {
            return self.enter_hold();
        }
        self.cut(now, fitting);
        self.reference = None;
        self.mode = Mode::Drain;
        if is_first_reading {
            self.limit = (fitting / 2.0).ceil().max(self.bounds.min);
            self.mode = Mode::Base { fitting, left: BLOCK_ROUNDS };
        }
    }

    fn cut(&mut self, now: f64, limit: f64) {
        self.limit = limit;
        self.peak.on_cut(now, limit);
    }

    /// Too few calls to tell by their work what more would bring, if more may be tried.
    fn proves_nothing(&self, now: f64, reading: &Reading) -> bool {
        reading.in_flight < FEW && self.limit < self.top(now)
    }

    /// A look upwards came to `reached` and no further: look less often, unless that was more than before.
    fn back_off(&mut self, from: f64, reached: f64, max: f64) {
        if reached <= SAME_LEVEL * from + 1.0 {
            self.hold = (2.0 * self.hold).min(max);
        } else {
            self.hold = 1.0;
        }
    }

    /// Most that may be tried.
    fn top(&self, now: f64) -> f64 {
        self.bounds.max.min(self.ceiling.at(now))
    }

    fn return_to_peak(&mut self) {
        self.goal = self.peak.level();
        self.enter_start();
    }

    /// A fraction of a call below is there: a limit that cannot be used would pass for one that is not.
    fn is_at_goal(&self) -> bool {
        self.limit > self.goal - 1.0
    }

    fn enter_start(&mut self) {
        self.reference = None;
        self.mode = Mode::Start;
    }

    fn enter_hold(&mut self) {
        self.reference = None;
        self.mode = Mode::Hold { left: self.hold };
    }

    fn enter_up(&mut self) {
        self.mode = Mode::Up { from: self.limit, step: 1.0, is_confirming: false };
    }

    /// Sets out what the round that begins may add.
    fn begin_round(&mut self, now: f64) {
        let (total, pace) = match self.mode {
            Mode::Start => (self.limit.min(self.goal - self.limit), 1.0),
            Mode::Up { step, is_confirming: false, .. } => (step.min(self.limit), UP_PACE),
            _ => (0.0, 1.0),
        };
        let total = total.min(self.top(now) - self.limit).max(0.0);
        let successes = self.limit.floor().max(MIN_FIRSTS);
        self.growth = Growth { left: total, per_success: pace * total / successes };
        if matches!(self.mode, Mode::Up { .. }) && total <= STEP_AT_ONCE {
            self.limit += total;
            self.growth = Growth::default();
        }
        self.limit = self.bounds.clamp(self.limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_one() -> Search {
        Search::new(1.0, Bounds::parse(1, 1, 100).unwrap())
    }

    fn holding_one() -> Search {
        let mut search = from_one();
        search.enter_hold();
        search.begin_round(0.0);
        search
    }

    /// A round in which the whole limit was used, and nothing queued upstream.
    fn round(search: &mut Search, work: impl Fn(u32) -> f64) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few calls")]
        let in_flight = search.limit().floor() as u32;
        (0..8).for_each(|_| search.on_saturated_success());
        search.end_round(0.0, &reading(in_flight, work(in_flight)));
    }

    fn reading(in_flight: u32, work: f64) -> Reading {
        Reading {
            in_flight: f64::from(in_flight),
            queued: 0.0,
            noise: 0.0,
            tolerated: 1.0,
            work,
            elasticity: 0.1,
            is_saturated: true,
        }
    }

    /// As measured of llama.cpp's server on one core, in tokens a second.
    fn best_in_fours(in_flight: u32) -> f64 {
        [60.0, 54.0, 54.0, 70.0].get(in_flight as usize - 1).copied().unwrap_or(69.0)
    }

    #[test]
    fn two_or_three_calls_that_bring_less_than_one_are_not_the_end() {
        let mut search = from_one();
        (0..6).for_each(|_| round(&mut search, best_in_fours));
        assert!((4.0..=5.0).contains(&search.limit()), "{}", search.limit());
    }

    #[test]
    fn a_look_goes_beyond_them_too() {
        let mut search = holding_one();
        let mut most = 1.0_f64;
        for _ in 0..6 {
            round(&mut search, best_in_fours);
            most = most.max(search.limit());
        }
        assert!(most >= 4.0, "{most}");
    }

    #[test]
    fn where_no_more_may_be_tried_few_calls_decide() {
        let mut search = Search::new(1.0, Bounds::parse(1, 1, 2).unwrap());
        let at_one = (0..40).filter(|_| {
            round(&mut search, best_in_fours);
            search.limit() == 1.0
        });
        assert!(at_one.count() > 20, "two bring less");
    }

    #[test]
    fn a_queue_from_the_first_is_left_by_half_to_see_what_is_normal() {
        let mut search = Search::new(16.0, Bounds::parse(1, 16, 100).unwrap());
        search.end_round(0.0, &Reading { queued: 10.0, ..reading(16, 60.0) });
        let mut limits = vec![search.limit()];
        for _ in 0..BLOCK_ROUNDS {
            search.end_round(0.0, &reading(3, 60.0));
            limits.push(search.limit());
        }
        assert_eq!(limits, [3.0, 3.0, 3.0, 6.0]);
        search.end_round(0.0, &Reading { queued: 2.0, ..reading(6, 60.0) });
        assert_eq!(search.limit(), 4.0, "once is enough");
    }

    #[test]
    fn an_upstream_that_does_no_more_for_four_keeps_the_least() {
        let mut search = holding_one();
        let limits = (0..40).map(|_| {
            round(&mut search, |_| 60.0);
            search.limit()
        });
        let limits: Vec<f64> = limits.collect();
        assert!(limits.iter().all(|limit| *limit <= 4.0), "{limits:?}");
        assert!(limits.iter().filter(|limit| **limit == 1.0).count() > 25, "looks become rare: {limits:?}");
    }
}
