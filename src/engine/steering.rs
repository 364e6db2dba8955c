//! A controller at work: told of the calls that are its own, and obeyed within bounds.
//!
//! It may be somebody else's code. What it says is clamped, and a panic in it ends here: it runs in the middle of a step.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::controller::{Controller, Mark, Sample, Sent};
use super::outcome::{Pause, Verdict};
use super::quota::{Remaining, Reported};
use super::retry_budget::Attempt;
use super::time::Time;

#[derive(Debug)]
pub(crate) struct Steering {
    controller: Box<dyn Controller>,
    bounds: LimitBounds,
    initial: u32,
    /// What it asked for last.
    wanted: u32,
    /// Calls that were sent and are not over, of those that it was told of.
    in_flight: u32,
    sent_at: Time,
    has_panicked: bool,
    is_panic_told: bool,
}

/// A limit stays between these two, whatever its controller says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitBounds {
    /// At least 1.
    pub(crate) min: u32,
    pub(crate) max: u32,
}

/// What the shell knows of a request when it sends it: how long it is, whether it asks for its answer in pieces, and whether
/// it is a retry.
///
/// In four bytes, since each waiter's future keeps them: the length and one in the lower 29 bits, 0 where nobody knows, and
/// the other answers above them.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RequestFacts(u32);

/// How a call ended, and what came of it.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    pub(crate) verdict: Verdict,
    /// `ZERO`: none came.
    pub(crate) first_byte_at: Time,
    /// Pieces of its body after the first.
    pub(crate) further_chunks: u32,
    pub(crate) answer_bytes: u32,
    pub(crate) reported: Reported,
    /// Few answers say so to somebody who listens: not worth more room in every call.
    pub(crate) remaining: Option<Box<Remaining>>,
}

/// What is kept with a call that a controller was told of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Track {
    /// Which of the controllers that came and went here; 0: none was told.
    pub(super) generation: u32,
    in_flight: u32,
    /// The limit was in full use.
    is_saturated: bool,
    mark: Mark,
}

/// What controllers were told of a call that was sent. The pool keeps it until the call is over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    pub(super) sending: Sending,
    pub(super) in_lane: Track,
    pub(super) in_pool: Track,
}

/// A call at the moment it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sending {
    pub(super) at: Time,
    pub(super) facts: RequestFacts,
    /// It was held back, or others are.
    pub(super) is_saturated: bool,
}

/// What a controller wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Orders {
    pub(super) limit: u32,
    /// `ZERO`: no pause.
    pub(super) paused_until: Time,
}

impl RequestFacts {
    const BYTES: u32 = (1 << 29) - 1;
    const ONE_PIECE: u32 = 1 << 29;
    const STREAM: u32 = 2 << 29;
    const SHAPES: u32 = 3 << 29;
    const RETRY: u32 = 1 << 31;

    /// Lengths of half a gigabyte and more are all the same.
    pub(crate) fn new(bytes: Option<u32>, asks_for_stream: Option<bool>) -> Self {
        let length = bytes.map_or(0, |bytes| bytes.saturating_add(1).min(Self::BYTES));
        Self(length | asks_for_stream.map_or(0, |stream| if stream { Self::STREAM } else { Self::ONE_PIECE }))
    }

    #[must_use]
    pub(crate) fn of_a_retry(self) -> Self {
        Self(self.0 | Self::RETRY)
    }

    pub(crate) fn attempt(self) -> Attempt {
        if self.0 & Self::RETRY == 0 { Attempt::First } else { Attempt::Retry }
    }

    pub(crate) fn bytes(self) -> Option<u32> {
        (self.0 & Self::BYTES).checked_sub(1)
    }

    pub(crate) fn asks_for_stream(self) -> Option<bool> {
        match self.0 & Self::SHAPES {
            Self::ONE_PIECE => Some(false),
            Self::STREAM => Some(true),
            _ => None,
        }
    }
}

impl fmt::Debug for RequestFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestFacts")
            .field("bytes", &self.bytes())
            .field("asks_for_stream", &self.asks_for_stream())
            .field("attempt", &self.attempt())
            .finish()
    }
}

impl From<Verdict> for Ending {
    fn from(verdict: Verdict) -> Self {
        let reported = Reported::default();
        Self { verdict, first_byte_at: Time::ZERO, further_chunks: 0, answer_bytes: 0, reported, remaining: None }
    }
}

impl LimitBounds {
    pub(super) fn clamp(self, limit: u32) -> u32 {
        limit.clamp(self.min, self.max.max(self.min))
    }
}

/// An idle lane whose limit was lowered is remembered for this long after its last call: an upstream that was too busy an
/// hour ago may be anything now.
const REMEMBERED: Duration = Duration::from_secs(60 * 60);

impl Steering {
    pub(crate) fn new(controller: Box<dyn Controller>, bounds: LimitBounds) -> Self {
        let mut steering = Self {
            controller,
            bounds,
            initial: bounds.min,
            wanted: bounds.min,
            in_flight: 0,
            sent_at: Time::ZERO,
            has_panicked: false,
            is_panic_told: false,
        };
        steering.initial = steering.ask(|_| ()).map_or(bounds.min, |((), orders)| bounds.clamp(orders.limit));
        steering
    }

    pub(super) fn bounds(&self) -> LimitBounds {
        self.bounds
    }

    pub(super) fn initial(&self) -> u32 {
        self.initial
    }

    pub(super) fn wanted(&self) -> u32 {
        self.wanted
    }

    /// What it has learnt is not too old to be of use.
    pub(super) fn is_remembered(&self, now: Time) -> bool {
        now.since(self.sent_at) < REMEMBERED
    }

    /// `None` from a controller that has panicked, now or before.
    pub(super) fn on_sent(&mut self, sending: Sending, generation: u32) -> (Track, Option<Orders>) {
        self.in_flight += 1;
        self.sent_at = sending.at;
        let Sending { is_saturated, .. } = sending;
        let mut track = Track { generation, in_flight: self.in_flight, is_saturated, mark: Mark::default() };
        let sent = track.sent(sending.at, sending.facts);
        let orders = self.ask(|controller| controller.on_sent(&sent)).map(|(mark, orders)| {
            track.mark = mark;
            orders
        });
        (track, orders)
    }

    pub(super) fn on_first_byte(&mut self, at: Time, track: Track, sent: &Sent) -> Option<Orders> {
        self.ask(|controller| controller.on_first_byte(at.since_epoch(), sent, track.mark)).map(|((), orders)| orders)
    }

    pub(super) fn on_end(&mut self, ending: &Ending, track: Track, sent: Sent, now: Time) -> Option<Orders> {
        let sample = Sample {
            ended_at: now.since_epoch(),
            sent,
            mark: track.mark,
            first_byte_at: (ending.first_byte_at != Time::ZERO).then(|| ending.first_byte_at.since_epoch()),
            further_chunks: ending.further_chunks,
            answer_bytes: ending.answer_bytes,
            outcome: ending.verdict.outcome(),
            retry_after: ending.verdict.pause().map(|pause| match pause {
                Pause::For(length) => length,
                Pause::Minimum => Duration::ZERO,
            }),
            in_flight: self.in_flight,
        };
        let orders = self.ask(|controller| controller.on_end(&sample)).map(|((), orders)| orders);
        self.in_flight = self.in_flight.saturating_sub(1);
        orders
    }

    /// True once, after a panic.
    pub(super) fn is_panic_news(&mut self) -> bool {
        self.has_panicked && !std::mem::replace(&mut self.is_panic_told, true)
    }

    /// Tells the controller, and hears what it wants now.
    fn ask<R>(&mut self, tell: impl FnOnce(&mut dyn Controller) -> R) -> Option<(R, Orders)> {
        if self.has_panicked {
            return None;
        }
        let controller = &mut *self.controller;
        let asked = catch_unwind(AssertUnwindSafe(|| {
            let told = tell(controller);
            let paused_until = controller.paused_until().map_or(Time::ZERO, Time::from_epoch);
            (told, Orders { limit: controller.limit(), paused_until })
        }));
        self.has_panicked = asked.is_err();
        let asked = asked.ok();
        if let Some((_, orders)) = &asked {
            self.wanted = orders.limit;
        }
        asked
    }
}

impl Track {
    pub(super) fn sent(&self, at: Time, facts: RequestFacts) -> Sent {
        Sent {
            at: at.since_epoch(),
            in_flight: self.in_flight,
            is_saturated: self.is_saturated,
            request_bytes: facts.bytes(),
            asks_for_stream: facts.asks_for_stream(),
        }
    }
}
