//! Deadlines that cannot be kept: how often what is foreseen comes true.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex};
use std::task::Wake;

use super::*;
use crate::engine::priority::Priority::{Bulk, Default as Normal, Interactive};
use crate::engine::quota::{FollowHeaders, QuotaPolicy, Tokens};

/// A load that does not change: calls come at random moments, and their lengths and deadlines are random too.
#[derive(Clone, Copy)]
struct Load {
    policy: LanePolicy,
    per_second: f64,
    /// Of a hundred, by class.
    mix: [u32; 3],
    /// Seconds, at least and at most.
    held: (f64, f64),
    deadline: (f64, f64),
    tokens: Option<QuotaPolicy>,
}

/// A call, before it is known how it goes.
#[derive(Clone, Copy)]
struct Plan {
    at: Time,
    class: Priority,
    held: Duration,
    deadline: Time,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// It found a slot at once.
    SentAtOnce,
    Refused,
    Expired,
    /// It waited, and ended at this moment.
    Ended(Time),
}

struct Dice(u64);

impl Dice {
    #[expect(clippy::cast_precision_loss, reason = "53 bits")]
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, (least, most): (f64, f64)) -> Duration {
        Duration::from_secs_f64(least + (most - least) * self.unit())
    }
}

const CALL: Tokens = Tokens { input: 100, output: 0 };

impl Load {
    fn steady(per_second: f64) -> Self {
        Self { policy: policy(8), per_second, mix: [0, 100, 0], held: (1.0, 3.0), deadline: (4.0, 64.0), tokens: None }
    }

    /// Ten minutes of it.
    fn plans(&self, start: Time, seed: u64) -> Vec<Plan> {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut at = start;
        let mut plans = Vec::new();
        while at < start + 600 * SECOND {
            at = at + Duration::from_secs_f64(-dice.unit().max(1e-9).ln() / self.per_second);
            let rolled = dice.unit() * 100.0;
            let class = match rolled {
                it if it < f64::from(self.mix[0]) => Interactive,
                it if it < f64::from(self.mix[0] + self.mix[1]) => Normal,
                _ => Bulk,
            };
            let held = dice.between(self.held);
            plans.push(Plan { at, class, held, deadline: at + dice.between(self.deadline) });
        }
        plans
    }

    /// How each of them goes, up to the end of `watched` if there is one, which is let in whatever is foreseen of it.
    fn run(&self, plans: &[Plan], watched: Option<usize>) -> Vec<Option<Fate>> {
        let (mut bench, lane) = Bench::of(self.policy);
        bench.pool.set_lane_quota(lane, self.tokens, bench.now);
        let mut fates = vec![None; plans.len()];
        let rung = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = std::collections::HashMap::new();
        let mut running: BinaryHeap<Reverse<(Time, usize)>> = BinaryHeap::new();
        let mut grants = std::collections::HashMap::new();
        let mut next = 0;
        while watched.is_none_or(|watched| fates[watched].is_none()) {
            let arrival = plans.get(next).map_or(Time::NEVER, |plan| plan.at);
            let end = running.peek().map_or(Time::NEVER, |Reverse((at, _))| *at);
            let due = bench.pool.poll_timeout().unwrap_or(Time::NEVER);
            bench.now = arrival.min(end).min(due);
            if bench.now == Time::NEVER {
                break;
            }
            if end == bench.now {
                let Reverse((at, number)) = running.pop().expect("one ends");
                let (grant, has_waited) = grants.remove(&number).expect("it runs");
                fates[number] = Some(if has_waited { Fate::Ended(at) } else { Fate::SentAtOnce });
                bench.succeed(lane, grant);
            } else if arrival == bench.now {
                let plan = plans[next];
                let deadline = if watched == Some(next) { Time::NEVER } else { plan.deadline };
                let waker = Arc::new(Bell { number: next, rung: rung.clone() }).into();
                match bench.come_foreseen(lane, plan.class, deadline, waker) {
                    Foretold::Sent(grant) => {
                        grants.insert(next, (grant, false));
                        running.push(Reverse((plan.at + plan.held, next)));
                    }
                    Foretold::Queued(id) => drop(waiting.insert(next, id)),
                    Foretold::Refused => fates[next] = Some(Fate::Refused),
                }
                next += 1;
            } else {
                bench.tick();
            }
            loop {
                let effects = std::mem::take(&mut bench.effects);
                effects.wakes.into_iter().for_each(Waker::wake);
                let woken = std::mem::take(&mut *rung.lock().unwrap());
                if woken.is_empty() {
                    break;
                }
                for number in woken {
                    let Some(id) = waiting.remove(&number) else { continue };
                    match bench.poll(lane, id) {
                        Progress::Granted(grant) => {
                            grants.insert(number, (grant, true));
                            running.push(Reverse((bench.now + plans[number].held, number)));
                        }
                        Progress::Gone => fates[number] = Some(Fate::Expired),
                        other => panic!("woken for nothing: {other:?}"),
                    }
                }
            }
        }
        fates
    }

    /// How many of the refused would have made it, and how many of those who waited did not.
    fn judge(&self, seed: u64) -> Judged {
        let start = Bench::new(0).now;
        let plans = self.plans(start, seed);
        let fates = self.run(&plans, None);
        // The first two minutes are for getting to know the lane.
        let judged = |number: &usize| plans[*number].at > start + 120 * SECOND;
        let numbers = || (0..plans.len()).filter(judged);
        let refused: Vec<usize> = numbers().filter(|&number| fates[number] == Some(Fate::Refused)).collect();
        let is_late = |number: &usize| match fates[*number] {
            Some(Fate::Ended(at)) => Some(at > plans[*number].deadline),
            Some(Fate::Expired) => Some(true),
            _ => None,
        };
        let waited: Vec<bool> = numbers().filter_map(|number| is_late(&number)).collect();
        let sampled: Vec<usize> = refused.iter().copied().step_by(refused.len() / 40 + 1).collect();
        let would_have_made_it = |number: &&usize| {
            let fates = self.run(&plans[..(**number + 2_000).min(plans.len())], Some(**number));
            matches!(fates[**number], Some(Fate::Ended(at)) if at <= plans[**number].deadline)
        };
        Judged {
            refused: refused.len(),
            sampled: sampled.len(),
            wrongly_refused: sampled.iter().filter(would_have_made_it).count(),
            waited: waited.len(),
            late: waited.iter().filter(|&&late| late).count(),
        }
    }
}

#[derive(Debug)]
struct Judged {
    refused: usize,
    /// Of the refused, those that were tried once more, and how many of these made it.
    sampled: usize,
    wrongly_refused: usize,
    waited: usize,
    late: usize,
}

#[expect(clippy::cast_precision_loss, reason = "a few thousand calls")]
fn part(of: usize, all: usize) -> f64 {
    of as f64 / all.max(1) as f64
}

struct Bell {
    number: usize,
    rung: Arc<Mutex<Vec<usize>>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.lock().unwrap().push(self.number);
    }
}

enum Foretold {
    Sent(Grant),
    Queued(WaiterId),
    Refused,
}

impl Bench {
    fn come_foreseen(&mut self, lane: LaneId, class: Priority, deadline: Time, waker: Waker) -> Foretold {
        let asked = Asked { tokens: CALL, ..Asked::default() };
        let request = Request { class, asked, deadline };
        self.step(|pool, now, effects| match pool.try_acquire(lane, request, now, effects) {
            Ok(grant) => Foretold::Sent(grant),
            Err(_) => match pool.foresee_miss(lane, request, now, now) {
                Some(_) => Foretold::Refused,
                None => {
                    let ask =
                        Ask { class, tenant: None, arrived_at: now, expires_at: deadline, expiry: Expiry::Deadline };
                    Foretold::Queued(pool.enqueue(lane, ask, asked, waker, now).expect("a place").id)
                }
            },
        })
    }
}

/// Calls that come faster than they can be served, with as little as four and as much as 64 seconds.
#[test]
fn under_a_steady_load_at_most_one_in_twenty_goes_otherwise_than_foreseen() {
    let base = Load::steady(5.2);
    let requests = QuotaPolicy {
        per_minute: [Some(120), None, None, None],
        burst: 10 * SECOND,
        follow_headers: FollowHeaders::Off,
    };
    let loads = [
        ("one class", base),
        ("one slot", Load { policy: policy(1), per_second: 0.7, ..base }),
        ("three classes", Load { mix: [10, 20, 70], policy: reserving(1, 8), ..base }),
        ("short of tokens", Load { tokens: Some(requests), ..Load::steady(3.0) }),
    ];
    let (mut wrongly, mut sampled) = (0, 0);
    for (name, load) in loads {
        let judged = load.judge(1);
        println!("{name}: {judged:?}");
        assert!(judged.refused >= 50 && judged.waited >= 200, "{name} proves nothing: {judged:?}");
        assert!(part(judged.late, judged.waited) <= 0.05, "{name}: {judged:?}");
        wrongly += judged.wrongly_refused;
        sampled += judged.sampled;
    }
    assert!(part(wrongly, sampled) <= 0.05, "{wrongly} of {sampled} would have made it");
}
