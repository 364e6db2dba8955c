//! What calls wait for: counted as it happens, and by its definition at each moment.

use proptest::prelude::*;

use super::*;
use crate::engine::breaker::BreakerPolicy;
use crate::engine::priority::Priority::{Bulk, Default as Normal};
use crate::engine::quota::{FollowHeaders, QuotaPolicy, Reported, Tokens};
use crate::engine::waits::WaitsFor;

const BREAKER: BreakerPolicy = BreakerPolicy {
    failure_rate: 0.5,
    slow: None,
    min_calls: 2,
    window: Duration::from_secs(60),
    open_for: Duration::from_secs(4),
    max_open_for: Duration::from_secs(8),
    probes: 1,
    probe_timeout: Duration::from_secs(10),
};

fn tokens(per_minute: u64) -> QuotaPolicy {
    let per_minute = [None, Some(per_minute), None, None];
    QuotaPolicy { per_minute, burst: 10 * SECOND, follow_headers: FollowHeaders::Off }
}

/// Lanes with nothing but slots, with a budget, with a breaker, and with both and a reserve.
struct Line {
    bench: Bench,
    lanes: Vec<LaneId>,
    waiting: Vec<(LaneId, WaiterId)>,
    running: Vec<(LaneId, Grant)>,
    /// Of each lane, by definition.
    spent: Vec<[Duration; 4]>,
}

impl Line {
    fn new(cap: u32, of_pool: Option<QuotaPolicy>) -> Self {
        let mut bench = Bench::new(cap);
        let lanes: Vec<LaneId> =
            [policy(1), policy(3), policy(3), reserving(1, 3)].map(|policy| bench.pool.add_lane(policy, None)).into();
        let now = bench.now;
        for lane in [lanes[1], lanes[3]] {
            bench.pool.set_lane_quota(lane, Some(tokens(600)), now);
        }
        for lane in [lanes[2], lanes[3]] {
            bench.pool.set_breaker(lane, Some(BREAKER), now, &mut Effects::default());
        }
        bench.pool.set_quota(of_pool, now);
        Self { bench, spent: vec![[Duration::ZERO; 4]; lanes.len()], lanes, waiting: Vec::new(), running: Vec::new() }
    }

    fn come(&mut self, lane: usize, class: Priority, input: u32) {
        let lane = self.lanes[lane];
        let asked = Asked { tokens: Tokens { input, output: 0 }, ..Asked::default() };
        let request = Request { asked, ..Request::of(class) };
        let expires_at = self.bench.now + 20 * SECOND;
        let came = self.bench.step(|pool, now, effects| match pool.try_acquire(lane, request, now, effects) {
            Ok(grant) => Some(Ok(grant)),
            Err(blocked) if blocked.is_final() => None,
            Err(_) => {
                let ask = Ask { class, tenant: None, arrived_at: now, expires_at, expiry: Expiry::QueueTimeout };
                pool.enqueue(lane, ask, asked, Waker::noop().clone(), now).ok().map(|ticket| Err(ticket.id))
            }
        });
        match came {
            Some(Ok(grant)) => self.running.push((lane, grant)),
            Some(Err(id)) => self.waiting.push((lane, id)),
            None => {}
        }
    }

    fn collect(&mut self, n: usize) {
        let Some(at) = n.checked_rem(self.waiting.len()) else { return };
        let (lane, id) = self.waiting[at];
        match self.bench.poll(lane, id) {
            Progress::Granted(grant) => {
                self.waiting.remove(at);
                self.running.push((lane, grant));
            }
            Progress::Gone => drop(self.waiting.remove(at)),
            _ => {}
        }
    }

    fn leave(&mut self, n: usize) {
        let Some(at) = n.checked_rem(self.waiting.len()) else { return };
        let (lane, id) = self.waiting.remove(at);
        self.bench.step(|pool, now, effects| {
            pool.abandon(lane, id, Some(now), effects).unwrap_or_else(|| pool.cancel(lane, id, now, effects))
        });
    }

    fn end(&mut self, n: usize, verdict: Verdict, used: u32) {
        let Some(at) = n.checked_rem(self.running.len()) else { return };
        let (lane, grant) = self.running.remove(at);
        let reported = Reported { input: Some(used), output: Some(0), output_seen: None };
        let ending = Ending { reported, ..Ending::from(verdict) };
        self.bench.step(|pool, now, effects| pool.settle(lane, &grant, ending, now, effects));
    }

    /// Time passes, and the engine is called whenever it asked to be.
    fn pass(&mut self, time: Duration) {
        let end = self.bench.now + time;
        while self.bench.now < end {
            let due = self.bench.pool.poll_timeout().unwrap_or(Time::NEVER).min(end);
            for at in 0..self.lanes.len() {
                let cause = self.lacks(self.lanes[at]);
                self.spent[at][cause as usize] += due.since(self.bench.now) * self.bench.waiting(self.lanes[at]);
            }
            self.bench.now = due;
            self.bench.tick();
        }
    }

    /// What the first of the line lacks, of those who may go.
    fn lacks(&mut self, id: LaneId) -> WaitsFor {
        let Bench { pool, now, .. } = &mut self.bench;
        let now = *now;
        if pool.opens_at(id, now).is_some() {
            return WaitsFor::Pause;
        }
        let open = pool.valve.open_to(now).intersect(pool.lane(id).valve.open_to(now));
        let Some(next) = pool.lane_mut(id).next(open, now) else { return WaitsFor::Slot };
        if !pool.lane(id).breaker.admits(now) {
            return WaitsFor::Breaker;
        }
        let is_short = pool.lane(id).quota.is_some() && !pool.fits_lane(id, next, now);
        assert!(is_short || pool.quota.is_some(), "it could go");
        WaitsFor::Tokens
    }

    fn counted(&mut self) -> Vec<[Duration; 4]> {
        let view = |&lane: &LaneId| self.bench.step(|pool, now, effects| pool.view(lane, now, effects)).waited;
        self.lanes.iter().map(view).collect()
    }
}

#[derive(Clone, Debug)]
enum Op {
    Come(usize, Priority, u32),
    Collect(usize),
    Leave(usize),
    End(usize, Verdict, u32),
    Pass(Duration),
}

fn op() -> impl Strategy<Value = Op> {
    let class = prop_oneof![Just(Priority::Interactive), Just(Normal), Just(Bulk)];
    let verdict = prop_oneof![
        3 => Just(Verdict::from(Outcome::Success)),
        2 => Just(Verdict::from(Outcome::Transport)),
        1 => Just(Verdict::from(Outcome::Cancelled)),
        1 => (1_u64..5).prop_map(|secs| {
            Verdict::new(Outcome::Overload).with_pause(Pause::For(Duration::from_secs(secs)))
        }),
    ];
    prop_oneof![
        6 => (0_usize..4, class, 0_u32..90).prop_map(|(lane, class, tokens)| Op::Come(lane, class, tokens)),
        4 => any::<usize>().prop_map(Op::Collect),
        1 => any::<usize>().prop_map(Op::Leave),
        4 => (any::<usize>(), verdict, 0_u32..120).prop_map(|(n, verdict, used)| Op::End(n, verdict, used)),
        4 => (0_u64..4_000_000).prop_map(|micros| Op::Pass(Duration::from_micros(micros))),
    ]
}

proptest! {
    #[test]
    fn the_causes_come_to_all_that_was_waited_and_each_to_its_part(
        is_pooled in any::<bool>(), ops in prop::collection::vec(op(), 1..150),
    ) {
        let mut line = if is_pooled { Line::new(4, Some(tokens(1_200))) } else { Line::new(0, None) };
        for op in ops {
            match op {
                Op::Come(lane, class, tokens) => line.come(lane, class, tokens),
                Op::Collect(n) => line.collect(n),
                Op::Leave(n) => line.leave(n),
                Op::End(n, verdict, used) => line.end(n, verdict, used),
                Op::Pass(time) => line.pass(time),
            }
            prop_assert_eq!(line.counted(), line.spent.clone());
        }
    }
}

#[test]
fn those_who_wait_for_a_slot_a_pause_a_probe_and_tokens_are_told_apart() {
    let mut line = Line::new(0, None);
    line.come(0, Normal, 0);
    (0..3).for_each(|_| line.come(0, Normal, 0));
    line.pass(2 * SECOND);
    line.end(0, Verdict::new(Outcome::Overload).with_pause(Pause::For(10 * SECOND)), 0);
    line.pass(5 * SECOND);
    (0..2).for_each(|_| line.come(1, Normal, 90));
    line.pass(4 * SECOND);
    let [[slot, pause, tokens, _], [_, _, of_tokens, _], ..] = line.counted()[..] else { panic!("four lanes") };
    assert_eq!((slot, tokens, of_tokens), (6 * SECOND, Duration::ZERO, 4 * SECOND));
    assert_eq!(pause, 27 * SECOND);

    let mut line = Line::new(0, None);
    (0..2).for_each(|_| line.come(2, Normal, 0));
    (0..2).for_each(|_| line.end(0, Outcome::Transport.into(), 0));
    line.pass(5 * SECOND);
    (0..3).for_each(|_| line.come(2, Normal, 0));
    line.pass(SECOND);
    assert_eq!(line.counted()[2], [Duration::ZERO, Duration::ZERO, Duration::ZERO, 2 * SECOND]);
}

#[test]
fn of_many_who_leave_at_once_few_say_when_and_hardly_anybody_is_counted_on() {
    let mut line = Line::new(0, None);
    (0..10_001).for_each(|_| line.come(0, Normal, 0));
    line.pass(SECOND);
    let (lane, mut said) = (line.lanes[0], 0);
    for (_, id) in std::mem::take(&mut line.waiting) {
        let asks = line.bench.pool.asks_time(lane);
        said += u32::from(asks);
        line.bench.step(|pool, now, effects| pool.abandon(lane, id, asks.then_some(now), effects));
        let (counted, waiting) = (line.bench.pool.lane(lane).waits.waiting(), line.bench.waiting(lane));
        assert!((waiting..=waiting + waiting / 8).contains(&counted), "{counted} for {waiting}");
    }
    assert!(said < 100, "{said}");
    line.pass(5 * SECOND);
    assert_eq!(line.counted()[0], line.spent[0]);
    assert_eq!(line.spent[0][0], 10_000 * SECOND);
}
