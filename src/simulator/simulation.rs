//! The loop: takes the next event, and carries what follows from clients to gateway and back.

use std::collections::VecDeque;

use super::agenda::{Agenda, Event, secs};
use super::call::{Call, CallId, CallTable};
use super::dice::Dice;
use super::gateway::{Ending, Gateway};
use super::oracle::timeline;
use super::run::{Run, Step};
use super::scenario::{Answer, Change, Load, Scenario};
use super::station::{End, Request, Station, Turn};
use crate::engine::controller::Controller;
use crate::engine::outcome::Outcome;
use crate::engine::priority::Priority;
use crate::engine::time::Time;

#[derive(Debug)]
pub(super) struct Simulation<'a> {
    scenario: &'a Scenario,
    seed: u64,
    now: Time,
    agenda: Agenda,
    calls: CallTable,
    clients: Vec<Client>,
    gateway: Gateway,
    changes: Vec<(f64, &'a Change)>,
    /// Calls in the order in which they were sent, for the one timeout that all have.
    unanswered: VecDeque<(Time, CallId)>,
    measured_from: Time,
    dice: Dice,
    run: Run,
}

#[derive(Debug)]
struct Client {
    station: Station,
    /// Calls made so far.
    made: u64,
    timer_at: Time,
    tokens: f64,
}

/// Purposes of dice.
const PACE: u64 = 1 << 32;
const CALLS: u64 = 2 << 32;

/// A caller of a closed load whom its own queue refused looks again after this long.
const REFUSED_CALLER_RESTS_S: f64 = 1.0;
const FIRST_BACKOFF_S: f64 = 0.5;

impl<'a> Simulation<'a> {
    pub(super) fn new(scenario: &'a Scenario, seed: u64, controllers: Vec<Box<dyn Controller>>) -> Self {
        let client = |controller| Client {
            station: Station::new(&scenario.clients, controller),
            made: 0,
            timer_at: Time::NEVER,
            tokens: 0.0,
        };
        Self {
            scenario,
            seed,
            now: Time::ZERO,
            agenda: Agenda::default(),
            calls: CallTable::default(),
            clients: controllers.into_iter().map(client).collect(),
            gateway: Gateway::new(scenario.gateway.clone(), seed),
            changes: timeline(scenario),
            unanswered: VecDeque::new(),
            measured_from: Time::ZERO + secs(scenario.measured_from_s),
            dice: Dice::new(seed, PACE),
            run: Run::new(scenario),
        }
    }

    pub(super) fn run(mut self) -> Run {
        let ends_at = Time::ZERO + secs(self.scenario.runs_s);
        self.begin();
        while let Some((at, event)) = self.agenda.next().filter(|(at, _)| *at <= ends_at) {
            self.now = at;
            self.handle(event);
        }
        self.run
    }

    fn begin(&mut self) {
        for (index, (at_s, _)) in (0..).zip(&self.changes) {
            self.agenda.schedule(Time::ZERO + secs(*at_s), Event::Change { index });
        }
        self.agenda.schedule(Time::ZERO + secs(self.scenario.step_s), Event::Step);
        for client in 0..self.scenario.clients.count {
            match self.scenario.load {
                Load::Closed { callers, .. } => (0..callers).for_each(|_| self.make_call(client)),
                Load::Open { .. } | Load::Bursts { .. } => self.expect_arrival(client),
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival { client } => {
                self.make_call(client);
                self.expect_arrival(client);
            }
            Event::Pace { client } => self.expect_arrival(client),
            Event::NextCall { client } => self.make_call(client),
            Event::Retry(id) => self.offer(id),
            Event::Reached(id) => {
                if let Some(call) = self.calls.get_mut(id) {
                    self.gateway.arrive(id, call.work, self.now, &mut self.agenda);
                }
            }
            Event::Prefilled(id) => {
                let has_token = self.gateway.prefilled(id, self.now, &mut self.agenda);
                if has_token && self.scenario.clients.answer == Answer::Stream {
                    self.first_byte(id);
                }
            }
            Event::Decoded { stamp } => self.decoded(stamp),
            Event::Ended(id, outcome) => {
                if self.calls.get_mut(id).is_some() {
                    self.gateway.leave(id, self.now, &mut self.agenda);
                    self.end(id, outcome);
                }
            }
            Event::FirstByteTimeout => self.give_up_unanswered(),
            Event::Timer { client } => {
                self.clients[client as usize].timer_at = Time::NEVER;
                self.clients[client as usize].station.handle_timeout(self.now);
                self.take_turns(client as usize);
            }
            Event::Change { index } => self.change(index as usize),
            Event::Step => self.note_step(),
        }
    }

    fn make_call(&mut self, client: u32) {
        let made = &mut self.clients[client as usize].made;
        *made += 1;
        let dice = Dice::new(self.seed, CALLS.wrapping_mul(u64::from(client) + 1) ^ *made);
        let call = Call::new(client as usize, dice, &self.scenario.calls, self.gateway.rules(), self.now);
        let id = self.calls.insert(call);
        self.offer(id);
    }

    fn expect_arrival(&mut self, client: u32) {
        let (per_s, turns_at) = match self.scenario.load {
            Load::Closed { .. } => return,
            Load::Open { calls_per_s } => (calls_per_s, Time::NEVER),
            Load::Bursts { calls_per_s, quiet_calls_per_s, burst_s, quiet_s } => {
                let into_s = self.now.since_epoch().as_secs_f64() % (burst_s + quiet_s);
                if into_s < burst_s {
                    (calls_per_s, self.now + secs(burst_s - into_s))
                } else {
                    (quiet_calls_per_s, self.now + secs(burst_s + quiet_s - into_s))
                }
            }
        };
        let arrives_at = if per_s > 0.0 { self.now + secs(self.dice.gap_s(per_s)) } else { Time::NEVER };
        if arrives_at < turns_at {
            self.agenda.schedule(arrives_at, Event::Arrival { client });
        } else {
            self.agenda.schedule(turns_at, Event::Pace { client });
        }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a prompt is bounded")]
    fn offer(&mut self, id: CallId) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let prompt_tokens = call.work.prompt_tokens as u32;
        let (client, class, arrived_at) = (call.client, call.class, call.arrived_at);
        let request = Request { call: id.index, class, arrived_at, prompt_tokens };
        if !self.clients[client].station.offer(request, self.now) {
            self.give_up_waiting(id, REFUSED_CALLER_RESTS_S);
        }
        self.take_turns(client);
    }

    /// Sends whoever was granted a slot in the last step of a client's engine.
    fn take_turns(&mut self, client: usize) {
        while let Some(turn) = self.clients[client].station.next_turn(self.now) {
            match turn {
                Turn::Granted(index) => self.send(self.calls.id_at(index)),
                Turn::Expired(index) => self.give_up_waiting(self.calls.id_at(index), 0.0),
            }
        }
        let Client { station, timer_at, .. } = &mut self.clients[client];
        if let Some(at) = station.poll_timeout().filter(|at| at < timer_at) {
            *timer_at = at;
            let client = u32::try_from(client).expect("there are at most 64 clients");
            self.agenda.schedule(at.max(self.now), Event::Timer { client });
        }
    }

    fn send(&mut self, id: CallId) {
        let Some(call) = self.calls.get_mut(id) else { return };
        call.sent_at = self.now;
        call.first_byte_at = None;
        call.attempts += 1;
        call.throw_fate(&self.gateway.rules().faults);
        self.run.totals.sent += 1;
        if self.unanswered.is_empty() {
            self.agenda.schedule(self.first_byte_due(self.now), Event::FirstByteTimeout);
        }
        self.unanswered.push_back((self.now, id));
        self.agenda.schedule(self.now + secs(self.gateway.rules().network_s), Event::Reached(id));
    }

    fn first_byte(&mut self, id: CallId) {
        let Some(call) = self.calls.get_mut(id) else { return };
        call.first_byte_at = Some(self.now);
        let is_news = !std::mem::replace(&mut call.has_begun, true);
        if is_news && call.class == Priority::Interactive && self.now >= self.measured_from {
            self.run.interactive_waits.push(self.now.since(call.arrived_at).as_secs_f32());
        }
        let client = call.client;
        self.clients[client].station.first_byte(id.index, self.now);
        self.take_turns(client);
    }

    fn decoded(&mut self, stamp: u32) {
        if !self.gateway.decoded(stamp, self.now) {
            return;
        }
        while let Some((id, ending)) = self.gateway.next_done(self.now, &mut self.agenda) {
            match ending {
                Ending::Whole => self.end(id, Outcome::Success),
                Ending::Broken => self.end(id, Outcome::Transport),
                Ending::Silence => self.expect_stall(id),
            }
        }
    }

    fn expect_stall(&mut self, id: CallId) {
        let at = self.now + secs(self.scenario.clients.idle_timeout_s);
        self.agenda.schedule(at, Event::Ended(id, Outcome::Stalled));
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an answer is bounded")]
    fn end(&mut self, id: CallId, outcome: Outcome) {
        let is_success = outcome == Outcome::Success;
        if is_success && self.scenario.clients.answer == Answer::Whole {
            self.first_byte(id);
        }
        let Some(call) = self.calls.get_mut(id) else { return };
        let tokens = if is_success { call.work.output_tokens } else { 0.0 };
        let client = call.client;
        let retry_after_s = self.gateway.rules().retry_after_s.filter(|_| outcome == Outcome::Overload);
        let end = End { outcome, tokens: tokens as u32, retry_after_s };
        if self.now >= self.measured_from {
            let totals = &mut self.run.totals;
            totals.succeeded += u64::from(is_success);
            totals.tokens += tokens;
            totals.refused += u64::from(outcome == Outcome::Overload);
        }
        self.clients[client].tokens += tokens;
        self.clients[client].station.end(id.index, end, self.now);
        if is_success {
            self.retire(id);
        } else {
            self.retry(id, retry_after_s.unwrap_or_default());
        }
        self.take_turns(client);
    }

    fn retry(&mut self, id: CallId, retry_after_s: f64) {
        let Some(call) = self.calls.get_mut(id) else { return };
        if call.attempts >= self.scenario.clients.attempts {
            self.run.totals.lost += u64::from(self.now >= self.measured_from);
            self.retire(id);
            return;
        }
        let doubled = FIRST_BACKOFF_S * f64::from(1_u32 << (call.attempts - 1).min(16));
        let luck = call.dice.unit();
        let after_s = (doubled * (0.5 + luck)).max(retry_after_s * (1.0 + 0.1 * luck));
        let id = self.calls.rename(id);
        self.agenda.schedule(self.now + secs(after_s), Event::Retry(id));
    }

    /// The caller gets an error from its own limiter.
    fn give_up_waiting(&mut self, id: CallId, rests_s: f64) {
        self.run.totals.expired += u64::from(self.now >= self.measured_from);
        self.retire_after(id, rests_s);
    }

    fn retire(&mut self, id: CallId) {
        self.retire_after(id, 0.0);
    }

    /// A call is over; in a closed load its caller makes another.
    fn retire_after(&mut self, id: CallId, rests_s: f64) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let client = u32::try_from(call.client).expect("there are at most 64 clients");
        self.calls.remove(id);
        if let Load::Closed { think_s, .. } = self.scenario.load {
            let thinks_s = if think_s > 0.0 { self.dice.gap_s(1.0 / think_s) } else { 0.0 };
            self.agenda.schedule(self.now + secs(rests_s + thinks_s), Event::NextCall { client });
        }
    }

    fn first_byte_due(&self, sent_at: Time) -> Time {
        sent_at + secs(self.scenario.clients.first_byte_timeout_s)
    }

    fn give_up_unanswered(&mut self) {
        while let Some(&(sent_at, id)) = self.unanswered.front() {
            let is_waiting = self.calls.get_mut(id).is_some_and(|call| call.first_byte_at.is_none());
            if is_waiting && self.first_byte_due(sent_at) > self.now {
                self.agenda.schedule(self.first_byte_due(sent_at), Event::FirstByteTimeout);
                return;
            }
            self.unanswered.pop_front();
            if is_waiting {
                self.run.totals.unanswered += u64::from(self.now >= self.measured_from);
                self.gateway.leave(id, self.now, &mut self.agenda);
                self.end(id, Outcome::Stalled);
            }
        }
    }

    fn change(&mut self, index: usize) {
        let mut rules = self.gateway.rules().clone();
        self.changes[index].1.apply(&mut rules);
        for id in self.gateway.become_like(rules, self.now, &mut self.agenda) {
            self.expect_stall(id);
        }
    }

    fn note_step(&mut self) {
        for (client, steps) in self.clients.iter_mut().zip(&mut self.run.steps) {
            let station = &client.station;
            steps.push(Step {
                limit: station.limit(),
                in_flight: station.in_flight(),
                waiting: station.waiting(),
                tokens: std::mem::take(&mut client.tokens),
            });
        }
        self.agenda.schedule(self.now + secs(self.scenario.step_s), Event::Step);
    }
}
