//! placeholder docs

mod config;
mod engine;
mod error;
mod limiter;
mod meters;
mod snapshot;
mod sync;
mod trace;

pub use self::config::{Aging, ConfigError, LaneOverride, LimitConfig, PoolLimit};
pub use self::engine::outcome::{Outcome, OutcomeKind, Pause, Verdict};
pub use self::engine::priority::{Priority, UnknownPriority};
pub use self::error::{QueueBound, RejectKind, Rejected, Silence, Stalled};
pub use self::limiter::key::{Kind, LaneKey};
pub use self::limiter::{
    Acquire, Admission, Admitted, Call, CallEvent, InCurrentScope, Lane, Limiter, LimiterBuilder, Permit, Scope,
    Scoped, StillInFlight,
};
pub use self::snapshot::{ByPriority, LaneSnapshot, Snapshot};
