//! The queue by its promises. `model` compares it with a naive one.

mod aging;
mod line;
mod model;

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::tenants::ABSENT_TENANTS;
use super::{Ask, Expiry, Found, Left, Queue, WaiterId};
use crate::engine::capacity::ClassSet;
use crate::engine::priority::Priority;
use crate::engine::time::Time;

const STEP: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(1);

/// A queue and the time.
struct Bench {
    queue: Queue,
    now: Time,
}

impl Bench {
    fn new() -> Self {
        Self { queue: Queue::new(Some(STEP)), now: at(1_000_000) }
    }

    fn wait(&mut self, secs: u64) {
        self.now = self.now + Duration::from_secs(secs);
    }

    /// Comes now, and waits for as long as it takes.
    fn come(&mut self, class: Priority) -> WaiterId {
        self.enqueue(class, None, 0, Time::NEVER)
    }

    fn come_of(&mut self, tenant: &str, class: Priority) -> WaiterId {
        self.enqueue(class, Some(tenant), 0, Time::NEVER)
    }

    /// Comes again, having first come `age` seconds ago.
    fn come_back(&mut self, class: Priority, age: u64) -> WaiterId {
        self.enqueue(class, None, age, Time::NEVER)
    }

    fn come_for(&mut self, class: Priority, secs: u64) -> WaiterId {
        let expires_at = self.now + Duration::from_secs(secs);
        self.enqueue(class, None, 0, expires_at)
    }

    fn enqueue(&mut self, class: Priority, tenant: Option<&str>, age: u64, expires_at: Time) -> WaiterId {
        let arrived_at = at(self.now.since_epoch().as_secs() - age);
        let ask = Ask { class, tenant: tenant.map(Arc::from), arrived_at, expires_at, expiry: Expiry::QueueTimeout };
        self.queue.enqueue(ask, Waker::noop().clone(), self.now).0
    }

    /// Grants to the next of these classes, who does not look yet.
    fn grant_in(&mut self, open: ClassSet) -> Option<WaiterId> {
        let next = self.queue.next(open, self.now)?;
        let id = WaiterId { index: next.index, stamp: self.queue.waiters[next.index].stamp };
        self.queue.grant(next, self.now);
        Some(id)
    }

    fn grant(&mut self) -> Option<WaiterId> {
        self.grant_in(ClassSet::ALL)
    }

    fn collect(&mut self, id: WaiterId) -> Found {
        self.queue.collect(id, Waker::noop(), &mut Vec::new())
    }

    fn cancel(&mut self, id: WaiterId) -> Left {
        self.queue.cancel(id).0
    }

    /// Grants to the next, who collects at once.
    fn serve(&mut self) -> Option<WaiterId> {
        let id = self.grant()?;
        assert!(matches!(self.collect(id), Found::Granted { .. }));
        Some(id)
    }

    fn serve_all(&mut self) -> Vec<WaiterId> {
        std::iter::from_fn(|| self.serve()).collect()
    }
}

fn at(secs: u64) -> Time {
    Time::from_epoch(Duration::from_secs(secs))
}
