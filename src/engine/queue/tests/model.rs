//! Random operations against a list that works everything out anew each time.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::engine::queue::State;

#[derive(Clone, Debug)]
enum Op {
    Enqueue { class: Priority, tenant: u8, age: u64, bound: u64 },
    Grant { open: ClassSet },
    Collect(usize),
    Cancel(usize),
    Lapse,
    Expire,
    Wait(u64),
    SetStep(Option<u64>),
}

fn op() -> impl Strategy<Value = Op> {
    let class = prop::sample::select(&Priority::ALL[..]);
    let age = prop_oneof![3 => Just(0), 2 => 0_u64..200];
    let bound = prop_oneof![Just(300), 1_u64..400];
    let open = prop_oneof![4 => Just(ClassSet::ALL), 1 => Just(ClassSet::INTERACTIVE)];
    prop_oneof![
        8 => (class, 0_u8..4, age, bound)
            .prop_map(|(class, tenant, age, bound)| Op::Enqueue { class, tenant, age, bound }),
        6 => open.prop_map(|open| Op::Grant { open }),
        4 => (0_usize..64).prop_map(Op::Collect),
        2 => (0_usize..64).prop_map(Op::Cancel),
        2 => Just(Op::Lapse),
        1 => Just(Op::Expire),
        4 => prop_oneof![0_u64..3, 0_u64..70].prop_map(Op::Wait),
        1 => prop::option::of(1_u64..90).prop_map(Op::SetStep),
    ]
}

#[derive(Clone, Debug)]
struct Entry {
    id: WaiterId,
    class: Priority,
    tenant: u8,
    arrived_at: Time,
    enqueued_at: Time,
    expires_at: Time,
    effective: u8,
    state: State,
    granted_at: Time,
}

/// Since which operation a line stands in which ring.
type Standing = (u8, usize);

#[derive(Default)]
struct Model {
    entries: Vec<Entry>,
    step: Option<Duration>,
    /// By tenant and own class.
    standing: BTreeMap<(u8, Priority), Standing>,
    /// The operation of a tenant's last grant, by effective class.
    served: BTreeMap<(u8, u8), usize>,
    clock: usize,
}

impl Model {
    fn aged(&self, class: Priority, arrived_at: Time, now: Time) -> u8 {
        let steps = self.step.map_or(0, |step| now.since(arrived_at).as_secs() / step.as_secs());
        (class as u8).saturating_sub(u8::try_from(steps).unwrap_or(u8::MAX))
    }

    fn age(&mut self, now: Time) {
        for at in 0..self.entries.len() {
            let Entry { class, arrived_at, effective, .. } = self.entries[at];
            self.entries[at].effective = effective.min(self.aged(class, arrived_at, now));
        }
        self.stand();
    }

    fn in_line(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| matches!(entry.state, State::InLine | State::Returning))
    }

    fn waiting(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.state != State::Granted)
    }

    fn first(&self, tenant: u8, own: Priority) -> Option<&Entry> {
        self.in_line()
            .filter(|entry| entry.tenant == tenant && entry.class == own)
            .min_by_key(|entry| (entry.arrived_at, entry.id.stamp))
    }

    /// Notes which lines have come to stand in another ring.
    fn stand(&mut self) {
        for tenant in 0..4 {
            for own in Priority::ALL {
                let ring = self.first(tenant, own).map(|first| first.effective);
                let stood = self.standing.get(&(tenant, own)).map(|&(ring, _)| ring);
                match ring {
                    None => drop(self.standing.remove(&(tenant, own))),
                    Some(ring) if stood == Some(ring) => {}
                    Some(ring) => drop(self.standing.insert((tenant, own), (ring, self.clock))),
                }
            }
        }
    }

    /// Since when the tenant has been due in this effective class, by its lines of the open classes.
    fn due_since(&self, tenant: u8, effective: u8, open: ClassSet) -> Option<usize> {
        let served = self.served.get(&(tenant, effective)).copied().unwrap_or(0);
        Priority::ALL
            .into_iter()
            .filter(|own| open.contains(*own))
            .filter_map(|own| self.standing.get(&(tenant, own)).filter(|(ring, _)| *ring == effective))
            .map(|&(_, since)| since.max(served))
            .min()
    }

    /// Nobody in a higher class, nobody of its tenant who came earlier, no tenant whose turn it was before.
    fn check_pick(&self, pick: &Entry, open: ClassSet) -> Result<(), TestCaseError> {
        let open_firsts: Vec<&Entry> = (0..4)
            .flat_map(|tenant| Priority::ALL.map(|own| (tenant, own)))
            .filter(|(_, own)| open.contains(*own))
            .filter_map(|(tenant, own)| self.first(tenant, own))
            .collect();
        for other in open_firsts {
            prop_assert!(other.effective >= pick.effective, "{other:?} stands higher than {pick:?}");
            if other.effective > pick.effective {
                continue;
            }
            if other.tenant == pick.tenant {
                let key = |entry: &Entry| (entry.arrived_at, entry.id.stamp);
                prop_assert!(key(other) >= key(pick), "{other:?} came before {pick:?}");
            }
            let due = |entry: &Entry| self.due_since(entry.tenant, pick.effective, open);
            prop_assert!(due(other) >= due(pick), "it is the turn of {other:?}, not of {pick:?}");
        }
        Ok(())
    }
}

struct Pair {
    bench: Bench,
    model: Model,
}

impl Pair {
    fn apply(&mut self, op: &Op) -> Result<(), TestCaseError> {
        let Self { bench, model } = self;
        model.clock += 1;
        let now = bench.now;
        match *op {
            Op::Enqueue { class, tenant, age, bound } => {
                let expires_at = now + Duration::from_secs(bound);
                let arrived_at = at(now.since_epoch().as_secs() - age);
                model.age(now);
                let effective = model.aged(class, arrived_at, now);
                let before = model.waiting().filter(|entry| entry.effective <= effective).count();
                let name = (tenant > 0).then(|| Arc::from(format!("t{tenant}")));
                let ask = Ask { class, tenant: name, arrived_at, expires_at, expiry: Expiry::QueueTimeout };
                let (id, ahead) = bench.queue.enqueue(ask, Waker::noop().clone(), now);
                prop_assert_eq!(ahead as usize, before);
                let (state, granted_at) = (State::InLine, Time::ZERO);
                let enqueued_at = now;
                model.entries.push(Entry {
                    id,
                    class,
                    tenant,
                    arrived_at,
                    enqueued_at,
                    expires_at,
                    effective,
                    state,
                    granted_at,
                });
            }
            Op::Grant { open } => {
                if model.waiting().next().is_some() {
                    model.age(now);
                }
                let may_go = model.in_line().any(|entry| open.contains(entry.class));
                let Some(id) = bench.grant_in(open) else {
                    prop_assert!(!may_go, "somebody could go");
                    return Ok(());
                };
                let picked = model.entries.iter().position(|entry| entry.id == id).expect("it is known");
                model.check_pick(&model.entries[picked], open)?;
                let entry = &mut model.entries[picked];
                (entry.state, entry.granted_at) = (State::Granted, now);
                model.served.insert((entry.tenant, entry.effective), model.clock);
            }
            Op::Collect(n) if !model.entries.is_empty() => {
                let at = n % model.entries.len();
                let entry = &mut model.entries[at];
                let found = bench.collect(entry.id);
                match entry.state {
                    State::Granted => {
                        let waited = entry.granted_at.since(entry.enqueued_at);
                        let (class, granted_at) = (entry.class, entry.granted_at);
                        prop_assert_eq!(found, Found::Granted { class, waited, granted_at });
                        model.entries.remove(at);
                    }
                    State::Parked => {
                        prop_assert_eq!(found, Found::BackInLine);
                        entry.state = State::Returning;
                    }
                    State::InLine | State::Returning => prop_assert_eq!(found, Found::Waiting),
                }
            }
            Op::Cancel(n) if !model.entries.is_empty() => {
                let entry = model.entries.remove(n % model.entries.len());
                let left = match entry.state {
                    State::Granted => Left::Slot(entry.class),
                    _ => Left::Place,
                };
                prop_assert_eq!(bench.cancel(entry.id), left);
                prop_assert_eq!(bench.collect(entry.id), Found::Gone);
            }
            Op::Lapse => {
                while bench.queue.lapse(LEASE, now).is_some() {}
                let over = |entry: &&mut Entry| entry.state == State::Granted && entry.granted_at + LEASE <= now;
                model.entries.iter_mut().filter(over).for_each(|entry| entry.state = State::Parked);
            }
            Op::Expire => {
                while bench.queue.expire(now).is_some() {}
                model.entries.retain(|entry| entry.state == State::Granted || entry.expires_at > now);
            }
            Op::Wait(secs) => bench.wait(secs),
            Op::SetStep(secs) => {
                model.step = secs.map(Duration::from_secs);
                bench.queue.set_aging_step(model.step);
            }
            Op::Collect(_) | Op::Cancel(_) => {}
        }
        model.stand();
        self.check()
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        let Self { bench: Bench { queue, .. }, model } = self;
        let count = |of: &dyn Fn(&Entry) -> bool| u32::try_from(model.waiting().filter(|entry| of(entry)).count());
        for class in Priority::ALL {
            prop_assert_eq!(Ok(queue.waiting[class.index()]), count(&|entry| entry.class == class));
            let effective = class as u8;
            prop_assert_eq!(Ok(queue.waiting_effective[class.index()]), count(&|entry| entry.effective == effective));
        }
        for tenant in 0..4_u8 {
            let name = (tenant > 0).then(|| Arc::from(format!("t{tenant}")));
            prop_assert_eq!(Ok(queue.waiting_of_tenant(name.as_ref())), count(&|entry| entry.tenant == tenant));
        }
        let expiry = model.waiting().map(|entry| entry.expires_at).min();
        let held = model.entries.iter().filter(|entry| entry.state == State::Granted);
        let lapse = held.map(|entry| entry.granted_at + LEASE).min();
        let due = expiry.into_iter().chain(lapse).min().unwrap_or(Time::NEVER);
        prop_assert_eq!(queue.next_timeout(LEASE), due);
        prop_assert_eq!(queue.oldest(), model.waiting().map(|entry| entry.enqueued_at).min());
        prop_assert_eq!(queue.is_empty(), model.entries.is_empty());
        prop_assert_eq!(queue.waiters.len(), model.entries.len());
        let named = |tenant: &u8| model.entries.iter().any(|entry| entry.tenant == *tenant);
        prop_assert_eq!(queue.by_name.len() - queue.absent, (1..4).filter(named).count());
        prop_assert!(queue.absent <= ABSENT_TENANTS);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::with_cases(cases(4_000)) })]

    #[test]
    fn the_queue_does_what_a_naive_list_does(ops in prop::collection::vec(op(), 1..80)) {
        let model = Model { step: Some(STEP), ..Model::default() };
        let mut pair = Pair { bench: Bench::new(), model };
        for op in &ops {
            pair.apply(op)?;
        }
        while let Some(entry) = pair.model.entries.first() {
            pair.bench.cancel(entry.id);
            pair.model.entries.remove(0);
            pair.model.stand();
            pair.check()?;
        }
        prop_assert!(pair.bench.queue.steps.is_empty() && pair.bench.queue.early.is_empty());
    }
}

fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default)
}
