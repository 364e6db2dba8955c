//! How many calls may be in flight at once, and when: the same for a lane and for the pool around it.
//!
//! ```text
//! policy ──▶ limit, reserve ─┐
//! answers ──▶ gate ──────────┼──▶ open_to(now): the classes that may take a slot
//! calls ──▶ steering ────────┘
//! ```

use std::time::Duration;

use super::capacity::{Capacity, ClassSet};
use super::change::{Cause, ChangeKind};
use super::forecast::Slots;
use super::outcome::{OutcomeKind, Verdict};
use super::pause::{Gate, PauseBounds};
use super::policy::SlotPolicy;
use super::priority::Priority;
use super::steering::{Ending, LimitBounds, Orders, Sending, Steering, Track};
use super::step::Changes;
use super::time::Time;

/// Longest pause that a controller may ask for: the default bound on pauses that an upstream asks for.
const MAX_HOLD: Duration = Duration::from_secs(600);

/// A pause that grows by less than this is not told of again.
const NEWS: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Valve {
    capacity: Capacity,
    pub(super) gate: Gate,
    policy: SlotPolicy,
    steering: Option<Steering>,
    /// Of the controller in place: tells its calls from those of the one before.
    generation: u32,
    /// By the controller.
    held_until: Time,
    is_clamping: bool,
    last_change: Option<LimitChange>,
}

/// The last time that a limit changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitChange {
    pub(crate) at: Time,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) cause: Cause,
}

/// The figures of a valve at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValveView {
    /// 0: unlimited.
    pub(crate) limit: u32,
    pub(crate) reserve: u32,
    pub(crate) in_use: u32,
    /// Between which the limit moves; `None`: it does not.
    pub(crate) bounds: Option<LimitBounds>,
    pub(crate) paused_for: Option<Duration>,
    pub(crate) last_change: Option<LimitChange>,
}

impl Valve {
    pub(super) fn new(policy: SlotPolicy, steering: Option<Steering>) -> Self {
        let mut valve = Self {
            capacity: Capacity::new(policy.limit, policy.reserve),
            gate: Gate::default(),
            policy,
            steering: None,
            generation: 0,
            held_until: Time::ZERO,
            is_clamping: false,
            last_change: None,
        };
        valve.install(steering);
        valve
    }

    fn install(&mut self, steering: Option<Steering>) {
        self.generation += 1;
        self.held_until = Time::ZERO;
        self.is_clamping = false;
        self.steering = steering;
        self.resize(self.wanted());
    }

    /// Another policy, the same controller.
    pub(super) fn set_policy(&mut self, policy: SlotPolicy, now: Time, changes: &mut Changes<'_>) {
        let from = self.limit();
        self.policy = policy;
        self.resize(self.wanted());
        self.note_change(from, Cause::Config, now, changes);
    }

    /// Another controller, or none, under another policy. Calls in flight are no business of the new one.
    pub(super) fn steer(
        &mut self,
        steering: Option<Steering>,
        policy: SlotPolicy,
        now: Time,
        changes: &mut Changes<'_>,
    ) {
        let from = self.limit();
        self.policy = policy;
        self.install(steering);
        self.note_change(from, Cause::Config, now, changes);
    }

    pub(super) fn is_steered(&self) -> bool {
        self.steering.is_some()
    }

    /// The classes that may take a slot now.
    #[inline]
    pub(super) fn open_to(&self, now: Time) -> ClassSet {
        if now < self.held_until || !self.gate.is_open(now) {
            return ClassSet::NONE;
        }
        match self.capacity.limit() {
            None => ClassSet::ALL,
            Some(limit) => self.capacity.open_to(self.gate.lets_pass(limit, now)),
        }
    }

    /// When the pause is over, if there is one.
    #[inline]
    pub(super) fn opens_at(&self, now: Time) -> Option<Time> {
        let opens_at = self.gate.opens_at(now).unwrap_or(Time::ZERO).max(self.held_until);
        (opens_at > now).then_some(opens_at)
    }

    /// When more may pass without anything else happening.
    #[inline]
    pub(super) fn next_timeout(&self, now: Time) -> Time {
        if self.gate.is_at_rest(now) && now >= self.held_until { Time::NEVER } else { self.next_opening(now) }
    }

    #[cold]
    fn next_opening(&self, now: Time) -> Time {
        // At the end of the longer of the two pauses one may pass, wherever the gate's own steps lie.
        self.opens_at(now).or_else(|| self.gate.next_step(self.capacity.limit(), now)).unwrap_or(Time::NEVER)
    }

    #[inline]
    pub(super) fn take(&mut self, class: Priority) {
        self.capacity.take(class);
    }

    #[inline]
    pub(super) fn give_back(&mut self, class: Priority) {
        self.capacity.give_back(class);
    }

    /// `None`: unlimited.
    #[inline]
    pub(super) fn is_limited(&self) -> bool {
        self.capacity.limit().is_some()
    }

    /// 0: unlimited.
    #[inline]
    pub(super) fn limit(&self) -> u32 {
        self.capacity.limit().unwrap_or(0)
    }

    #[inline]
    pub(super) fn in_use(&self) -> u32 {
        self.capacity.in_use()
    }

    /// What a class may take of them; `None`: unlimited.
    pub(super) fn slots_for(&self, class: Priority) -> Option<Slots> {
        let limit = self.capacity.limit()?;
        let free = limit.saturating_sub(self.in_use());
        if class == Priority::Interactive {
            return Some(Slots { limit, withheld: 0, free });
        }
        let [_, default, bulk] = self.in_use_by_class();
        let withheld = self.capacity.reserve();
        Some(Slots { limit, withheld, free: free.min((limit - withheld).saturating_sub(default + bulk)) })
    }

    #[inline]
    pub(super) fn in_use_by_class(&self) -> [u32; 3] {
        self.capacity.in_use_by_class()
    }

    /// Nothing in flight and nothing to remember.
    pub(super) fn is_idle(&self, now: Time) -> bool {
        let remembers = |steering: &Steering| {
            let initial = self.within_policy(steering.bounds()).clamp(steering.initial());
            self.limit() < initial && steering.is_remembered(now)
        };
        self.in_use() == 0 && self.opens_at(now).is_none() && !self.steering.as_ref().is_some_and(remembers)
    }

    /// A call is sent. `was_held_back`: it waited, or others do.
    pub(super) fn on_sent(&mut self, sending: Sending, changes: &mut Changes<'_>) -> Track {
        let is_full = self.capacity.in_use() + self.capacity.reserve() >= self.limit();
        let Some(steering) = &mut self.steering else { return Track::default() };
        let sending = Sending { is_saturated: sending.is_saturated && is_full, ..sending };
        let (track, orders) = steering.on_sent(sending, self.generation);
        self.obey(orders, Cause::Sent, sending.at, changes);
        track
    }

    /// The first byte of an answer came.
    pub(super) fn on_first_byte(&mut self, sending: Sending, track: Track, now: Time, changes: &mut Changes<'_>) {
        if let Some(steering) = self.told_of(track) {
            let orders = steering.on_first_byte(now, track, &track.sent(sending.at, sending.facts));
            self.obey(orders, Cause::FirstByte, now, changes);
        }
    }

    /// A call is over; its slot is still taken.
    pub(super) fn on_end(
        &mut self,
        ending: &Ending,
        sending: Sending,
        track: Track,
        now: Time,
        changes: &mut Changes<'_>,
    ) {
        if let Some(steering) = self.told_of(track) {
            let orders = steering.on_end(ending, track, track.sent(sending.at, sending.facts), now);
            self.obey(orders, Cause::Answer(ending.verdict.outcome()), now, changes);
        }
    }

    /// Takes in what an answer says about waiting. `luck` is a random number from 0 to 1.
    pub(super) fn heed(
        &mut self,
        verdict: Verdict,
        granted_at: Time,
        bounds: PauseBounds,
        luck: f64,
        now: Time,
        changes: &mut Changes<'_>,
    ) {
        if let Some(pause) = verdict.pause() {
            let before = self.opens_at(now);
            self.gate.close(pause, granted_at, now, bounds, luck);
            self.note_pause(before, Cause::Answer(verdict.outcome()), now, changes);
        } else if verdict.outcome().kind() == OutcomeKind::Success {
            self.gate.forget_refusals(granted_at);
        }
    }

    pub(super) fn view(&self, now: Time) -> ValveView {
        ValveView {
            limit: self.limit(),
            reserve: self.capacity.reserve(),
            in_use: self.in_use(),
            bounds: self.steering.as_ref().map(|steering| self.within_policy(steering.bounds())),
            paused_for: self.opens_at(now).map(|at| at.since(now)),
            last_change: self.last_change,
        }
    }

    fn told_of(&mut self, track: Track) -> Option<&mut Steering> {
        self.steering.as_mut().filter(|_| track.generation == self.generation)
    }

    #[inline]
    fn obey(&mut self, orders: Option<Orders>, cause: Cause, now: Time, changes: &mut Changes<'_>) {
        let Some(Orders { limit, paused_until }) = orders else { return self.keep_without_orders(changes, cause) };
        if limit == self.limit() {
            self.is_clamping = false;
        } else {
            self.change_limit(limit, cause, now, changes);
        }
        if paused_until != self.held_until {
            let before = self.opens_at(now);
            self.held_until = paused_until.min(now + MAX_HOLD);
            self.note_pause(before, cause, now, changes);
        }
    }

    /// The controller has panicked: the limit stays, the pause it asked for does not.
    #[cold]
    fn keep_without_orders(&mut self, changes: &mut Changes<'_>, cause: Cause) {
        self.held_until = Time::ZERO;
        if self.steering.as_mut().is_some_and(Steering::is_panic_news) {
            changes.note(ChangeKind::ControllerPanicked, cause);
        }
    }

    fn change_limit(&mut self, asked: u32, cause: Cause, now: Time, changes: &mut Changes<'_>) {
        let from = self.limit();
        self.resize(asked);
        self.note_clamping(asked, cause, changes);
        self.note_change(from, cause, now, changes);
    }

    /// What the controller asked for last.
    fn wanted(&self) -> u32 {
        self.steering.as_ref().map_or(0, Steering::wanted)
    }

    /// Puts the limit in force that is nearest to `asked`. Without a controller, the policy alone says.
    fn resize(&mut self, asked: u32) {
        let limit = match &self.steering {
            Some(steering) => self.within_policy(steering.bounds()).clamp(asked),
            None => self.policy.limit,
        };
        self.capacity.resize(limit, self.policy.reserve);
    }

    fn within_policy(&self, bounds: LimitBounds) -> LimitBounds {
        let ceiling = if self.policy.limit == 0 { u32::MAX } else { self.policy.limit };
        LimitBounds { min: bounds.min.min(ceiling), max: bounds.max.min(ceiling) }
    }

    /// A limit above what the configuration allows is no nonsense: the controller does not know that bound.
    fn note_clamping(&mut self, asked: u32, cause: Cause, changes: &mut Changes<'_>) {
        let is_possible = self.steering.as_ref().is_none_or(|it| (1..=it.bounds().max).contains(&asked));
        if !is_possible && !self.is_clamping {
            changes.note(ChangeKind::Clamped { asked, got: self.limit() }, cause);
        }
        self.is_clamping = !is_possible;
    }

    fn note_change(&mut self, from: u32, cause: Cause, now: Time, changes: &mut Changes<'_>) {
        let to = self.limit();
        if from != to {
            self.last_change = Some(LimitChange { at: now, from, to, cause });
            changes.note(ChangeKind::Limit { from, to }, cause);
        }
    }

    fn note_pause(&mut self, before: Option<Time>, cause: Cause, now: Time, changes: &mut Changes<'_>) {
        if let Some(opens_at) = self.opens_at(now) {
            if before.is_none_or(|before| opens_at >= before + NEWS) {
                changes.note(ChangeKind::Pause { left: opens_at.since(now) }, cause);
            }
        }
    }
}
