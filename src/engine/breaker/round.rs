//! The probes of one half-open round.

use std::time::Duration;

use smallvec::SmallVec;

use crate::engine::time::Time;

#[derive(Debug)]
pub(super) struct Round {
    since: Time,
    leases: SmallVec<[Lease; 4]>,
    /// The number of the last probe, from 1.
    last: u32,
    succeeded: u32,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    probe: u32,
    ends_at: Time,
}

impl Round {
    pub(super) fn new(now: Time) -> Self {
        Self { since: now, leases: SmallVec::new(), last: 0, succeeded: 0 }
    }

    /// No more than `probes` are out or have succeeded, so no more are sent than it takes to close the breaker.
    pub(super) fn has_room(&self, probes: u32, now: Time) -> bool {
        let out = self.leases.iter().filter(|lease| now < lease.ends_at).count();
        u32::try_from(out).unwrap_or(u32::MAX).saturating_add(self.succeeded) < probes
    }

    pub(super) fn take(&mut self, timeout: Duration, now: Time) -> u32 {
        self.leases.retain(|lease| now < lease.ends_at);
        self.last = self.last.checked_add(1).unwrap_or(1);
        self.leases.push(Lease { probe: self.last, ends_at: now + timeout });
        self.last
    }

    /// Gives nothing back twice, nor what is overdue.
    pub(super) fn give_back(&mut self, probe: u32) {
        self.leases.retain(|lease| lease.probe != probe);
    }

    /// How many have succeeded with this one.
    pub(super) fn succeed(&mut self) -> u32 {
        self.succeeded += 1;
        self.succeeded
    }

    pub(super) fn next_overdue(&self, now: Time) -> Time {
        let due = self.leases.iter().map(|lease| lease.ends_at);
        due.filter(|&ends_at| ends_at > now).min().unwrap_or(Time::NEVER)
    }

    /// Nothing came and nothing is out.
    pub(super) fn is_untried_since(&self, now: Time, length: Duration) -> bool {
        let last = self.leases.iter().map(|lease| lease.ends_at).max().unwrap_or(self.since).max(self.since);
        now >= last + length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn at(secs: u64) -> Time {
        Time::from_epoch(Duration::from_secs(secs))
    }

    #[test]
    fn probes_that_never_come_back_take_no_memory() {
        let mut round = Round::new(at(0));
        for n in 0..1_000 {
            round.take(TIMEOUT, at(n * 10));
        }
        assert_eq!(round.leases.len(), 1);
    }

    #[test]
    fn room_comes_back_with_the_first_that_is_overdue() {
        let mut round = Round::new(at(0));
        for secs in [0, 3, 6] {
            round.take(TIMEOUT, at(secs));
        }
        assert_eq!(round.next_overdue(at(6)), at(10));
        assert!(!round.has_room(3, at(9)) && round.has_room(3, at(10)));
        assert_eq!(round.next_overdue(at(10)), at(13));
        assert_eq!(round.next_overdue(at(16)), Time::NEVER);
    }
}
