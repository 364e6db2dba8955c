//! What the whole controller promises, on a small model of a gateway.

#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "milliseconds and tokens of a test")]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::*;
use crate::engine::controller::testing::{Call, call};

/// Milliseconds from the start.
type Time = u64;

/// What the gateway does with a call above its capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Full {
    Refuse,
    RefuseFor { secs: u64 },
    Queue,
}

/// A gateway with `capacity` slots, and so many callers that call again as soon as they have their answer.
struct Model {
    knee: Knee,
    full: Full,
    capacity: usize,
    callers: u32,
    now: Time,
    events: BinaryHeap<Reverse<(Time, usize, Event)>>,
    calls: Vec<Flight>,
    queue: VecDeque<usize>,
    busy: usize,
    in_flight: u32,
    gate: Time,
    jitter: Jitter,
    refused: usize,
    done: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    FirstByte,
    End,
    Refused,
    Wake,
}

struct Flight {
    sent: Sent,
    mark: Mark,
    first_byte_at: Option<Duration>,
}

impl Model {
    fn new(initial_limit: u32, full: Full, capacity: usize) -> Self {
        Self {
            knee: Knee::new(KneeConfig { initial_limit, ..KneeConfig::default() }).unwrap(),
            full,
            capacity,
            callers: u32::MAX,
            now: 0,
            events: BinaryHeap::new(),
            calls: Vec::new(),
            queue: VecDeque::new(),
            busy: 0,
            in_flight: 0,
            gate: 0,
            jitter: Jitter::new(1),
            refused: 0,
            done: 0,
        }
    }

    fn limit(&self) -> u32 {
        self.knee.limit()
    }

    fn run_until(&mut self, secs: u64) {
        self.send();
        self.run_events_until(secs * 1000);
    }

    /// Nobody calls until then.
    fn rest_until(&mut self, secs: u64) {
        let callers = std::mem::take(&mut self.callers);
        self.run_events_until(secs * 1000);
        (self.callers, self.now) = (callers, secs * 1000);
    }

    fn run_events_until(&mut self, end: Time) {
        while self.events.peek().is_some_and(|Reverse((at, _, _))| *at <= end) {
            let Some(Reverse((at, id, event))) = self.events.pop() else { return };
            self.now = at;
            match event {
                Event::FirstByte => {
                    let at = self.time();
                    let flight = &mut self.calls[id];
                    flight.first_byte_at = Some(at);
                    self.knee.on_first_byte(at, &flight.sent, flight.mark);
                }
                Event::End => {
                    self.done += 1;
                    self.busy -= 1;
                    self.end(id, Outcome::Success);
                    self.start_queued();
                }
                Event::Refused => self.refuse(id),
                Event::Wake => {}
            }
            self.send();
        }
    }

    fn time(&self) -> Duration {
        Duration::from_millis(self.now)
    }

    fn send(&mut self) {
        while self.in_flight < self.limit().min(self.callers) {
            let paused_until = self.knee.paused_until().map_or(0, |until| until.as_millis() as Time + 1);
            let opens_at = self.gate.max(paused_until);
            if opens_at > self.now {
                self.events.push(Reverse((opens_at, 0, Event::Wake)));
                return;
            }
            self.in_flight += 1;
            let is_saturated = self.callers > self.limit();
            let call = Call { in_flight: self.in_flight, is_saturated, ..call(Outcome::Success) };
            let sent = Sent { at: self.time(), ..call.sent() };
            let mark = self.knee.on_sent(&sent);
            self.calls.push(Flight { sent, mark, first_byte_at: None });
            let id = self.calls.len() - 1;
            if self.busy < self.capacity {
                self.start(id);
            } else if self.full == Full::Queue {
                self.queue.push_back(id);
            } else {
                self.events.push(Reverse((self.now + 20, id, Event::Refused)));
            }
        }
    }

    fn start(&mut self, id: usize) {
        self.busy += 1;
        let first = self.now + 200 + (100.0 * self.jitter.fraction()) as Time;
        let end = first + 500 + (4000.0 * self.jitter.fraction()) as Time;
        self.events.push(Reverse((first, id, Event::FirstByte)));
        self.events.push(Reverse((end, id, Event::End)));
    }

    fn start_queued(&mut self) {
        while self.busy < self.capacity {
            let Some(id) = self.queue.pop_front() else { return };
            self.start(id);
        }
    }

    fn refuse(&mut self, id: usize) {
        self.refused += 1;
        if let Full::RefuseFor { secs } = self.full {
            self.gate = self.gate.max(self.now + secs * 1000);
        }
        self.end(id, Outcome::Overload);
    }

    fn end(&mut self, id: usize, outcome: Outcome) {
        let flight = &self.calls[id];
        let retry_after = match self.full {
            Full::RefuseFor { secs } if outcome == Outcome::Overload => Some(Duration::from_secs(secs)),
            _ => None,
        };
        let streamed = self.time().saturating_sub(flight.first_byte_at.unwrap_or_default());
        self.knee.on_end(&Sample {
            ended_at: self.time(),
            sent: flight.sent,
            mark: flight.mark,
            first_byte_at: flight.first_byte_at,
            further_chunks: (streamed.as_millis() / 20) as u32,
            answer_bytes: 0,
            outcome,
            retry_after,
            in_flight: self.in_flight,
        });
        self.in_flight -= 1;
    }
}

#[test]
fn finds_what_a_refusing_gateway_takes() {
    for (initial, capacity) in [(16, 4), (1, 4), (1, 40), (100, 40), (16, 1)] {
        let mut model = Model::new(initial, Full::Refuse, capacity);
        model.run_until(900);
        let found = model.limit() as usize;
        assert!((capacity..=capacity + 2).contains(&found), "{capacity} from {initial}: {found}");
    }
}

#[test]
fn finds_what_a_queueing_gateway_takes() {
    for (initial, capacity) in [(16, 4), (1, 4), (1, 40), (100, 40), (16, 1)] {
        let mut model = Model::new(initial, Full::Queue, capacity);
        model.run_until(900);
        let found = model.limit() as usize;
        assert!((capacity..=capacity + capacity / 8 + 2).contains(&found), "{capacity} from {initial}: {found}");
    }
}

#[test]
fn leaves_a_dear_ceiling_alone() {
    for initial in [16, 1] {
        let mut model = Model::new(initial, Full::RefuseFor { secs: 60 }, 4);
        model.run_until(30);
        let first_wave = model.refused;
        model.run_until(300);
        let done = model.done;
        model.run_until(600);
        assert!(model.refused <= first_wave + 5, "{} after {first_wave}", model.refused);
        // 4 calls of 2.75 s on average.
        let possible = 300.0 * 4.0 / 2.75;
        assert!((model.done - done) as f64 > 0.95 * possible, "{} of {possible}", model.done - done);
    }
}

#[test]
fn comes_back_quickly_when_the_upstream_does() {
    for full in [Full::Refuse, Full::Queue] {
        let mut model = Model::new(32, full, 32);
        model.run_until(300);
        model.capacity = 8;
        model.run_until(360);
        assert!(model.limit() <= 16, "{full:?} fell to {}", model.limit());
        model.capacity = 32;
        model.start_queued();
        // As long again as it was away, and a little.
        model.run_until(425);
        assert!(model.limit() >= 28, "{full:?} rose to {}", model.limit());
    }
}

#[test]
fn an_idle_lane_does_not_grow() {
    let mut knee = Knee::new(KneeConfig::default()).unwrap();
    for n in 0..10_000 {
        let call = Call { is_saturated: false, ..call(Outcome::Success).at(f64::from(n), f64::from(n) + 0.9) };
        call.run(&mut knee);
    }
    assert_eq!(knee.limit(), 16);
}

#[test]
fn a_limit_that_its_callers_do_not_fill_does_not_grow() {
    let mut model = Model::new(16, Full::Queue, 1_000);
    model.callers = 24;
    model.run_until(600);
    // 24 are 0.7 of 34.
    assert!((24..=35).contains(&model.limit()), "{}", model.limit());
}

#[test]
fn time_without_calls_hides_no_queue() {
    let mut model = Model::new(16, Full::Queue, 4);
    model.rest_until(86_400);
    model.run_until(86_430);
    assert!(model.limit() <= 7, "{}", model.limit());
    model.rest_until(2 * 86_400);
    model.capacity = 1;
    model.run_until(2 * 86_400 + 30);
    assert!(model.limit() <= 3, "{}", model.limit());
}

#[test]
fn one_broken_connection_costs_nothing() {
    let mut model = Model::new(16, Full::Refuse, 16);
    model.run_until(300);
    let before = model.limit();
    call(Outcome::Transport).at(300.0, 300.1).run(&mut model.knee);
    assert_eq!(model.limit(), before);
    assert_eq!(model.knee.paused_until(), None);
}

#[test]
fn one_refusal_for_nothing_costs_nothing() {
    let mut model = Model::new(16, Full::Refuse, 16);
    model.run_until(300);
    let before = model.limit();
    Call { in_flight: before - 1, ..call(Outcome::Overload).at(300.0, 300.1) }.run(&mut model.knee);
    assert_eq!(model.limit(), before);
}

#[test]
fn an_outage_is_tried_by_single_calls_and_ends_with_the_first_answer() {
    let mut knee = Knee::new(KneeConfig::default()).unwrap();
    for n in 0..4 {
        call(Outcome::Transport).at(0.1 * f64::from(n), 1.0).run(&mut knee);
    }
    let mut next = Duration::from_secs(1);
    let mut gaps = Vec::new();
    for _ in 0..10 {
        let at = knee.paused_until().expect("a trial goes on");
        gaps.push(at.saturating_sub(next).as_secs_f64());
        next = at;
        let tried = call(Outcome::Unavailable).at(at.as_secs_f64(), at.as_secs_f64());
        tried.run(&mut knee);
    }
    assert!(gaps.iter().all(|gap| *gap < 18.1), "{gaps:?}");
    assert!(gaps[9] > 11.9, "{gaps:?}");
    assert_eq!(knee.limit(), 1, "one more than are in flight");
    let at = knee.paused_until().expect("a trial goes on").as_secs_f64();
    call(Outcome::Success).at(at, at + 1.0).run(&mut knee);
    assert_eq!(knee.paused_until(), None);
}

// Case 95.
#[test]
fn a_config_that_can_never_admit_is_refused_by_field() {
    let base = KneeConfig::default();
    for (config, field) in [
        (KneeConfig { min_limit: 0, ..base.clone() }, "min_limit"),
        (KneeConfig { initial_limit: 0, ..base.clone() }, "initial_limit"),
        (KneeConfig { max_limit: 8, ..base.clone() }, "initial_limit"),
        (KneeConfig { min_limit: 50, max_limit: 20, ..base }, "max_limit"),
    ] {
        assert_eq!(Knee::new(config).unwrap_err().field(), field);
    }
}

#[test]
fn the_same_calls_give_the_same_limit() {
    let run = || {
        let mut model = Model::new(16, Full::Queue, 12);
        model.run_until(600);
        (model.limit(), model.done)
    };
    assert_eq!(run(), run());
}
