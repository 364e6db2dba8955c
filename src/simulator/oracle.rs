//! A limit that knows the gateway.

use std::time::Duration;

use super::agenda::secs;
use super::check::{LEAST_EVERY_S, LONGEST_S};
use super::scenario::{Change, Scenario};
use crate::engine::controller::{Controller, Mark, Sample, Sent};

/// Allows its share of the gateway's capacity at every moment, and does as `Retry-After` says: what others are measured
/// against.
///
/// ```
/// use tower_inflight::controller::Controller;
/// use tower_inflight::simulator::{Gateway, Load, Oracle, Scenario};
///
/// let gateway = Gateway { slots: 12, ..Gateway::default() };
/// let scenario = Scenario::new(gateway, Load::Open { calls_per_s: 2.0 });
/// assert_eq!(Oracle::new(&scenario).limit(), 12);
/// ```
#[derive(Clone, Debug)]
pub struct Oracle {
    limit: u32,
    /// Latest first.
    later: Vec<(Duration, u32)>,
    paused_until: Option<Duration>,
}

impl Oracle {
    /// The oracle of one client of `scenario`.
    #[must_use]
    pub fn new(scenario: &Scenario) -> Self {
        let mut gateway = scenario.gateway.clone();
        let share = |capacity: u32| (capacity / scenario.clients.count.max(1)).max(1);
        let limit = share(gateway.capacity());
        let mut later = Vec::new();
        for (at_s, change) in timeline(scenario) {
            change.apply(&mut gateway);
            later.push((secs(at_s), share(gateway.capacity())));
        }
        later.reverse();
        Self { limit, later, paused_until: None }
    }

    fn look_up(&mut self, now: Duration) {
        while let Some(&(_, limit)) = self.later.last().filter(|(at, _)| *at <= now) {
            self.limit = limit;
            self.later.pop();
        }
    }
}

impl Controller for Oracle {
    fn limit(&self) -> u32 {
        self.limit
    }

    fn paused_until(&self) -> Option<Duration> {
        self.paused_until
    }

    fn on_sent(&mut self, sent: &Sent) -> Mark {
        self.look_up(sent.at);
        Mark::default()
    }

    fn on_end(&mut self, sample: &Sample) {
        self.look_up(sample.ended_at);
        let pause = sample.retry_after.map(|after| sample.ended_at + after);
        self.paused_until = self.paused_until.max(pause);
    }
}

/// The changes of a scenario in order, repeated ones as often as they come.
pub(super) fn timeline(scenario: &Scenario) -> Vec<(f64, &Change)> {
    let mut timeline = Vec::new();
    for change in &scenario.changes {
        let mut at_s = change.at_s;
        while at_s < scenario.runs_s.min(LONGEST_S) {
            timeline.push((at_s, change));
            let Some(every_s) = change.every_s.filter(|every_s| *every_s >= LEAST_EVERY_S) else { break };
            at_s += every_s;
        }
    }
    timeline.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    timeline
}
