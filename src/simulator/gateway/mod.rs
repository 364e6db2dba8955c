//! The modelled gateway: refuses, queues, reads prompts, decodes.
//!
//! ```text
//!  arrive ──▶ 429          ┌──────────── a slot ─────────────┐
//!         ──▶ LINE ──▶ PREFILLING ──▶ DECODING ──▶ (all tokens)
//!                                        └──▶ SILENT: stalled, until the client has had enough
//! ```

mod allowance;
mod decode;

use std::collections::VecDeque;

use self::allowance::Allowance;
use self::decode::Decode;
use super::agenda::{Agenda, Event, secs};
use super::call::{CallId, Fate, Work};
use super::dice::Dice;
use super::scenario::{Gateway as Rules, Prefill};
use crate::engine::outcome::Outcome;
use crate::engine::time::Time;

#[derive(Debug)]
pub(super) struct Gateway {
    rules: Rules,
    /// By call index.
    jobs: Vec<Option<Job>>,
    /// Calls that wait for a slot, and some that have gone away.
    line: VecDeque<CallId>,
    in_line: u32,
    in_slots: u32,
    decoding: u32,
    /// Calls whose prompts wait to be read, where that happens one after the other.
    prompts: VecDeque<CallId>,
    reading: Option<CallId>,
    decode: Decode,
    allowance: Allowance,
    shut_until: Time,
    dice: Dice,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    id: CallId,
    work: Work,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    InLine,
    Prefilling,
    Decoding,
    Silent,
}

/// What became of a call that has all the tokens it will get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Whole,
    Broken,
    /// Nobody has told the client.
    Silence,
}

/// Reading a prompt that is cached takes this share of the time.
const CACHED_PREFILL: f64 = 0.1;
/// Decoding is this much slower while a prompt is read by the same machine.
const PREFILL_SLOWS_DECODING: f64 = 1.6;
const SECONDS_PER_HOUR: f64 = 3_600.0;
/// Purpose of the gateway's own dice.
const STRAYS: u64 = 0x0057_7261_7973;

impl Gateway {
    pub(super) fn new(rules: Rules, seed: u64) -> Self {
        Self {
            rules,
            jobs: Vec::new(),
            line: VecDeque::new(),
            in_line: 0,
            in_slots: 0,
            decoding: 0,
            prompts: VecDeque::new(),
            reading: None,
            decode: Decode::default(),
            allowance: Allowance::default(),
            shut_until: Time::ZERO,
            dice: Dice::new(seed, STRAYS),
        }
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// A call comes out of the network.
    pub(super) fn arrive(&mut self, id: CallId, work: Work, now: Time, agenda: &mut Agenda) {
        if self.rules.black_hole {
            return;
        }
        let answer_at = now + secs(self.rules.network_s);
        if let Fate::ServerError = work.fate {
            agenda.schedule(answer_at, Event::Ended(id, Outcome::ServerError));
        } else if self.refuses(now) {
            self.hold_to_retry_after(now);
            agenda.schedule(answer_at, Event::Ended(id, Outcome::Overload));
        } else if self.in_slots < self.rules.slots {
            self.put(Job { id, work, place: Place::Prefilling });
            self.start(id, work, now, agenda);
        } else {
            self.put(Job { id, work, place: Place::InLine });
            self.line.push_back(id);
            self.in_line += 1;
        }
    }

    /// The prompt of a call has been read. Returns false if the call has gone away meanwhile.
    pub(super) fn prefilled(&mut self, id: CallId, now: Time, agenda: &mut Agenda) -> bool {
        let is_here = self.place(id) == Some(Place::Prefilling);
        if !is_here && self.reading != Some(id) {
            return false;
        }
        self.count_tokens(now);
        if is_here {
            let job = self.jobs[id.index as usize].as_mut().expect("a call that is here has a job");
            job.place = Place::Decoding;
            let tokens = match job.work.fate {
                Fate::Stall(share) | Fate::Reset(share) => job.work.output_tokens * share,
                Fate::None | Fate::ServerError => job.work.output_tokens,
            };
            self.decoding += 1;
            self.decode.join(id, tokens);
        }
        if self.reading == Some(id) {
            self.reading = None;
            self.read_next(now, agenda);
        }
        self.reschedule(agenda);
        is_here
    }

    /// True if the event still counts: [`next_done`](Self::next_done) may then give calls.
    pub(super) fn decoded(&mut self, stamp: u32, now: Time) -> bool {
        let is_current = self.decode.take_event(stamp);
        if is_current {
            self.count_tokens(now);
        }
        is_current
    }

    /// A call that has all its tokens. It has left its place, except that a silent one keeps its slot.
    pub(super) fn next_done(&mut self, now: Time, agenda: &mut Agenda) -> Option<(CallId, Ending)> {
        self.forget_gone();
        if !self.decode.is_first_done() {
            self.reschedule(agenda);
            return None;
        }
        let id = self.decode.first()?;
        self.decode.drop_first();
        let job = self.jobs[id.index as usize].as_mut()?;
        let ending = match job.work.fate {
            Fate::Stall(_) => Ending::Silence,
            Fate::Reset(_) => Ending::Broken,
            Fate::None | Fate::ServerError => Ending::Whole,
        };
        if ending == Ending::Silence {
            job.place = Place::Silent;
            self.decoding -= 1;
        } else {
            self.leave(id, now, agenda);
        }
        Some((id, ending))
    }

    /// A call goes away, done or given up.
    pub(super) fn leave(&mut self, id: CallId, now: Time, agenda: &mut Agenda) {
        let Some(place) = self.place(id) else { return };
        self.count_tokens(now);
        self.jobs[id.index as usize] = None;
        match place {
            Place::InLine => self.in_line -= 1,
            Place::Prefilling | Place::Silent => self.in_slots -= 1,
            Place::Decoding => {
                self.in_slots -= 1;
                self.decoding -= 1;
            }
        }
        self.fill_slots(now, agenda);
        self.reschedule(agenda);
    }

    /// Becomes another gateway. Returns the streams that fall silent because everything inside is lost.
    pub(super) fn become_like(&mut self, rules: Rules, now: Time, agenda: &mut Agenda) -> Vec<CallId> {
        self.count_tokens(now);
        let is_lost = rules.black_hole && !self.rules.black_hole;
        self.rules = rules;
        let silent = if is_lost { self.lose_everything() } else { Vec::new() };
        self.fill_slots(now, agenda);
        self.reschedule(agenda);
        silent
    }

    fn refuses(&mut self, now: Time) -> bool {
        let is_full = self.in_slots >= self.rules.slots && self.rules.queue.is_some_and(|queue| self.in_line >= queue);
        let stray = self.rules.faults.stray_429;
        now < self.shut_until
            || is_full
            || (stray > 0.0 && self.dice.falls(stray))
            || self.rules.calls_per_s.is_some_and(|per_s| !self.allowance.take(per_s, now))
    }

    fn hold_to_retry_after(&mut self, now: Time) {
        if self.rules.enforces_retry_after && now >= self.shut_until {
            self.shut_until = now + secs(self.rules.retry_after_s.unwrap_or_default());
        }
    }

    fn put(&mut self, job: Job) {
        let index = job.id.index as usize;
        if index >= self.jobs.len() {
            self.jobs.resize(index + 1, None);
        }
        self.jobs[index] = Some(job);
    }

    fn place(&self, id: CallId) -> Option<Place> {
        let job = self.jobs.get(id.index as usize)?.as_ref()?;
        (job.id == id).then_some(job.place)
    }

    fn start(&mut self, id: CallId, work: Work, now: Time, agenda: &mut Agenda) {
        self.in_slots += 1;
        match self.rules.prefill {
            Prefill::Parallel => agenda.schedule(now + secs(self.prefill_s(work, now)), Event::Prefilled(id)),
            Prefill::Serial => {
                self.prompts.push_back(id);
                self.count_tokens(now);
                self.read_next(now, agenda);
                self.reschedule(agenda);
            }
        }
    }

    fn read_next(&mut self, now: Time, agenda: &mut Agenda) {
        while self.reading.is_none() {
            let Some(id) = self.prompts.pop_front() else { return };
            if let Some(job) = self.jobs[id.index as usize].filter(|job| job.id == id) {
                self.reading = Some(id);
                agenda.schedule(now + secs(self.prefill_s(job.work, now)), Event::Prefilled(id));
            }
        }
    }

    fn prefill_s(&self, work: Work, now: Time) -> f64 {
        let part = if work.is_cached { CACHED_PREFILL } else { 1.0 };
        let hours = now.since_epoch().as_secs_f64() / SECONDS_PER_HOUR;
        let crept_s = self.rules.creep_s_per_hour * hours;
        self.rules.prefill_s + part * work.prompt_tokens / self.rules.prefill_tokens_per_s + work.reasoning_s + crept_s
    }

    fn fill_slots(&mut self, now: Time, agenda: &mut Agenda) {
        while self.in_slots < self.rules.slots {
            let Some(id) = self.line.pop_front() else { return };
            if let Some(job) = self.jobs[id.index as usize].as_mut().filter(|job| job.id == id) {
                job.place = Place::Prefilling;
                let work = job.work;
                self.in_line -= 1;
                self.start(id, work, now, agenda);
            }
        }
    }

    fn lose_everything(&mut self) -> Vec<CallId> {
        self.line.clear();
        self.prompts.clear();
        self.decode.clear();
        (self.in_line, self.in_slots, self.decoding, self.reading) = (0, 0, 0, None);
        let streams = self.jobs.iter().flatten().filter(|job| job.place == Place::Decoding).map(|job| job.id).collect();
        self.jobs.fill(None);
        streams
    }

    /// Time between tokens.
    fn token_s(&self) -> f64 {
        let alone = self.rules.token_s + self.rules.token_s_per_call * f64::from(self.decoding);
        if self.reading.is_some() { alone * PREFILL_SLOWS_DECODING } else { alone }
    }

    fn count_tokens(&mut self, now: Time) {
        let token_s = self.token_s();
        self.decode.advance(token_s, now);
    }

    fn reschedule(&mut self, agenda: &mut Agenda) {
        self.forget_gone();
        let token_s = self.token_s();
        self.decode.schedule(token_s, agenda);
    }

    fn forget_gone(&mut self) {
        while self.decode.first().is_some_and(|id| self.place(id) != Some(Place::Decoding)) {
            self.decode.drop_first();
        }
    }
}
