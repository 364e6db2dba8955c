//! What waits in the benches: a mix of classes and tenants, on a limit of 8.

#![allow(dead_code, reason = "each bench uses a part of this")]

use std::sync::Arc;

use tower_inflight::{Call, Lane, LaneKey, LimitConfig, Limiter, Priority, Quota};

pub(crate) const LIMIT: usize = 8;

/// Tenants within each class.
const TENANTS: usize = 16;

/// A lane with [`LIMIT`] slots and room for everybody.
pub(crate) fn lane() -> Lane {
    lane_of(LimitConfig::default())
}

/// The same with a budget per minute, which no bench uses up.
pub(crate) fn metered() -> Lane {
    let mut config = LimitConfig::default();
    config.quota = Some(Quota {
        requests_per_minute: Some(1_000_000_000),
        tokens_per_minute: Some(1_000_000_000_000),
        ..Quota::default()
    });
    lane_of(config)
}

fn lane_of(mut config: LimitConfig) -> Lane {
    config.max_inflight = u32::try_from(LIMIT).expect("a small limit");
    config.max_queue = 1_000_000;
    config.max_queue_total = 1_000_000;
    let limiter = Limiter::builder().config(config).build().expect("a good configuration");
    limiter.lane(&LaneKey::new("https://gw.example/v1", "acme/smart")).expect("the limiter is on")
}

/// The calls of so many waiters. A name of a tenant is made once, as a server would.
pub(crate) fn calls(count: usize) -> Vec<Call> {
    let tenants: Vec<Arc<str>> = (0..TENANTS).map(|n| Arc::from(format!("tenant-{n}"))).collect();
    (0..count).map(|n| Call::from(class(n)).with_tenant(tenants[tenant(n)].clone())).collect()
}

pub(crate) fn class(n: usize) -> Priority {
    Priority::ALL[n % Priority::ALL.len()]
}

pub(crate) fn tenant(n: usize) -> usize {
    n / Priority::ALL.len() % TENANTS
}
