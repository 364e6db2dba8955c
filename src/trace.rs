//! The same facts for `tracing`, if the feature asks for them.

use std::time::Duration;

use crate::engine::outcome::Outcome;
use crate::engine::priority::Priority;
use crate::engine::runs::{Fact, RunId};
use crate::engine::totals::Reason;
use crate::limiter::LimitChange;
use crate::limiter::key::LaneKey;

#[cfg(feature = "tracing")]
mod emit {
    use super::{Duration, Fact, LaneKey, LimitChange, Outcome, Priority, Reason, RunId};
    use crate::engine::change::ChangeKind;

    pub(crate) fn run(id: RunId, fact: Fact) {
        tracing::debug!(target: "tower_inflight", run = %id, ?fact, "run");
    }

    pub(crate) fn queued(lane: &LaneKey, priority: Priority, ahead: u32) {
        tracing::debug!(target: "tower_inflight", %lane, %priority, ahead, "queued");
    }

    pub(crate) fn granted(lane: &LaneKey, priority: Priority, waited: Duration) {
        tracing::debug!(target: "tower_inflight", %lane, %priority, ?waited, "granted");
    }

    pub(crate) fn refused(lane: &LaneKey, reason: Reason) {
        tracing::info!(target: "tower_inflight", %lane, reason = reason.as_str(), "refused");
    }

    pub(crate) fn assumed(lane: &LaneKey, max_output: u32) {
        tracing::warn!(
            target: "tower_inflight", %lane, max_output,
            "calls do not say how long their answers may be: this many tokens are charged for each"
        );
    }

    pub(crate) fn abandoned(lane: &LaneKey) {
        tracing::debug!(target: "tower_inflight", %lane, "abandoned");
    }

    pub(crate) fn changed(change: &LimitChange<'_>) {
        let LimitChange { subject, kind, cause } = change;
        match kind {
            ChangeKind::Limit { .. } | ChangeKind::Pause { .. } | ChangeKind::Breaker { .. } => {
                tracing::info!(target: "tower_inflight", %subject, %cause, "{kind}");
            }
            ChangeKind::Clamped { .. } | ChangeKind::ControllerPanicked => {
                tracing::warn!(target: "tower_inflight", %subject, %cause, "{kind}");
            }
        }
    }

    pub(crate) fn settled(lane: &LaneKey, outcome: Outcome, held: Duration) {
        tracing::debug!(target: "tower_inflight", %lane, outcome = outcome.as_str(), ?held, "settled");
    }
}

#[cfg(not(feature = "tracing"))]
mod emit {
    use super::{Duration, Fact, LaneKey, LimitChange, Outcome, Priority, Reason, RunId};

    pub(crate) fn run(_: RunId, _: Fact) {}
    pub(crate) fn queued(_: &LaneKey, _: Priority, _: u32) {}
    pub(crate) fn granted(_: &LaneKey, _: Priority, _: Duration) {}
    pub(crate) fn refused(_: &LaneKey, _: Reason) {}
    pub(crate) fn assumed(_: &LaneKey, _: u32) {}
    pub(crate) fn abandoned(_: &LaneKey) {}
    pub(crate) fn changed(_: &LimitChange<'_>) {}
    pub(crate) fn settled(_: &LaneKey, _: Outcome, _: Duration) {}
}

pub(crate) use emit::{abandoned, assumed, changed, granted, queued, refused, run, settled};
