//! The proof of holding a slot.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::call::{CallEvent, Life};
use super::clock;
use super::key::LaneKey;
use super::lane::LaneInner;
use crate::config::Guards;
use crate::engine::outcome::{Outcome, Verdict};
use crate::engine::priority::Priority;
use crate::engine::step::Grant;
use crate::engine::time::Time;
use crate::meters::contained;
use crate::usage::{Reading, Usage};

/// A slot of a lane, held until it is settled or dropped.
///
/// [`settle`](Self::settle) says how the call ended; dropping the permit says it was cancelled. Both give the slot to the
/// next waiter at once, need no runtime, and neither spawns, blocks nor panics.
#[must_use = "the slot is free again as soon as the permit is dropped"]
pub struct Permit {
    /// `None`: the limiter is off, there is nothing to give back.
    held: Option<Held>,
}

struct Held {
    lane: Arc<LaneInner>,
    grant: Grant,
    position: Option<u32>,
    attempt: u32,
    /// `ZERO`: not yet.
    first_byte_at: Time,
    /// If anybody listens.
    life: Option<Arc<Life>>,
}

impl Permit {
    pub(crate) fn off() -> Self {
        Self { held: None }
    }

    #[inline]
    pub(super) fn new(lane: Arc<LaneInner>, grant: Grant, position: Option<u32>, life: Option<&Arc<Life>>) -> Self {
        let attempt = life.map_or(1, |life| life.count_attempt());
        let life = life.filter(|life| life.is_heard()).cloned();
        let permit = Self { held: Some(Held { lane, grant, position, attempt, first_byte_at: Time::ZERO, life }) };
        permit.report();
        permit
    }

    /// The permit exists already: if a recorder or listener panics, the slot is given back.
    fn report(&self) {
        let Some(held) = &self.held else { return };
        held.lane.report_granted(held.grant.class, held.grant.waited);
        if let (Some(life), Some(admitted)) = (&held.life, self.admitted()) {
            life.tell(CallEvent::Admitted(&admitted));
        }
    }

    /// Ends the call.
    pub fn settle(mut self, verdict: impl Into<Verdict>) {
        self.end(verdict.into(), None);
    }

    /// Ends the call, and says which tokens its answer reported.
    ///
    /// ```
    /// use tower_inflight::{LaneKey, Limiter, Outcome, Priority, Usage};
    ///
    /// let limiter = Limiter::builder().max_inflight(2).build()?;
    /// let permit = limiter.try_acquire(&LaneKey::new("local", "gemma"), Priority::Default)?;
    /// permit.settle_with_usage(Outcome::Success, Usage::new(3_000, 400));
    /// assert_eq!(limiter.snapshot().lanes[0].tokens_input, 3_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn settle_with_usage(mut self, verdict: impl Into<Verdict>, usage: Usage) {
        self.end(verdict.into(), Some(Reading { usage, ..Reading::default() }));
    }

    /// What the limiter did for this call; `None` when it is off.
    #[must_use]
    pub fn admitted(&self) -> Option<Admitted> {
        self.held.as_ref().map(|held| Admitted {
            lane: held.lane.key.clone(),
            priority: held.grant.class,
            waited: held.grant.waited,
            position: held.position,
            attempt: held.attempt,
        })
    }

    /// Notes the first byte of the answer, once.
    #[inline]
    pub(crate) fn note_first_byte(&mut self) {
        if let Some(held) = &mut self.held {
            if held.first_byte_at == Time::ZERO {
                held.first_byte_at = clock::now();
            }
        }
    }

    /// False when the limiter is off.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    pub(crate) fn guards(&self) -> Guards {
        self.held.as_ref().map_or_else(Guards::default, |held| held.lane.guards())
    }

    /// For errors about this call.
    pub(crate) fn lane_key(&self) -> LaneKey {
        self.held.as_ref().map_or_else(|| LaneKey::without_model(""), |held| LaneKey::clone(&held.lane.key))
    }

    /// `reading` is `None` where nobody read the answer.
    pub(crate) fn end(&mut self, verdict: Verdict, reading: Option<Reading>) {
        if let Some(held) = self.held.take() {
            held.end(verdict, reading, clock::now());
        }
    }

    /// Ends the call with what was heard just now, the first byte too if there was none before: one look at the clock.
    pub(crate) fn end_heard(&mut self, verdict: Verdict, reading: Option<Reading>) {
        if let Some(mut held) = self.held.take() {
            let now = clock::now();
            if held.first_byte_at == Time::ZERO {
                held.first_byte_at = now;
            }
            held.end(verdict, reading, now);
        }
    }
}

impl Held {
    fn end(self, verdict: Verdict, reading: Option<Reading>, now: Time) {
        let Self { lane, grant, first_byte_at, life, .. } = self;
        lane.pool.step(&lane, |state, effects| state.engine.settle(lane.id, grant, verdict, now, effects));
        let first_byte = (first_byte_at != Time::ZERO).then(|| first_byte_at.since(grant.granted_at));
        let usage = reading.map(|reading| reading.usage);
        if let Some(usage) = usage {
            lane.report_usage(usage);
        }
        lane.report_settled(verdict.outcome(), now.since(grant.granted_at), first_byte);
        if let Some(life) = life {
            let ended = CallEvent::Ended { outcome: verdict.outcome(), usage: usage.as_ref() };
            contained(|| life.tell(ended));
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.end(Outcome::Cancelled.into(), None);
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("lane", &self.held.as_ref().map(|held| &held.lane.key)).finish_non_exhaustive()
    }
}

/// How a call came to be sent. Responses carry it in their extensions.
///
/// ```
/// fn log(response: &http::Response<()>) {
///     if let Some(admitted) = response.extensions().get::<tower_inflight::Admitted>() {
///         println!("{} after {:?}, attempt {}", admitted.lane(), admitted.waited(), admitted.attempt());
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    lane: Arc<LaneKey>,
    priority: Priority,
    waited: Duration,
    position: Option<u32>,
    attempt: u32,
}

impl Admitted {
    /// The lane it went through.
    #[must_use]
    pub fn lane(&self) -> &LaneKey {
        &self.lane
    }

    /// The class it was granted in.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// How long this attempt waited for its slot.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Its place in line when it arrived, counted from 1; `None` if it did not have to wait.
    #[must_use]
    pub fn position(&self) -> Option<u32> {
        self.position
    }

    /// Which attempt of its [`Call`](crate::Call) this was, counted from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}
