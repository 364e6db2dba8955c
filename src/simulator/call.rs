//! One logical call, over all its attempts.

use super::dice::Dice;
use super::scenario::{Calls, Faults, Gateway};
use crate::engine::priority::Priority;
use crate::engine::time::Time;

/// Names one attempt of a call, and nothing after its end: events for it that come late find nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallId {
    pub(super) index: u32,
    stamp: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) client: usize,
    pub(super) class: Priority,
    pub(super) work: Work,
    pub(super) arrived_at: Time,
    pub(super) sent_at: Time,
    pub(super) first_byte_at: Option<Time>,
    /// Some attempt gave a first token: its caller has seen it.
    pub(super) has_begun: bool,
    pub(super) attempts: u32,
    /// What happens to its attempts is thrown from here, so that it does not depend on the controller.
    pub(super) dice: Dice,
}

/// What a call asks of the gateway.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    pub(super) prompt_tokens: f64,
    pub(super) output_tokens: f64,
    /// Before the first token that anybody sees.
    pub(super) reasoning_s: f64,
    pub(super) is_cached: bool,
    pub(super) fate: Fate,
}

/// What befalls one attempt.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Fate {
    #[default]
    None,
    ServerError,
    /// The connection breaks after this share of the tokens.
    Reset(f64),
    /// Silence, with the connection open, after this share of the tokens.
    Stall(f64),
}

const MAX_PROMPT_TOKENS: f64 = 64_000.0;
const MIN_PROMPT_TOKENS: f64 = 10.0;
const MAX_OUTPUT_TOKENS: f64 = 8_000.0;

impl Call {
    pub(super) fn new(client: usize, mut dice: Dice, calls: &Calls, gateway: &Gateway, now: Time) -> Self {
        let output_tokens = calls.output_tokens.throw(&mut dice).clamp(1.0, MAX_OUTPUT_TOKENS).round();
        let prompt_tokens = calls.prompt_tokens.throw(&mut dice).clamp(MIN_PROMPT_TOKENS, MAX_PROMPT_TOKENS).round();
        let class = match dice.unit() {
            share if share < calls.interactive_share => Priority::Interactive,
            share if share < calls.interactive_share + calls.bulk_share => Priority::Bulk,
            _ => Priority::Default,
        };
        let is_cached = dice.falls(gateway.cached_share);
        let reasoning_s = gateway.reasoning_s * dice.lognormal(REASONING_SIGMA);
        Self {
            client,
            class,
            work: Work { prompt_tokens, output_tokens, reasoning_s, is_cached, fate: Fate::None },
            arrived_at: now,
            sent_at: now,
            first_byte_at: None,
            has_begun: false,
            attempts: 0,
            dice,
        }
    }

    pub(super) fn throw_fate(&mut self, faults: &Faults) {
        let (luck, share) = (self.dice.unit(), self.dice.unit());
        let Faults { stall, reset, server_error, .. } = *faults;
        self.work.fate = match luck {
            luck if luck < stall => Fate::Stall(share),
            luck if luck < stall + reset => Fate::Reset(share),
            luck if luck < stall + reset + server_error => Fate::ServerError,
            _ => Fate::None,
        };
    }
}

const REASONING_SIGMA: f64 = 1.0;

/// The calls that exist, by index.
#[derive(Debug, Default)]
pub(super) struct CallTable {
    calls: Vec<(u32, Option<Call>)>,
    free: Vec<u32>,
}

impl CallTable {
    pub(super) fn insert(&mut self, call: Call) -> CallId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.calls.push((0, None));
            u32::try_from(self.calls.len() - 1).expect("fewer than 2^32 calls exist at once")
        });
        let (stamp, place) = &mut self.calls[index as usize];
        *place = Some(call);
        CallId { index, stamp: *stamp }
    }

    pub(super) fn get_mut(&mut self, id: CallId) -> Option<&mut Call> {
        let (stamp, call) = &mut self.calls[id.index as usize];
        if *stamp == id.stamp { call.as_mut() } else { None }
    }

    /// The name under which a call is tried again; the old one is dead.
    pub(super) fn rename(&mut self, id: CallId) -> CallId {
        let (stamp, _) = &mut self.calls[id.index as usize];
        *stamp = stamp.wrapping_add(1);
        CallId { index: id.index, stamp: *stamp }
    }

    pub(super) fn id_at(&self, index: u32) -> CallId {
        CallId { index, stamp: self.calls[index as usize].0 }
    }

    pub(super) fn remove(&mut self, id: CallId) {
        self.rename(id);
        self.calls[id.index as usize].1 = None;
        self.free.push(id.index);
    }
}
