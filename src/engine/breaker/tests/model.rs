//! The breaker against a naive one that keeps everything it ever heard.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Op {
    Wait(u64),
    /// A call comes.
    Call,
    /// One of those under way is not sent after all.
    Drop(usize),
    /// One of those under way ends; its first byte came so many seconds after it was sent.
    End(usize, Outcome, u64),
    /// Passes that went back already go back again.
    Again(usize),
    Reload(usize),
}

fn ops() -> impl Strategy<Value = Op> {
    let outcomes = prop_oneof![
        4 => Just(Outcome::Success),
        5 => prop::sample::select(vec![Outcome::Transport, Outcome::Unavailable, Outcome::ServerError, Outcome::Stalled]),
        2 => prop::sample::select(Outcome::ALL.to_vec()),
    ];
    prop_oneof![
        2 => (1_u64..40_000).prop_map(Op::Wait),
        8 => Just(Op::Call),
        1 => any::<usize>().prop_map(Op::Drop),
        6 => (any::<usize>(), outcomes, 0_u64..8).prop_map(|(n, outcome, late)| Op::End(n, outcome, late)),
        1 => any::<usize>().prop_map(Op::Again),
        1 => (0_usize..40).prop_map(Op::Reload),
    ]
}

fn policies() -> impl Strategy<Value = BreakerPolicy> {
    let slow = prop::option::of((1_u64..6, 1_u32..=4));
    (1_u32..=4, slow, 1_u32..8, 1_u64..90, 1_u64..40, 1_u64..200, 1_u32..5, 1_u64..90).prop_map(
        |(rate, slow, min_calls, window, open_for, more, probes, timeout)| BreakerPolicy {
            failure_rate: f64::from(rate) / 4.0,
            slow: slow.map(|(after, rate)| SlowRule { after: Duration::from_secs(after), rate: f64::from(rate) / 4.0 }),
            min_calls,
            window: Duration::from_secs(window),
            open_for: Duration::from_secs(open_for),
            max_open_for: Duration::from_secs(open_for + more),
            probes,
            probe_timeout: Duration::from_secs(timeout),
        },
    )
}

/// What the naive breaker keeps with a call.
#[derive(Clone, Copy, Debug)]
struct Ticket {
    id: usize,
    generation: u32,
}

#[derive(Debug)]
enum State {
    Closed,
    Open { until: Time },
    HalfOpen { places: Vec<(usize, Time)>, good: u32 },
}

struct Model {
    policy: Option<BreakerPolicy>,
    state: State,
    generation: u32,
    /// Since the last change of state: when, failed, slow.
    heard: Vec<(Time, bool, bool)>,
    failed_rounds: u32,
    calls: usize,
}

impl Model {
    fn half_open(&mut self) {
        self.state = State::HalfOpen { places: Vec::new(), good: 0 };
        self.renew();
    }

    fn renew(&mut self) {
        self.generation += 1;
        self.heard.clear();
    }

    fn open(&mut self, policy: BreakerPolicy, now: Time) {
        let length = (policy.open_for * 2_u32.pow(self.failed_rounds.min(20))).min(policy.max_open_for);
        self.state = State::Open { until: now + length };
        self.renew();
    }

    fn close(&mut self) {
        self.failed_rounds = 0;
        self.state = State::Closed;
        self.renew();
    }

    fn shown(&self, now: Time) -> BreakerState {
        match self.state {
            State::Closed => Closed,
            State::Open { until } if now < until => Open,
            State::Open { .. } | State::HalfOpen { .. } => HalfOpen,
        }
    }

    fn call(&mut self, now: Time) -> Option<Ticket> {
        if let (State::Open { .. }, HalfOpen) = (&self.state, self.shown(now)) {
            self.half_open();
        }
        self.calls += 1;
        let (id, policy) = (self.calls, self.policy);
        let is_in = match &mut self.state {
            State::Closed => true,
            State::Open { .. } => false,
            State::HalfOpen { places, good } => {
                let policy = policy.expect("without a policy it is closed");
                places.retain(|&(_, ends_at)| now < ends_at);
                let is_in = places.len() + (*good as usize) < policy.probes as usize;
                places.extend(is_in.then_some((id, now + policy.probe_timeout)));
                is_in
            }
        };
        is_in.then_some(Ticket { id, generation: self.generation })
    }

    fn give_back(&mut self, ticket: Ticket) {
        if let State::HalfOpen { places, .. } = &mut self.state {
            places.retain(|&(id, _)| id != ticket.id);
        }
    }

    fn end(&mut self, ticket: Ticket, outcome: Outcome, late: Duration, now: Time) {
        use OutcomeKind::{Failure, Success};
        self.give_back(ticket);
        let Some(policy) = self.policy else { return };
        if ticket.generation != self.generation || !matches!(outcome.kind(), Success | Failure) {
            return;
        }
        let has_failed = outcome.kind() == Failure;
        let is_slow = policy.slow.is_some_and(|rule| outcome == Outcome::Stalled || late > rule.after);
        match &mut self.state {
            State::Open { .. } => unreachable!("nothing is let in while it is open"),
            State::HalfOpen { .. } if has_failed || is_slow => {
                self.failed_rounds += 1;
                self.open(policy, now);
            }
            State::HalfOpen { good, .. } => {
                *good += 1;
                if *good >= policy.probes {
                    self.close();
                }
            }
            State::Closed => {
                self.heard.push((now, has_failed, is_slow));
                let slice = policy.window.as_nanos() / 10;
                let nth = |at: Time| at.since_epoch().as_nanos() / slice;
                self.heard.retain(|&(at, ..)| nth(at) + 10 > nth(now));
                let calls = self.heard.len() as f64;
                let failed = self.heard.iter().filter(|&&(_, failed, _)| failed).count() as f64;
                let slow = self.heard.iter().filter(|&&(.., slow)| slow).count() as f64;
                let too_many = |part: f64, rate: f64| part > 0.0 && part / calls >= rate;
                let is_broken =
                    too_many(failed, policy.failure_rate) || policy.slow.is_some_and(|rule| too_many(slow, rule.rate));
                if self.heard.len() >= policy.min_calls as usize && is_broken {
                    self.open(policy, now);
                }
            }
        }
    }

    fn reload(&mut self, policy: Option<BreakerPolicy>) {
        let before = std::mem::replace(&mut self.policy, policy);
        if before.map(|policy| policy.window) != policy.map(|policy| policy.window) {
            self.heard.clear();
        }
        match self.state {
            State::HalfOpen { .. } if policy.is_some() && before != policy => self.half_open(),
            State::HalfOpen { .. } | State::Open { .. } if policy.is_none() => self.close(),
            _ => {}
        }
    }
}

fn in_force(policies: &[BreakerPolicy], n: usize) -> Option<BreakerPolicy> {
    // Beyond the list: off, seldom.
    if n == 39 { None } else { Some(policies[n % policies.len()]) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn it_does_what_a_naive_one_does(
        policies in prop::collection::vec(policies(), 1..3), ops in prop::collection::vec(ops(), 1..300),
    ) {
        let mut bench = Bench::new(policies[0]);
        let policy = Some(policies[0]);
        let mut model =
            Model { policy, state: State::Closed, generation: 0, heard: Vec::new(), failed_rounds: 0, calls: 0 };
        let (mut out, mut gone): (Vec<(Pass, Ticket)>, Vec<Pass>) = (Vec::new(), Vec::new());
        for op in ops {
            let generation = bench.breaker.generation;
            match op {
                Op::Wait(millis) => bench.wait(Duration::from_millis(millis)),
                Op::Call => {
                    let (pass, ticket) = (bench.begin(), model.call(bench.now));
                    prop_assert_eq!(pass.is_some(), ticket.is_some());
                    out.extend(pass.zip(ticket));
                }
                Op::Drop(n) | Op::End(n, ..) if out.is_empty() => { let _ = n; }
                Op::Drop(n) => {
                    let (pass, ticket) = out.swap_remove(n % out.len());
                    bench.breaker.give_back(pass);
                    model.give_back(ticket);
                    gone.push(pass);
                }
                Op::End(n, outcome, late) => {
                    let (pass, ticket) = out.swap_remove(n % out.len());
                    let late = Duration::from_secs(late).min(bench.now.since_epoch());
                    bench.end_late(pass, outcome, late);
                    model.end(ticket, outcome, late, bench.now);
                    gone.push(pass);
                }
                Op::Again(n) => {
                    if let Some(&pass) = gone.get(n % gone.len().max(1)) {
                        bench.breaker.give_back(pass);
                    }
                }
                Op::Reload(n) => {
                    let policy = in_force(&policies, n);
                    bench.set_policy(policy);
                    model.reload(policy);
                }
            }
            let now = bench.now;
            let breaker = &bench.breaker;
            prop_assert_eq!(breaker.state(now), model.shown(now));
            prop_assert_eq!(breaker.time_left(now).is_some(), breaker.state(now) == Open);
            prop_assert_eq!(breaker.generation, model.generation);
            prop_assert!(breaker.generation >= generation);

            // Never more probes out than allowed, and never stuck half-open.
            if let (Phase::HalfOpen(_), State::HalfOpen { places, .. }) = (&breaker.phase, &model.state) {
                let allowed = model.policy.map_or(0, |policy| policy.probes);
                let places = places.iter().filter(|&&(_, ends_at)| now < ends_at).count();
                prop_assert!(places <= allowed as usize);
                prop_assert!(places > 0 || breaker.admits(now));
            }
            let due = breaker.next_timeout(now);
            prop_assert_eq!(due == Time::NEVER, breaker.admits(now));
            prop_assert!(due > now);
            // Nothing else happening, it lets somebody in: at the latest when every probe is overdue.
            let mut dues = std::iter::successors(Some(due), |&due| Some(breaker.next_timeout(due)));
            prop_assert!(breaker.admits(now) || dues.by_ref().take(5).any(|due| breaker.admits(due)));
        }

        // Every change was told, one after the other.
        let mut state = Closed;
        for (from, to, _) in bench.told() {
            prop_assert!(from == state && to != from);
            state = to;
        }
    }
}
