//! Short ways to say what the tests are about.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use tower_inflight::{LaneSnapshot, Limiter};

pub(crate) const JSON: &str = r#"{"model":"acme/smart"}"#;

pub(crate) fn limiter(slots: u32) -> Limiter {
    Limiter::builder().max_inflight(slots).interactive_reserve(0).build().expect("a valid limit")
}

/// The only lane there is.
pub(crate) fn lane(limiter: &Limiter) -> LaneSnapshot {
    let mut lanes = limiter.snapshot().lanes;
    assert_eq!(lanes.len(), 1, "{lanes:?}");
    lanes.remove(0)
}

pub(crate) fn in_flight(limiter: &Limiter) -> u32 {
    limiter.snapshot().lanes.iter().map(|lane| lane.inflight).sum()
}

pub(crate) fn queued(limiter: &Limiter) -> u32 {
    limiter.snapshot().lanes.iter().map(|lane| lane.queued).sum()
}

/// Ended calls by outcome, as `success 2, transport 1`.
pub(crate) fn outcomes(limiter: &Limiter) -> String {
    let outcomes = lane(limiter).outcomes;
    outcomes.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

/// Nothing is left behind, and every call is accounted for.
#[track_caller]
pub(crate) fn assert_idle(limiter: &Limiter) {
    for lane in limiter.snapshot().lanes {
        assert_eq!((lane.inflight, lane.queued), (0, 0), "{lane:?}");
        let ended: u64 = lane.outcomes.values().sum::<u64>() + lane.refused.values().sum::<u64>() + lane.abandoned;
        assert_eq!(lane.offered, ended, "{lane:?}");
    }
}

/// Fails a test that hangs.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("hangs")
}

/// Polls for something that must happen in another task.
pub(crate) async fn eventually(what: &str, mut reached: impl FnMut() -> bool) {
    for _ in 0..30_000 {
        if reached() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("never came: {what}");
}

/// Whether an error of this type is anywhere in the chain.
pub(crate) fn is_caused_by<E: Error + 'static>(error: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(error), |&error| error.source()).any(|error| error.is::<E>())
}

/// Lets this much time pass for every timeout of this runtime, at once. Sockets stay real.
pub(crate) async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}
