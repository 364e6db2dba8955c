//! How long a call will wait and how long it will run, by what the last calls of its lane did.
//!
//! Nothing is foreseen where little is known. A lane begins to remember when the first call with a deadline has to wait in
//! it; one that never sees a deadline remembers nothing, and costs nothing.
//!
//! ```text
//! rate = slots / mean time that a call holds one       slots that become free, per second
//!      - arrivals of the classes above, per second     they take theirs first
//! wait = pause + (those ahead + 1 - slots free by then) / rate
//! ```
//!
//! Both counts come true only on average. In a time in which `n` calls should come it is `n` give or take `sqrt(n)`, as for
//! events that know nothing of each other; of `n` slots that should become free, the same times the relative spread of the
//! lengths. A call has the benefit of [half](BENEFIT) of that doubt.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::priority::Priority;
use super::quota::Tokens;
use super::time::Time;

/// The last so many calls are remembered: the mean of as many lengths is off by a sixteenth of their spread.
const REMEMBERED: usize = 256;
/// And none that ended longer ago than this.
const RECENT: Duration = Duration::from_secs(300);
/// Fewer calls that ended well say too little.
const MIN_KNOWN: usize = 30;
/// What is left of the rate where the classes above take all of it: measured rates are never exact enough to say "never".
const LEAST_PART: f64 = 0.01;
/// Of the doubt about a wait. By simulation of a steady load of mixed classes: without it, 13 % of the refused would have made
/// it and 2 % of those who waited were late; with half of it, both are below 5 %.
const BENEFIT: f64 = 0.5;
/// The mean of what calls use follows the last so many.
const USES: u32 = 64;

/// Whether a call is refused on arrival when its deadline cannot be kept.
///
/// ```
/// use tower_inflight::{LimitConfig, PredictDeadlines};
///
/// let config: LimitConfig = toml::from_str(r#"predict_deadlines = "off""#)?;
/// assert_eq!(config.predict_deadlines, PredictDeadlines::Off);
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum PredictDeadlines {
    /// It is refused as [`DeadlineUnreachable`](crate::RejectKind::DeadlineUnreachable) when it would have to wait, and the
    /// predicted wait and service together end after its deadline. The default.
    #[default]
    On,
    /// It waits until its deadline has passed.
    Off,
}

/// What is to be expected of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Foreseen {
    pub(crate) wait: Duration,
    pub(crate) service: Duration,
}

/// A call that is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) at: Time,
    pub(super) held: Duration,
    pub(super) class: Priority,
    pub(super) is_success: bool,
    /// By class, those who run or wait once it is gone.
    pub(super) present: [u32; 3],
}

/// The last calls of a lane.
#[derive(Debug, Default)]
pub(super) struct Past {
    ended: VecDeque<Ended>,
    held: Duration,
    by_class: [u32; 3],
    successes: usize,
    used: Uses,
}

/// What calls used, on average.
#[derive(Clone, Copy, Debug, Default)]
struct Uses {
    input: f64,
    output: f64,
    seen: u32,
}

/// What follows from the last calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Seconds.
    mean_held: f64,
    /// Of these times, relative to their mean.
    spread: f64,
    pub(super) service: Duration,
    /// Arrivals per second, by class.
    arrivals: [f64; 3],
    /// By a call.
    pub(super) used: Tokens,
}

/// How long a call will wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) expected: Duration,
    /// By the benefit of the doubt.
    pub(super) least: Duration,
}

/// The slots that a call waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots {
    pub(super) limit: u32,
    /// Not for this call's class.
    pub(super) withheld: u32,
    /// That nobody holds, of those for its class.
    pub(super) free: u32,
}

impl Past {
    pub(super) fn note(&mut self, ended: Ended) {
        if self.ended.len() == REMEMBERED {
            self.forget_first();
        }
        self.held += ended.held;
        self.by_class[ended.class.index()] += 1;
        self.successes += usize::from(ended.is_success);
        self.ended.push_back(ended);
    }

    pub(super) fn note_used(&mut self, used: Tokens) {
        let Uses { input, output, seen } = &mut self.used;
        *seen = (*seen + 1).min(USES);
        let part = 1.0 / f64::from(*seen);
        *input += (f64::from(used.input) - *input) * part;
        *output += (f64::from(used.output) - *output) * part;
    }

    /// `present`: by class, those who run or wait now.
    pub(super) fn known(&mut self, present: [u32; 3], now: Time) -> Option<Known> {
        while self.ended.front().is_some_and(|first| first.at + RECENT < now) {
            self.forget_first();
        }
        let first = *self.ended.front()?;
        let seconds = now.since(first.at).as_secs_f64();
        if self.successes < MIN_KNOWN || seconds <= 0.0 {
            return None;
        }
        let count = u32::try_from(self.ended.len()).unwrap_or(u32::MAX);
        // Whoever came since the first one ended has ended as well, or is here in addition to those who were here then.
        let arrivals = |class: Priority| {
            let at = class.index();
            let ended = self.by_class[at] - u32::from(first.class == class);
            f64::from((ended + present[at]).saturating_sub(first.present[at])) / seconds
        };
        let mean_held = (self.held / count).as_secs_f64();
        let squares: f64 = self.ended.iter().map(|it| (it.held.as_secs_f64() - mean_held).powi(2)).sum();
        Some(Known {
            mean_held,
            spread: (squares / f64::from(count)).sqrt() / mean_held.max(f64::EPSILON),
            service: self.median(),
            arrivals: Priority::ALL.map(arrivals),
            used: self.used.mean(),
        })
    }

    /// Of the calls that ended well: others may have been cut short.
    fn median(&self) -> Duration {
        let mut held: Vec<_> = self.ended.iter().filter(|it| it.is_success).map(|it| it.held).collect();
        let middle = held.len() / 2;
        *held.select_nth_unstable(middle).1
    }

    fn forget_first(&mut self) {
        if let Some(Ended { held, class, is_success, .. }) = self.ended.pop_front() {
            self.held -= held;
            self.by_class[class.index()] -= 1;
            self.successes -= usize::from(is_success);
        }
    }
}

impl Uses {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "means of such numbers")]
    fn mean(self) -> Tokens {
        Tokens { input: self.input as u32, output: self.output as u32 }
    }
}

impl Wait {
    /// One that is certain.
    pub(super) fn of(wait: Duration) -> Self {
        Self { expected: wait, least: wait }
    }

    /// For both of two things.
    pub(super) fn and(self, other: Self) -> Self {
        Self { expected: self.expected.max(other.expected), least: self.least.max(other.least) }
    }
}

impl Known {
    /// The wait for one of `slots`, when nobody gets one before `blocked` is over.
    ///
    /// `ahead`: those who go first, of this class and of those above it.
    pub(super) fn wait(&self, slots: Slots, class: Priority, ahead: u32, blocked: Duration) -> Wait {
        let Slots { limit, withheld, free } = slots;
        let usable = limit - withheld;
        let by_then = (f64::from(free) + self.freed(usable) * blocked.as_secs_f64()).min(f64::from(usable));
        let left = (f64::from(ahead) + 1.0 - by_then).max(0.0);
        let rate = self.rate(limit, withheld, class);
        let wait = left / rate;
        let freed = self.freed(limit);
        // The rate is short of all that become free by those that the classes above take.
        let variance = (freed * self.spread * self.spread + (freed - rate)) * wait;
        let least = (wait - BENEFIT * variance.sqrt() / rate).max(0.0);
        Wait { expected: blocked.saturating_add(seconds(wait)), least: blocked.saturating_add(seconds(least)) }
    }

    /// The wait for one of so many slots that others leave to this call and to those of its class.
    pub(super) fn wait_among_equals(&self, slots: u32, ahead: u32, blocked: Duration) -> Wait {
        let all = Slots { limit: slots, withheld: 0, free: 0 };
        self.wait(all, Priority::Interactive, ahead, blocked)
    }

    /// Slots that become free per second, of so many that are taken.
    fn freed(&self, slots: u32) -> f64 {
        f64::from(slots) / self.mean_held.max(f64::EPSILON)
    }

    /// Slots for this class per second, after those for the classes above it.
    fn rate(&self, limit: u32, withheld: u32, class: Priority) -> f64 {
        let [interactive, default, _] = self.arrivals;
        let (above, above_in_shared) = match class {
            Priority::Interactive => (0.0, 0.0),
            Priority::Default => (interactive, 0.0),
            Priority::Bulk => (interactive + default, default),
        };
        let all = self.freed(limit) - above;
        // Slots that are withheld from this class are not lost: interactive calls use them instead of others.
        let shared = self.freed(limit - withheld) - above_in_shared;
        all.min(shared).max(self.freed(limit) * LEAST_PART)
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(millis: u64) -> Time {
        Time::from_epoch(Duration::from_millis(millis))
    }

    fn ended(at: Time, held: Duration, class: Priority) -> Ended {
        Ended { at, held, class, is_success: true, present: [0; 3] }
    }

    /// Calls of two seconds, one after another ended each quarter of a second.
    fn past(calls: u64) -> Past {
        let mut past = Past::default();
        (0..calls).for_each(|n| past.note(ended(at(n * 250), 2 * SECOND, Priority::Default)));
        past
    }

    fn taken(limit: u32) -> Slots {
        Slots { limit, withheld: 0, free: 0 }
    }

    #[test]
    fn nothing_is_known_before_thirty_calls_ended_well() {
        let mut few = past(29);
        few.note(Ended { is_success: false, ..ended(at(8_000), SECOND, Priority::Default) });
        assert!(few.known([0; 3], at(9_000)).is_none());
        assert!(past(30).known([0; 3], at(9_000)).is_some());
    }

    #[test]
    fn what_is_older_than_five_minutes_is_forgotten() {
        let mut past = past(100);
        assert!(past.known([0; 3], at(300_000)).is_some());
        assert!(past.known([0; 3], at(325_000)).is_none());
    }

    #[test]
    fn the_wait_is_those_ahead_over_the_slots_that_become_free() {
        let known = past(100).known([0; 3], at(25_000)).unwrap();
        assert_eq!(known.service, 2 * SECOND);
        // Eight slots of two seconds are four per second.
        assert_eq!(known.wait(taken(8), Priority::Interactive, 39, Duration::ZERO).expected, 10 * SECOND);
        assert_eq!(known.wait(taken(4), Priority::Interactive, 39, Duration::ZERO).expected, 20 * SECOND);
    }

    #[test]
    fn a_call_has_half_of_the_doubt_about_its_wait_and_none_about_a_pause() {
        let mut past = Past::default();
        for n in 0..100 {
            past.note(ended(at(n * 250), if n % 2 == 0 { SECOND } else { 3 * SECOND }, Priority::Default));
        }
        let known = past.known([0; 3], at(25_000)).unwrap();
        // Forty slots in ten seconds, give or take 3.2 by a relative spread of a half: 0.8 seconds.
        let Wait { expected, least } = known.wait(taken(8), Priority::Interactive, 39, Duration::ZERO);
        assert_eq!(expected, 10 * SECOND);
        assert!((0.39..0.40).contains(&(expected - least).as_secs_f64()), "{least:?}");
        assert_eq!(known.wait(taken(8), Priority::Interactive, 0, SECOND * 9), Wait::of(SECOND * 9));
    }

    #[test]
    fn slots_that_become_free_in_a_pause_are_there_when_it_ends() {
        let known = past(100).known([0; 3], at(25_000)).unwrap();
        let wait = |ahead, blocked| known.wait(taken(8), Priority::Interactive, ahead, blocked * SECOND).expected;
        assert_eq!(wait(0, 10), 10 * SECOND);
        assert_eq!(wait(7, 10), 10 * SECOND);
        assert_eq!(wait(39, 10), 18 * SECOND);
        assert_eq!(wait(39, 1), 10 * SECOND);
    }

    #[test]
    fn classes_above_take_theirs_first_and_the_reserve_is_not_counted_twice() {
        let mut past = Past::default();
        // Two in three are interactive: of four per second, eight thirds.
        for n in 0..240 {
            let class = if n % 3 == 0 { Priority::Bulk } else { Priority::Interactive };
            past.note(ended(at(n * 250), 2 * SECOND, class));
        }
        let known = past.known([0; 3], at(60_000)).unwrap();
        let wait = |slots| known.wait(slots, Priority::Bulk, 39, Duration::ZERO).expected.as_secs_f64();
        assert!((29.0..31.0).contains(&wait(taken(8))), "{}", wait(taken(8)));
        assert_eq!(wait(Slots { withheld: 2, ..taken(8) }), wait(taken(8)));
        assert!((79.0..81.0).contains(&wait(Slots { withheld: 7, ..taken(8) })));
    }

    #[test]
    fn a_backlog_that_is_worked_off_is_no_arrival() {
        let mut past = Past::default();
        for n in 0..100 {
            let present = [200 - u32::try_from(n).unwrap(), 0, 0];
            past.note(Ended { present, ..ended(at(n * 250), 2 * SECOND, Priority::Interactive) });
        }
        let known = past.known([101, 0, 0], at(25_000)).unwrap();
        assert_eq!(known.arrivals, [0.0; 3]);
    }

    #[test]
    fn means_of_uses_follow_the_last_ones() {
        let mut past = past(30);
        (0..10).for_each(|_| past.note_used(Tokens { input: 100, output: 10 }));
        assert_eq!(past.known([0; 3], at(9_000)).unwrap().used, Tokens { input: 100, output: 10 });
        (0..1_000).for_each(|_| past.note_used(Tokens { input: 900, output: 90 }));
        assert!(past.known([0; 3], at(9_000)).unwrap().used.input >= 890);
    }
}
