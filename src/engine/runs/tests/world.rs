//! Random steps, the invariants after each, and lanes with slots of their own around the runs.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Op {
    Start { user: u32, patience: Patience, door: Door },
    Pass(usize),
    Refuse(usize),
    Lend(usize),
    TakeBack(usize),
    End(usize, Ending),
}

fn op() -> impl Strategy<Value = Op> {
    let pick = 0_usize..64;
    prop_oneof![
        5 => (0_u32..5, 0..6, 0..4).prop_map(|(user, reject, asks)| Op::Start {
            user,
            patience: if reject == 0 { Patience::Reject } else { Patience::Wait },
            door: if asks == 0 { Door::Asking } else { Door::Open },
        }),
        3 => pick.clone().prop_map(Op::Pass),
        1 => pick.clone().prop_map(Op::Refuse),
        4 => pick.clone().prop_map(Op::Lend),
        3 => pick.clone().prop_map(Op::TakeBack),
        3 => (pick, prop_oneof![Just(Ending::Finished), Just(Ending::Cancelled)]).prop_map(|(at, how)| Op::End(at, how)),
    ]
}

struct World {
    runs: Plain,
    live: Vec<RunRef>,
}

impl World {
    fn step(&mut self, op: Op) {
        let mut effects = Effects::default();
        let Self { runs, live } = self;
        let pick = |at: usize| (!live.is_empty()).then(|| live[at % live.len()]);
        match op {
            Op::Start { user, patience, door } => {
                let asked = Ask { patience, door, ..ask(user) };
                if let Ok(run) = runs.start(asked, |id| id, Time::ZERO, &mut effects) {
                    live.push(run);
                }
            }
            Op::Pass(at) => {
                if let Some(run) = pick(at) {
                    if runs.pass(run, Time::ZERO, &mut effects).is_err() {
                        runs.end(run, Ending::Refused, Time::ZERO, &mut effects);
                    }
                }
            }
            Op::Refuse(at) => {
                if let Some(run) = pick(at) {
                    if matches!(runs.standing(run), Standing::AtDoor | Standing::Starting) {
                        runs.end(run, Ending::Refused, Time::ZERO, &mut effects);
                    }
                }
            }
            Op::Lend(at) => drop(pick(at).map(|run| runs.lend(run, Time::ZERO, &mut effects))),
            Op::TakeBack(at) => drop(pick(at).map(|run| runs.take_back(run, Time::ZERO, &mut effects))),
            Op::End(at, how) => drop(pick(at).map(|run| runs.end(run, how, Time::ZERO, &mut effects))),
        }
        self.live.retain(|run| self.runs.standing(*run) != Standing::Over);
        self.check();
    }

    fn check(&self) {
        let Runs { limits, counts, entries, .. } = &self.runs;
        let count = |is: fn(Standing) -> bool| self.live.iter().filter(|run| is(self.runs.standing(**run))).count();
        let running = count(|s| matches!(s, Standing::Running { .. } | Standing::Starting));
        let queued = count(|s| matches!(s, Standing::Queued { .. } | Standing::AtDoor));
        let lent = count(|s| s == Standing::Lent);
        assert_eq!([running, queued, lent].map(small), [counts.running, counts.queued, counts.lent]);
        assert_eq!(entries.len(), self.live.len());
        assert!(counts.running <= limits.concurrent);
        assert!(counts.queued + counts.lent <= limits.depth);
        for (_, user) in self.runs.by_user.iter() {
            let user = &self.runs.users[*user];
            assert!(user.queued <= limits.queued_per_user);
            assert!(limits.concurrent_per_user.is_none_or(|most| user.started <= most));
            assert!(user.capped.head().is_none() || !user.has_room(limits), "a run waits for a cap that has room");
        }
        if counts.running < limits.concurrent {
            assert!(
                self.runs.returning.head().is_none() && self.runs.ring.head().is_none(),
                "a free slot, and a waiter"
            );
        }
        if self.runs.returning.head().is_some() {
            assert!(self.runs.holding.head().is_none(), "a slot is kept while somebody wants to come back");
        }
        assert!(self.runs.holding.head().is_none() || self.runs.is_full(), "a slot is kept without need");
        self.check_positions();
    }

    /// Nobody but those before it goes first: places are within the line, and those of first runs differ.
    fn check_positions(&self) {
        let place = |run: &&RunRef| match self.runs.standing(**run) {
            Standing::Queued { reason: QueuedFor::GlobalCap, position } => Some(position),
            _ => None,
        };
        let places: Vec<u32> = self.live.iter().filter_map(|run| place(&run)).collect();
        let most = self.runs.are_returning + small(places.len());
        assert!(places.iter().all(|place| (1..=most).contains(place)), "{places:?}");
        let mut at = self.runs.ring.head();
        let mut expected = self.runs.are_returning;
        while let Some(user) = at {
            expected += 1;
            let first = self.runs.users[user].ready.head().expect("in the ring");
            assert_eq!(self.runs.place(first), (QueuedFor::GlobalCap, expected));
            at = self.runs.users[user].in_ring.next();
        }
    }
}

proptest! {
    #[test]
    fn no_order_of_steps_breaks_a_bound_or_leaves_a_free_slot_unused(
        concurrent in 1_u32..4, per_user in prop::option::of(1_u32..3), depth in 0_u32..6, queued_per_user in 1_u32..4,
        asks_at_start: bool, ops in prop::collection::vec(op(), 0..200),
    ) {
        let limits = Limits { concurrent, concurrent_per_user: per_user, depth, queued_per_user };
        let mut world = World { runs: Plain::new(limits, asks_at_start), live: Vec::new() };
        for op in ops {
            world.step(op);
        }
        for run in world.live.clone() {
            world.step(Op::Pass(world.live.iter().position(|live| *live == run).unwrap_or(0)));
            world.runs.end(run, Ending::Cancelled, Time::ZERO, &mut Effects::default());
            world.live.retain(|live| *live != run);
            world.check();
        }
        prop_assert_eq!(world.runs.counts(), Counts::default());
        prop_assert_eq!((world.runs.users.len(), world.runs.by_id.len()), (0, 0));
    }
}
