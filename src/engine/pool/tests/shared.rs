//! Shares of the limit, by class.

use proptest::prelude::*;

use super::*;
use crate::engine::priority::Priority::{Bulk, Default as Normal, Interactive};
use crate::engine::shares::Shares;

const SHARES: [f64; 3] = [0.5, 0.3, 0.2];

fn sharing(limit: u32, parts: [f64; 3]) -> LanePolicy {
    LanePolicy { shares: Some(Shares::new(parts)), aging_step: None, ..policy(limit) }
}

/// A lane whose calls are known, each by its class.
struct Crowd {
    bench: Bench,
    lane: LaneId,
    waiting: Vec<(WaiterId, Priority)>,
    running: Vec<Grant>,
}

impl Crowd {
    fn new(policy: LanePolicy) -> Self {
        let (bench, lane) = Bench::of(policy);
        Self { bench, lane, waiting: Vec::new(), running: Vec::new() }
    }

    fn come(&mut self, class: Priority) {
        match self.bench.come(self.lane, class) {
            Came::Sent(grant) => self.running.push(grant),
            came => self.waiting.push((came.id(), class)),
        }
    }

    fn come_many(&mut self, class: Priority, count: usize) {
        (0..count).for_each(|_| self.come(class));
    }

    /// So many of each class run or wait, and no fewer: who has left is replaced.
    fn backlog(&mut self, classes: &[Priority], count: usize) {
        for &class in classes {
            let waiting = self.waiting.iter().filter(|it| it.1 == class).count();
            self.come_many(class, count.saturating_sub(waiting));
        }
    }

    /// The call ends, and whoever has its slot collects it.
    fn end(&mut self, at: usize) {
        let grant = self.running.remove(at);
        self.bench.succeed(self.lane, grant);
        self.collect();
    }

    fn end_one_of(&mut self, class: Priority) {
        let at = self.running.iter().position(|grant| grant.class == class).expect("one runs");
        self.end(at);
    }

    fn collect(&mut self) {
        let Self { bench, lane, waiting, running } = self;
        waiting.retain(|(id, _)| match bench.poll(*lane, *id) {
            Progress::Granted(grant) => {
                running.push(grant);
                false
            }
            _ => true,
        });
    }

    fn held(&self) -> [u32; 3] {
        let mut held = [0; 3];
        self.running.iter().for_each(|grant| held[grant.class.index()] += 1);
        held
    }
}

#[test]
fn lent_slots_come_back_as_calls_end_and_no_call_is_cut() {
    let mut crowd = Crowd::new(sharing(10, SHARES));
    crowd.come_many(Bulk, 20);
    assert_eq!(crowd.held(), [0, 0, 10], "nobody else wants them");
    crowd.come_many(Interactive, 9);
    assert_eq!(crowd.held(), [0, 0, 10]);
    for returned in 1..=5 {
        crowd.end_one_of(Bulk);
        assert_eq!(crowd.held(), [returned, 0, 10 - returned]);
    }
    // Interactive has its five: what is beyond goes by class again.
    crowd.end_one_of(Bulk);
    assert_eq!(crowd.held(), [6, 0, 4]);
    crowd.end_one_of(Bulk);
    crowd.end_one_of(Bulk);
    assert_eq!(crowd.held(), [8, 0, 2]);
    crowd.end_one_of(Bulk);
    assert_eq!(crowd.held(), [8, 0, 2], "bulk keeps its share");
}

#[test]
fn a_class_below_its_share_goes_before_a_higher_one_that_has_its_own() {
    let mut crowd = Crowd::new(sharing(10, SHARES));
    crowd.come_many(Interactive, 15);
    crowd.come_many(Bulk, 4);
    crowd.end_one_of(Interactive);
    crowd.end_one_of(Interactive);
    assert_eq!(crowd.held(), [8, 0, 2]);
    crowd.end_one_of(Interactive);
    assert_eq!(crowd.held(), [8, 0, 2]);
}

#[test]
fn when_the_limit_shrinks_nothing_is_cut_and_bulk_gives_way_first() {
    let mut crowd = Crowd::new(sharing(10, SHARES));
    crowd.backlog(&Priority::ALL, 10);
    for _ in 0..100 {
        crowd.end(0);
        crowd.backlog(&Priority::ALL, 10);
    }
    assert_eq!(crowd.held(), [5, 3, 2]);
    crowd.bench.set_limit(crowd.lane, 4);
    assert_eq!(crowd.held(), [5, 3, 2], "running calls go on");
    for class in [Interactive, Interactive, Normal, Bulk, Interactive, Bulk] {
        crowd.end_one_of(class);
    }
    assert_eq!(crowd.held(), [2, 2, 0]);
    for class in [Interactive, Normal, Normal, Interactive] {
        crowd.end_one_of(class);
        assert_eq!(crowd.held(), [2, 2, 0]);
    }
    crowd.bench.set_limit(crowd.lane, 1);
    crowd.end_one_of(Normal);
    crowd.end_one_of(Normal);
    crowd.end_one_of(Interactive);
    for _ in 0..5 {
        assert_eq!(crowd.held(), [1, 0, 0]);
        crowd.end(0);
    }
}

#[test]
fn the_reserve_goes_before_shares() {
    let mut crowd =
        Crowd::new(LanePolicy { slots: SlotPolicy { limit: 4, reserve: 2 }, ..sharing(4, [0.0, 0.5, 0.5]) });
    crowd.come_many(Normal, 6);
    crowd.come_many(Bulk, 6);
    assert_eq!(crowd.held(), [0, 2, 0]);
    crowd.come_many(Interactive, 2);
    assert_eq!(crowd.held(), [2, 2, 0]);
}

#[test]
fn a_class_without_a_share_gets_a_slot_by_aging() {
    let mut crowd = Crowd::new(LanePolicy { aging_step: Some(SECOND), ..sharing(2, [1.0, 0.0, 0.0]) });
    crowd.backlog(&Priority::ALL, 3);
    for _ in 0..10 {
        crowd.end(0);
        crowd.backlog(&[Interactive], 3);
        assert_eq!(crowd.held(), [2, 0, 0]);
    }
    crowd.bench.wait(3 * SECOND);
    let mut seen = [0; 3];
    for _ in 0..20 {
        crowd.end(0);
        crowd.backlog(&[Interactive], 3);
        seen = [0, 1, 2].map(|at| seen[at] + crowd.held()[at]);
    }
    assert!(seen.iter().all(|&times| times > 0), "{seen:?}");
    assert_eq!(crowd.waiting.iter().filter(|it| it.1 != Interactive).count(), 0);
}

// Somebody of a class with a share comes while another one waits for tokens: who goes first is asked in one way.
#[test]
fn a_newcomer_below_its_share_does_not_wait_behind_one_that_waits_for_tokens_above_its_own() {
    use crate::engine::quota::{FollowHeaders, QuotaPolicy, Tokens};
    let (mut bench, lane) = Bench::of(sharing(4, SHARES));
    let per_minute = [None, Some(600), None, None];
    bench.pool.set_lane_quota(
        lane,
        Some(QuotaPolicy { per_minute, burst: 60 * SECOND, follow_headers: FollowHeaders::Off }),
        bench.now,
    );
    let asking = |input| Asked { tokens: Tokens { input, output: 0 }, ..Asked::default() };
    let mut come = |class, input| {
        let request = Request { asked: asking(input), ..Request::of(class) };
        bench.step(|pool, now, effects| {
            pool.try_acquire(lane, request, now, effects).map_err(|_| {
                let expiry = Expiry::QueueTimeout;
                let ask = Ask { class, tenant: None, arrived_at: now, expires_at: now + 300 * SECOND, expiry };
                pool.enqueue(lane, ask, asking(input), Waker::noop().clone(), now).expect("a place")
            })
        })
    };
    for _ in 0..2 {
        come(Interactive, 200).expect("within budget");
    }
    come(Interactive, 500).expect_err("too much for now");
    come(Normal, 100).expect("below its share");
    come(Interactive, 1).expect_err("behind the other one");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Calls end in random order, and every class has waiters all the time.
    #[test]
    fn with_every_class_backlogged_slots_come_within_one_of_the_shares(
        parts in [1_u32..=100, 0..=100, 0..=100], limit in 1_u32..24, ends in prop::collection::vec(0_usize..1_000, 600),
    ) {
        // An interactive class without a share would have a slot by rule 3.
        let whole = parts.iter().sum::<u32>();
        let parts = parts.map(|part| f64::from(part) / f64::from(whole));
        let mut crowd = Crowd::new(sharing(limit, parts));
        crowd.come_many(Bulk, limit as usize);
        let mut sums = [0.0; 3];
        for (n, end) in ends.iter().enumerate() {
            crowd.backlog(&Priority::ALL, 2);
            crowd.end(end % crowd.running.len());
            let held = crowd.held();
            prop_assert_eq!(held.iter().sum::<u32>(), limit, "work conserving, and never above the limit");
            if n >= 300 {
                sums = [0, 1, 2].map(|at| sums[at] + f64::from(held[at]) / 300.0);
            }
        }
        for (part, mean) in parts.into_iter().zip(sums) {
            let due = part * f64::from(limit);
            prop_assert!((mean - due).abs() <= 1.01, "{mean} instead of {due}: {parts:?} of {limit}");
        }
    }

    #[test]
    fn nobody_waits_for_ever_whatever_the_shares(
        parts in prop::array::uniform3(0_u32..=3), limit in 1_u32..6, ends in prop::collection::vec(0_usize..1_000, 400),
    ) {
        let parts = parts.map(|part| f64::from(part) / 9.0);
        let mut crowd = Crowd::new(LanePolicy { aging_step: Some(5 * SECOND), ..sharing(limit, parts) });
        crowd.backlog(&Priority::ALL, limit as usize + 1);
        let first: Vec<WaiterId> = crowd.waiting.iter().map(|it| it.0).collect();
        for end in ends {
            crowd.backlog(&[Interactive, Normal], 2);
            crowd.bench.wait(SECOND / 2);
            crowd.end(end % crowd.running.len());
        }
        prop_assert!(crowd.waiting.iter().all(|(id, _)| !first.contains(id)));
    }
}
