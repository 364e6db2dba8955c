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
use crate::engine::quota::{Remaining, Reported};
use crate::engine::steering::Ending;
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
    /// Taken when the slot is given back. `None` from the start: the limiter is off, there is nothing to give back.
    lane: Option<Arc<LaneInner>>,
    grant: Grant,
    position: Option<u32>,
    attempt: u32,
    /// `ZERO`: not yet.
    first_byte_at: Time,
    /// How much of the answer came: pieces of its body, and bytes.
    chunks: u32,
    bytes: u32,
    /// What the provider says remains.
    remaining: Option<Box<Remaining>>,
    /// If anybody listens.
    life: Option<Arc<Life>>,
}

impl Permit {
    pub(crate) fn off() -> Self {
        let nothing = Grant::plain(Priority::default(), Time::ZERO, Duration::ZERO);
        Self {
            lane: None,
            grant: nothing,
            position: None,
            attempt: 1,
            first_byte_at: Time::ZERO,
            chunks: 0,
            bytes: 0,
            remaining: None,
            life: None,
        }
    }

    #[inline(always)]
    pub(super) fn new(lane: Arc<LaneInner>, grant: Grant, position: Option<u32>, life: Option<&Arc<Life>>) -> Self {
        let attempt = life.map_or(1, |life| life.count_attempt());
        let life = life.filter(|life| life.is_heard()).cloned();
        let Grant { class, waited, .. } = grant;
        let permit = Self {
            lane: Some(lane),
            grant,
            position,
            attempt,
            first_byte_at: Time::ZERO,
            chunks: 0,
            bytes: 0,
            remaining: None,
            life,
        };
        // The permit exists already: if a recorder or listener panics, the slot is given back.
        if let Some(lane) = &permit.lane {
            lane.report_granted(class, waited);
        }
        if let Some(life) = &permit.life {
            permit.tell(life);
        }
        permit
    }

    #[cold]
    fn tell(&self, life: &Life) {
        if let Some(admitted) = self.admitted() {
            life.tell(CallEvent::Admitted(&admitted));
        }
    }

    /// Ends the call.
    #[inline]
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
        self.lane.as_ref().map(|lane| Admitted {
            lane: lane.key.clone(),
            priority: self.grant.class,
            waited: self.grant.waited,
            position: self.position,
            attempt: self.attempt,
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
        if self.first_byte_at == Time::ZERO {
            if let Some(lane) = &self.lane {
                self.first_byte_at = clock::now();
                self.tell_first_byte(lane);
            }
        }
    }

    /// Counts a piece of the answer's body.
    #[inline]
    pub(crate) fn note_chunk(&mut self, bytes: usize) {
        self.chunks = self.chunks.saturating_add(1);
        self.bytes = self.bytes.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// Of the answer's body.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.into()
    }

    /// So many tokens of the answer came, and reached nobody: the caller is gone.
    pub(crate) fn note_after_hangup(&self, tokens: u64) {
        if let Some(lane) = self.lane.as_ref().filter(|_| tokens > 0) {
            lane.report_after_hangup(tokens);
        }
    }

    /// Some budget wants to hear what the provider says remains.
    #[inline]
    pub(crate) fn follows_headers(&self) -> bool {
        self.lane.as_ref().is_some_and(|lane| lane.follows_headers())
    }

    /// The provider says now how much remains, and of how much, by dimension. Budgets hear of it when the call ends, after they
    /// got back what it did not use.
    pub(crate) fn note_remaining(&mut self, left: [Option<u64>; 4], of: [Option<u64>; 4]) {
        self.remaining = Some(Box::new(Remaining { said_at: clock::now(), left, of }));
    }

    /// False when the limiter is off.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.lane.is_some()
    }

    pub(crate) fn guards(&self) -> Guards {
        self.lane.as_ref().map_or_else(Guards::default, |lane| lane.guards())
    }

    /// For errors about this call.
    pub(crate) fn lane_key(&self) -> LaneKey {
        self.lane.as_ref().map_or_else(|| LaneKey::without_model(""), |lane| LaneKey::clone(&lane.key))
    }

    /// `reading` is `None` where nobody read the answer.
    #[inline]
    pub(crate) fn end(&mut self, verdict: Verdict, reading: Option<Reading>) {
        if let Some(lane) = self.lane.take() {
            self.give_back(&lane, verdict, reading, clock::now());
        }
    }

    /// Ends the call with what was heard just now, the first byte too if there was none before: one look at the clock.
    pub(crate) fn end_heard(&mut self, verdict: Verdict, reading: Option<Reading>) {
        if let Some(lane) = self.lane.take() {
            let now = clock::now();
            if self.first_byte_at == Time::ZERO {
                self.first_byte_at = now;
                self.tell_first_byte(&lane);
            }
            self.give_back(&lane, verdict, reading, now);
        }
    }

    #[inline]
    fn tell_first_byte(&self, lane: &LaneInner) {
        if self.grant.is_tracked() {
            let (grant, at) = (&self.grant, self.first_byte_at);
            lane.pool.step(lane, |state, effects| state.engine.first_byte(lane.id, grant, at, effects));
        }
    }

    /// Of the answer. A frame of the transport may carry many, and one may take many frames.
    fn pieces(&self, reading: Option<&Reading>) -> u32 {
        match reading.map_or(0, |reading| reading.pieces) {
            0 => self.chunks,
            pieces => u32::try_from(pieces).unwrap_or(u32::MAX),
        }
    }

    fn give_back(&mut self, lane: &LaneInner, verdict: Verdict, reading: Option<Reading>, now: Time) {
        let ending = Ending {
            verdict,
            first_byte_at: self.first_byte_at,
            further_chunks: self.pieces(reading.as_ref()).saturating_sub(1),
            answer_bytes: self.bytes,
            reported: reading.map_or_else(Reported::default, reported),
            remaining: self.remaining.take(),
        };
        let grant = &self.grant;
        let spent = lane.pool.step(lane, |state, effects| state.engine.settle(lane.id, grant, ending, now, effects));
        let first_byte = (self.first_byte_at != Time::ZERO).then(|| self.first_byte_at.since(grant.granted_at));
        let usage = reading.map(|reading| reading.usage);
        if let Some(usage) = usage {
            lane.report_usage(usage);
        }
        lane.report_spent(spent);
        lane.report_settled(verdict.outcome(), now.since(grant.granted_at), first_byte);
        if let Some(life) = &self.life {
            let ended = CallEvent::Ended { outcome: verdict.outcome(), usage: usage.as_ref() };
            contained(|| life.tell(ended));
        }
    }
}

fn reported(reading: Reading) -> Reported {
    let tokens = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let Reading { usage, pieces, output_seen, .. } = reading;
    Reported {
        input: usage.input_tokens.map(tokens),
        output: usage.output_tokens.map(tokens),
        // Where not one piece was recognised, what passed is not known.
        output_seen: (pieces > 0).then(|| tokens(output_seen)),
    }
}

impl Drop for Permit {
    #[inline]
    fn drop(&mut self) {
        self.end(Outcome::Cancelled.into(), None);
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("lane", &self.lane.as_ref().map(|lane| &lane.key)).finish_non_exhaustive()
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
