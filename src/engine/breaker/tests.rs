use super::*;
use crate::engine::outcome::Verdict;
use crate::engine::step::{Change, LaneId, Whose};

mod model;

const SECOND: Duration = Duration::from_secs(1);

const POLICY: BreakerPolicy = BreakerPolicy {
    failure_rate: 0.5,
    slow: Some(SlowRule { after: Duration::from_secs(5), rate: 0.5 }),
    min_calls: 5,
    window: Duration::from_secs(60),
    open_for: Duration::from_secs(30),
    max_open_for: Duration::from_secs(100),
    probes: 1,
    probe_timeout: Duration::from_secs(60),
};

/// A breaker, a clock, and what it told of itself.
struct Bench {
    breaker: Breaker,
    now: Time,
    changes: Vec<Change>,
    luck: f64,
}

impl Bench {
    fn new(policy: BreakerPolicy) -> Self {
        // Late enough that what it hears of may have been sent long before.
        let now = Time::from_epoch(1_000 * SECOND);
        Self { breaker: Breaker::new(Some(policy)), now, changes: Vec::new(), luck: 0.0 }
    }

    fn wait(&mut self, after: Duration) {
        self.now = self.now + after;
    }

    fn state(&self) -> BreakerState {
        self.breaker.state(self.now)
    }

    /// `None`: not let in.
    fn begin(&mut self) -> Option<Pass> {
        let Self { breaker, now, changes, .. } = self;
        breaker.admits(*now).then(|| breaker.take(*now, &mut list(changes)))
    }

    /// It was sent `began_after` before its first byte came, and that is now.
    fn end_late(&mut self, pass: Pass, outcome: Outcome, began_after: Duration) {
        let Self { breaker, now, changes, luck } = self;
        let ending = Ending { first_byte_at: *now, ..Ending::from(Verdict::new(outcome)) };
        let sent_at = Time::from_epoch(now.since_epoch().saturating_sub(began_after));
        breaker.on_end(pass, &ending, sent_at, *luck, *now, &mut list(changes));
    }

    fn end(&mut self, pass: Pass, outcome: Outcome) {
        self.end_late(pass, outcome, Duration::ZERO);
    }

    fn call(&mut self, outcome: Outcome) -> bool {
        let pass = self.begin();
        if let Some(pass) = pass {
            self.end(pass, outcome);
        }
        pass.is_some()
    }

    fn set_policy(&mut self, policy: Option<BreakerPolicy>) {
        self.breaker.set_policy(policy, self.now, &mut list(&mut self.changes));
    }

    /// Failures until it opens, and on to the moment when it is half-open.
    fn half_opened(policy: BreakerPolicy) -> Self {
        let mut bench = Self::new(policy);
        while bench.call(Outcome::Unavailable) {}
        let left = bench.breaker.time_left(bench.now).expect("open");
        bench.wait(left);
        bench.changes.clear();
        bench
    }

    fn told(&mut self) -> Vec<(BreakerState, BreakerState, Cause)> {
        let moved = |change: Change| match change.kind {
            ChangeKind::Breaker { from, to } => (from, to, change.cause),
            other => unreachable!("a breaker tells of itself alone: {other}"),
        };
        self.changes.drain(..).map(moved).collect()
    }
}

fn list(changes: &mut Vec<Change>) -> Changes<'_> {
    Changes { whose: Whose::Lane(LaneId(0)), list: changes }
}

use BreakerState::{Closed, HalfOpen, Open};

// Case 121.
#[test]
fn a_dropped_probe_makes_the_next_call_a_probe_at_once() {
    let mut bench = Bench::half_opened(POLICY);
    let never_sent = bench.begin().expect("half-open lets one in");
    assert!(bench.begin().is_none());
    bench.breaker.give_back(never_sent);

    let cancelled = bench.begin().expect("its place came back");
    bench.end(cancelled, Outcome::Cancelled);
    assert_eq!(bench.state(), HalfOpen);
    assert!(bench.call(Outcome::Success));
    assert_eq!(bench.state(), Closed);
}

// Case 121.
#[test]
fn a_probe_that_never_reports_costs_its_place_for_the_length_of_a_lease() {
    let mut bench = Bench::half_opened(POLICY);
    let lost = bench.begin().expect("half-open lets one in");
    assert_eq!(bench.breaker.next_timeout(bench.now), bench.now + POLICY.probe_timeout);
    bench.wait(POLICY.probe_timeout);
    assert_eq!(bench.breaker.next_timeout(bench.now), Time::NEVER);
    let next = bench.begin().expect("an overdue probe makes room");
    bench.breaker.give_back(lost);
    assert!(bench.begin().is_none(), "the place of the overdue one came back once");
    bench.end(next, Outcome::Success);
    assert_eq!(bench.state(), Closed);
}

#[test]
fn an_overdue_probe_counts_when_it_ends_after_all() {
    let long = Duration::from_secs(600);
    for (outcome, state) in [(Outcome::Success, Closed), (Outcome::Transport, Open)] {
        let mut bench = Bench::half_opened(POLICY);
        let stream = bench.begin().expect("half-open lets one in");
        bench.wait(long);
        bench.end(stream, outcome);
        assert_eq!(bench.state(), state);
    }
}

// Case 122.
#[test]
fn a_probe_that_ends_neutral_gives_its_place_back_and_decides_nothing() {
    let mut bench = Bench::half_opened(POLICY);
    for outcome in [Outcome::ClientError, Outcome::Quota, Outcome::Overload, Outcome::Refused] {
        assert!(bench.call(outcome), "{outcome:?}");
        assert_eq!(bench.state(), HalfOpen);
    }
    assert!(bench.call(Outcome::Success));
    let told = bench.told();
    assert_eq!(told[1..], [(HalfOpen, Closed, Cause::Answer(Outcome::Success))]);
}

// Case 123.
#[test]
fn half_open_lets_no_crowd_through() {
    for probes in [1, 3] {
        let mut bench = Bench::half_opened(BreakerPolicy { probes, ..POLICY });
        let passes: Vec<Pass> = (0..100).filter_map(|_| bench.begin()).collect();
        assert_eq!(passes.len(), probes as usize);
        for pass in passes {
            assert!(bench.begin().is_none(), "as many are sent as it takes to close it");
            bench.end(pass, Outcome::Success);
        }
        assert_eq!((bench.state(), (0..100).filter_map(|_| bench.begin()).count()), (Closed, 100));
    }
}

// Case 125.
#[test]
fn streams_that_die_open_it_though_their_heads_were_good() {
    let mut bench = Bench::new(POLICY);
    for n in 1..=10 {
        // Two frames came: its first byte was in time.
        let was_sent = bench.call(Outcome::Transport);
        assert_eq!(was_sent, n <= 5);
    }
    assert_eq!(bench.told(), [(Closed, Open, Cause::Failures)]);
}

// Case 126.
#[test]
fn callers_who_go_away_are_no_failures() {
    let mut bench = Bench::new(POLICY);
    for _ in 0..20 {
        assert!(bench.call(Outcome::Cancelled));
        let never_sent = bench.begin().expect("closed");
        bench.breaker.give_back(never_sent);
    }
    assert_eq!((bench.state(), bench.told()), (Closed, vec![]));
    // They are no calls either: it takes as many failures as ever.
    (0..4).for_each(|_| assert!(bench.call(Outcome::Stalled)));
    assert_eq!(bench.state(), Closed);
}

// Case 127.
#[test]
fn refusals_of_a_busy_upstream_do_not_open_it() {
    let mut bench = Bench::new(POLICY);
    for outcome in [Outcome::Overload, Outcome::Quota, Outcome::ClientError, Outcome::Refused] {
        (0..50).for_each(|_| assert!(bench.call(outcome)));
    }
    assert_eq!((bench.state(), bench.told()), (Closed, vec![]));
}

#[test]
fn slow_first_bytes_and_stalls_open_it_without_an_error() {
    let mut bench = Bench::new(BreakerPolicy { failure_rate: 1.0, ..POLICY });
    for _ in 0..3 {
        let (quick, slow) = (bench.begin().expect("closed"), bench.begin().expect("closed"));
        bench.end_late(quick, Outcome::Success, 5 * SECOND);
        bench.end_late(slow, Outcome::Success, 6 * SECOND);
    }
    assert_eq!(bench.told(), [(Closed, Open, Cause::Slowness)]);

    let mut bench = Bench::new(BreakerPolicy { failure_rate: 1.0, ..POLICY });
    for outcome in [Outcome::Success, Outcome::Stalled, Outcome::Stalled, Outcome::Success, Outcome::Stalled] {
        assert!(bench.call(outcome));
    }
    assert_eq!(bench.told(), [(Closed, Open, Cause::Slowness)]);
}

#[test]
fn what_began_to_answer_never_was_as_slow_as_it_took() {
    let mut bench = Bench::new(BreakerPolicy { failure_rate: 1.0, ..POLICY });
    let sent_at = bench.now;
    let passes: Vec<Pass> = (0..5).filter_map(|_| bench.begin()).collect();
    bench.wait(6 * SECOND);
    for (pass, outcome) in passes.into_iter().zip([Outcome::Success; 3].into_iter().chain([Outcome::Transport; 2])) {
        let ending = Ending::from(Verdict::new(outcome));
        let Bench { breaker, now, changes, .. } = &mut bench;
        breaker.on_end(pass, &ending, sent_at, 0.0, *now, &mut list(changes));
    }
    assert_eq!(bench.told(), [(Closed, Open, Cause::Slowness)]);
}

#[test]
fn without_a_rule_for_slowness_only_failures_count() {
    let mut bench = Bench::new(BreakerPolicy { slow: None, failure_rate: 0.6, ..POLICY });
    for outcome in [Outcome::Success, Outcome::Stalled].into_iter().cycle().take(40) {
        let pass = bench.begin().expect("closed");
        bench.end_late(pass, outcome, 100 * SECOND);
    }
    assert_eq!(bench.state(), Closed);
}

#[test]
fn a_slow_probe_sends_it_back_like_a_failed_one() {
    let mut bench = Bench::half_opened(POLICY);
    let slow = bench.begin().expect("half-open lets one in");
    bench.end_late(slow, Outcome::Success, 6 * SECOND);
    assert_eq!(bench.told()[1..], [(HalfOpen, Open, Cause::Slowness)]);
}

#[test]
fn few_failures_and_old_ones_open_nothing() {
    let mut bench = Bench::new(POLICY);
    for _ in 0..10 {
        (0..4).for_each(|_| assert!(bench.call(Outcome::Unavailable)));
        bench.wait(POLICY.window);
    }
    assert_eq!(bench.state(), Closed);
}

#[test]
fn it_stays_open_longer_each_time_up_to_a_bound_and_starts_small_after_it_closed() {
    let mut bench = Bench::half_opened(POLICY);
    for secs in [60, 100, 100] {
        assert!(bench.call(Outcome::ServerError));
        assert_eq!(bench.breaker.time_left(bench.now), Some(Duration::from_secs(secs)));
        assert_eq!(bench.breaker.next_timeout(bench.now), bench.now + Duration::from_secs(secs));
        bench.wait(Duration::from_secs(secs));
        assert_eq!((bench.state(), bench.breaker.time_left(bench.now)), (HalfOpen, None));
    }
    assert!(bench.call(Outcome::Success));
    while bench.call(Outcome::Unavailable) {}
    assert_eq!(bench.breaker.time_left(bench.now), Some(POLICY.open_for));
}

#[test]
fn luck_only_adds_time_and_at_most_a_tenth() {
    let mut bench = Bench::new(POLICY);
    bench.luck = 1.0;
    while bench.call(Outcome::Unavailable) {}
    assert_eq!(bench.breaker.time_left(bench.now), Some(Duration::from_secs(33)));
}

#[test]
fn results_of_an_older_generation_change_nothing() {
    let mut bench = Bench::new(POLICY);
    let old: Vec<Pass> = (0..30).filter_map(|_| bench.begin()).collect();
    while bench.call(Outcome::Unavailable) {}
    let (opened, half) = old.split_at(10);
    opened.iter().for_each(|&pass| bench.end(pass, Outcome::Success));
    assert_eq!(bench.state(), Open);
    bench.wait(POLICY.open_for);
    let probe = bench.begin().expect("half-open lets one in");
    for (n, &pass) in half.iter().enumerate() {
        bench.end(pass, if n % 2 == 0 { Outcome::Success } else { Outcome::Transport });
        assert!(bench.state() == HalfOpen && bench.begin().is_none());
    }
    bench.end(probe, Outcome::Success);
    bench.end(probe, Outcome::Transport);
    assert_eq!(bench.state(), Closed);
}

#[test]
fn each_change_is_told_once_with_its_cause() {
    let mut bench = Bench::half_opened(POLICY);
    assert!(bench.call(Outcome::Stalled));
    bench.wait(2 * POLICY.open_for);
    assert!(bench.call(Outcome::Success));
    assert_eq!(
        bench.told(),
        [
            (Open, HalfOpen, Cause::Elapsed),
            (HalfOpen, Open, Cause::Answer(Outcome::Stalled)),
            (Open, HalfOpen, Cause::Elapsed),
            (HalfOpen, Closed, Cause::Answer(Outcome::Success)),
        ]
    );
}

#[test]
fn switched_off_it_closes_and_old_probes_change_nothing() {
    let mut bench = Bench::half_opened(POLICY);
    let probe = bench.begin().expect("half-open lets one in");
    bench.changes.clear();
    bench.set_policy(None);
    assert_eq!(bench.told(), [(HalfOpen, Closed, Cause::Config)]);
    assert!(!bench.breaker.is_on());
    (0..50).for_each(|_| assert!(bench.call(Outcome::Unavailable)));

    bench.set_policy(Some(POLICY));
    while bench.call(Outcome::Unavailable) {}
    bench.wait(POLICY.open_for);
    let other = bench.begin().expect("half-open lets one in");
    bench.end(probe, Outcome::Success);
    assert_eq!(bench.state(), HalfOpen);
    bench.end(other, Outcome::Success);
    assert_eq!(bench.state(), Closed);
}

#[test]
fn fewer_probes_by_a_reload_do_not_leave_it_half_open_for_ever() {
    let mut bench = Bench::half_opened(BreakerPolicy { probes: 5, ..POLICY });
    (0..3).for_each(|_| assert!(bench.call(Outcome::Success)));
    bench.set_policy(Some(BreakerPolicy { probes: 2, ..POLICY }));
    (0..2).for_each(|_| assert!(bench.call(Outcome::Success)));
    assert_eq!(bench.state(), Closed);
}

#[test]
fn a_reload_keeps_an_open_breaker_open_and_the_same_policy_keeps_all() {
    let mut bench = Bench::new(POLICY);
    (0..4).for_each(|_| assert!(bench.call(Outcome::Unavailable)));
    bench.set_policy(Some(POLICY));
    assert!(bench.call(Outcome::Unavailable));
    bench.set_policy(Some(BreakerPolicy { min_calls: 50, ..POLICY }));
    assert_eq!(bench.breaker.time_left(bench.now), Some(POLICY.open_for));
}

#[test]
fn it_is_worth_keeping_until_it_was_half_open_and_untried_for_an_hour() {
    let mut bench = Bench::new(POLICY);
    assert!(bench.breaker.is_idle(bench.now));
    while bench.call(Outcome::Unavailable) {}
    bench.wait(POLICY.open_for);
    assert!(!bench.breaker.is_idle(bench.now));
    bench.wait(REMEMBERED);
    assert!(bench.breaker.is_idle(bench.now));
    let probe = bench.begin().expect("half-open lets one in");
    assert!(!bench.breaker.is_idle(bench.now));
    bench.breaker.give_back(probe);
    bench.wait(REMEMBERED);
    assert!(bench.breaker.is_idle(bench.now));
}
