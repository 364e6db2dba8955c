//! placeholder docs

mod adapters;
mod config;
mod engine;
mod error;
mod http;
mod limiter;
mod meters;
mod snapshot;
mod sync;
mod trace;

#[cfg(feature = "async-openai")]
pub use self::adapters::async_openai;
#[cfg(feature = "prometheus")]
pub use self::adapters::prometheus;
#[cfg(feature = "reqwest-middleware")]
pub use self::adapters::reqwest_middleware;
pub use self::config::{Aging, ConfigError, LaneOverride, LimitConfig, PoolLimit};
pub use self::engine::outcome::{Outcome, OutcomeKind, Pause, Verdict};
pub use self::engine::priority::{Priority, UnknownPriority};
pub use self::error::{QueueBound, RejectKind, Rejected, Silence, Stalled};
pub use self::http::{
    BodyHints, CallLayer, CallService, Classify, InflightLimit, InflightLimitLayer, Model, PeekBody, Peeked,
    ProviderClassify, RequestHead, ResponseBody, ResponseFuture, SnapshotFuture, SnapshotService,
};
pub use self::limiter::key::{Kind, LaneKey};
pub use self::limiter::{
    Acquire, Admission, Admitted, Call, CallEvent, InCurrentScope, Lane, Limiter, LimiterBuilder, Permit, Scope,
    Scoped, StillInFlight,
};
pub use self::snapshot::{ByPriority, LaneSnapshot, Snapshot};

/// Any error, boxed: what services under this layer fail with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
