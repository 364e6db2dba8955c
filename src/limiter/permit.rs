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
use crate::engine::steering::Ending;
use crate::engine::step::Grant;
use crate::engine::time::Time;

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
    answer: AnswerSize,
}

/// How much of an answer came.
#[derive(Clone, Copy, Debug, Default)]
struct AnswerSize {
    /// Pieces of its body.
    chunks: u32,
    bytes: u32,
}

impl Permit {
    pub(crate) fn off() -> Self {
        Self { held: None }
    }

    #[inline]
    pub(super) fn new(lane: Arc<LaneInner>, grant: Grant, position: Option<u32>, life: Option<&Life>) -> Self {
        let attempt = life.map_or(1, Life::count_attempt);
        let permit = Self {
            held: Some(Held {
                lane,
                grant,
                position,
                attempt,
                first_byte_at: Time::ZERO,
                answer: AnswerSize::default(),
            }),
        };
        permit.report(life);
        permit
    }

    /// The permit exists already: if a recorder or listener panics, the slot is given back.
    fn report(&self, life: Option<&Life>) {
        if let Some(held) = &self.held {
            held.lane.report_granted(held.grant.class, held.grant.waited);
        }
        let Some(life) = life.filter(|life| life.is_heard()) else { return };
        if let Some(admitted) = self.admitted() {
            life.tell(CallEvent::Admitted(&admitted));
        }
    }

    /// Ends the call.
    pub fn settle(mut self, verdict: impl Into<Verdict>) {
        self.end(verdict.into());
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

    /// Notes the first byte of the answer, once: what comes between it and the grant is the upstream's waiting time. For
    /// answers that are errors, leave it out. Calls over HTTP do this by themselves.
    ///
    /// ```
    /// use tower_inflight::{LaneKey, Limiter, Outcome, Priority};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder().adaptive().build()?;
    /// let mut permit = limiter.acquire(&LaneKey::new("local", "gemma"), Priority::Default).await?;
    /// // ... the model begins to answer:
    /// permit.note_first_byte();
    /// // ... and is done:
    /// permit.settle(Outcome::Success);
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn note_first_byte(&mut self) {
        if let Some(held) = &mut self.held {
            if held.first_byte_at == Time::ZERO {
                held.note_first_byte(clock::now());
            }
        }
    }

    /// Counts a piece of the answer's body.
    #[inline]
    pub(crate) fn note_chunk(&mut self, bytes: usize) {
        if let Some(held) = &mut self.held {
            let AnswerSize { chunks, bytes: sum } = &mut held.answer;
            *chunks = chunks.saturating_add(1);
            *sum = sum.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
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

    pub(crate) fn end(&mut self, verdict: Verdict) {
        if let Some(held) = self.held.take() {
            held.end(verdict, clock::now());
        }
    }

    /// Ends the call with what was heard just now, the first byte too if there was none before: one look at the clock.
    pub(crate) fn end_heard(&mut self, verdict: Verdict) {
        if let Some(mut held) = self.held.take() {
            let now = clock::now();
            if held.first_byte_at == Time::ZERO {
                held.note_first_byte(now);
            }
            held.end(verdict, now);
        }
    }
}

impl Held {
    #[inline]
    fn note_first_byte(&mut self, now: Time) {
        self.first_byte_at = now;
        if self.grant.is_tracked() {
            let Self { lane, grant, .. } = self;
            lane.pool.step(lane, |state, effects| state.engine.first_byte(lane.id, grant, now, effects));
        }
    }

    fn end(self, verdict: Verdict, now: Time) {
        let Self { lane, grant, first_byte_at, answer: AnswerSize { chunks, bytes }, .. } = self;
        let ending = Ending { verdict, first_byte_at, further_chunks: chunks.saturating_sub(1), answer_bytes: bytes };
        lane.pool.step(&lane, |state, effects| state.engine.settle(lane.id, grant, ending, now, effects));
        let first_byte = (first_byte_at != Time::ZERO).then(|| first_byte_at.since(grant.granted_at));
        lane.report_settled(verdict.outcome(), now.since(grant.granted_at), first_byte);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.end(Outcome::Cancelled.into());
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
