//! A tower layer that makes calls to model APIs wait their turn, in a bounded, prioritised queue that can be seen, instead
//! of sending them all and letting them time out and retry together.
//!
//! ```text
//!   your code ─▶ CallLayer ─▶ retry ─▶ InflightLimitLayer ─▶ timeout ─▶ HTTP client ─▶ gateway
//!                                            │      ▲
//!                          lane of the call  ▼      │  slot back: body ended, failed or dropped
//!                                      ┌─────────────────────┐
//!                                      │ interactive ▓       │
//!                                      │ default     ▓▓▓     │  ▶ ▶ ▶  at most `max_inflight` at once
//!                                      │ bulk        ▓▓▓▓▓▓▓ │
//!                                      └─────────────────────┘
//! ```
//!
//! A *lane* is an endpoint and a model on it, found in the request. A call takes a *slot* of its lane before it is sent and
//! holds it until the body of the answer has ended: a token stream occupies the upstream for as long as it runs, not until
//! its headers come. Interactive calls go first, nobody starves, nothing leaks.
//!
//! # When not to use it
//! - To share a limit between processes: this one counts what its own process sends.
//! - As a server-side limit: callers of a server do not wait in its memory for minutes.
//! - For a cap on requests per minute alone: use a rate limiter. A [`Quota`] is for providers that limit tokens as well.
//!
//! # Start
//!
//! ```
//! use std::time::Duration;
//! use tower::ServiceBuilder;
//! use tower_inflight::{CallLayer, InflightLimitLayer, Limiter, Priority};
//!
//! # let http_client = tower::service_fn(|_: http::Request<String>| async {
//! #     Ok::<_, tower_inflight::BoxError>(http::Response::new(String::new()))
//! # });
//! // One limiter per process, shared by every client.
//! let limiter = Limiter::builder()
//!     .max_inflight(6)
//!     .interactive_reserve(1)
//!     .queue_timeout(Duration::from_secs(300))
//!     .build()?;
//!
//! let client = ServiceBuilder::new()
//!     .layer(CallLayer::new())                        // age, class, tenant and deadline survive retries
//!     // .layer(RetryLayer::new(policy))              // outside: each attempt takes its own slot
//!     .layer(InflightLimitLayer::new(limiter.clone()))
//!     .service(http_client);
//!
//! # #[tokio::main(flavor = "current_thread")] async fn run<C>(client: C) -> Result<(), tower_inflight::BoxError>
//! # where C: tower::Service<http::Request<String>, Error = tower_inflight::BoxError>,
//! # {
//! # use tower::ServiceExt;
//! let request = http::Request::post("https://gw.example/v1/chat/completions")
//!     .body(r#"{"model":"acme/smart","messages":[]}"#.to_owned())?;
//! let response = Priority::Interactive.scope(client.oneshot(request)).await?;
//! # Ok(()) }
//! # run(client)?;
//! # Ok::<(), tower_inflight::BoxError>(())
//! ```
//!
//! # Limits
//! [`LimitConfig`] has all of them, with their defaults, and reads from files. A number where somebody promised one, as
//! above; [`adaptive`](LimiterBuilder::adaptive) where nobody knows: see [`controller`]. A [`PoolLimit`] is over all models of
//! an endpoint, a [`Quota`] is for requests and tokens per minute, charged with the slot and put right by the usage that
//! the answer reports. A [`BreakerConfig`] keeps calls from an upstream that is broken, a [`RetryBudget`] bounds the retries.
//!
//! # Runs
//! For agents, whose runs make many calls: a [`RunQueue`] gives each run its number, its place in line and a way to cancel
//! it at once, and lends its slot while its own call waits for a lane. [`QueueAwareRouter`] goes round a busy lane.
//!
//! # Ways in
//!
//! | client | how | feature |
//! |---|---|---|
//! | any tower service over [`http`](::http), hyper-util's client | [`InflightLimitLayer`] | |
//! | reqwest-middleware | `reqwest_middleware::InflightLimitMiddleware` | `reqwest-middleware` |
//! | async-openai | `async_openai::service` | `async-openai` |
//! | anything else | [`Limiter::acquire`], and [`UsageTap`] for the tokens | |
//! | several places that are as good as each other | [`QueueAwareRouter`] outside of the layer | |
//! | a place that is second best | [`FallbackLayer`] outside of the layer | |
//! | runs that make many calls | [`RunQueue::start`] | |
//!
//! # Features
//!
//! None is on by default.
//!
//! | feature | adds |
//! |---|---|
//! | `reqwest-middleware` | a `Middleware` for reqwest-middleware 0.5 (reqwest 0.13) |
//! | `async-openai` | a service for async-openai 0.43 |
//! | `prometheus` | buckets and descriptions for metrics-exporter-prometheus 0.18 |
//! | `simulator` | a modelled gateway in virtual time, to try controllers on |
//! | `tiktoken` | `Tiktoken`, which counts the tokens of prompts as OpenAI's models do |
//! | `tracing` | events on the facts of each call |
//!
//! # Seeing it
//! Metrics go through the [`metrics`] facade: install a recorder before the first call. [`Limiter::snapshot`]
//! gives the state of every lane, [`SnapshotService`] serves it, [`Admitted`] in a response's extensions says what one call
//! went through, and [`Call::with_listener`] hears of it as it happens, with the [`Usage`] that its answer reported.
//! [`LimiterBuilder::on_change`] hears of every change of a limit and of every pause, [`RunQueue::subscribe`] of all runs.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod adapters;
mod config;
pub mod controller;
mod engine;
mod error;
mod fallback;
mod http;
mod limiter;
mod meters;
mod route;
mod runs;
#[cfg(feature = "simulator")]
#[cfg_attr(docsrs, doc(cfg(feature = "simulator")))]
pub mod simulator;
mod snapshot;
mod sync;
mod trace;
mod usage;

#[cfg(feature = "async-openai")]
pub use self::adapters::async_openai;
#[cfg(feature = "prometheus")]
pub use self::adapters::prometheus;
#[cfg(feature = "reqwest-middleware")]
pub use self::adapters::reqwest_middleware;
pub use self::config::{
    Aging, BreakerConfig, BudgetChecks, ConfigError, GrpcThrottling, LaneOverride, Limit, LimitConfig, PoolLimit,
    Quota, RetryBudget, RetryRatio, RunConfig, Shares, SreThrottling,
};
pub use self::engine::breaker::BreakerState;
pub use self::engine::change::{Cause, ChangeKind};
pub use self::engine::forecast::PredictDeadlines;
pub use self::engine::outcome::{Outcome, OutcomeKind, Pause, Verdict};
pub use self::engine::priority::{Priority, UnknownPriority};
pub use self::engine::quota::{Dimension, FollowHeaders, WhenShort};
pub use self::engine::runs::{QueuedFor, RunBound, RunId, RunStatus};
pub use self::error::{QueueBound, RejectKind, Rejected, Silence, Stalled};
pub use self::fallback::{Fallback, FallbackFuture, FallbackLayer};
#[cfg(feature = "tiktoken")]
#[cfg_attr(docsrs, doc(cfg(feature = "tiktoken")))]
pub use self::http::Tiktoken;
pub use self::http::{
    Abandoned, BodyHints, BytesOverFour, CallLayer, CallService, Classify, Deadline, InflightLimit, InflightLimitLayer,
    Model, PeekBody, Peeked, ProviderClassify, ReadUsage, Relay, RelayBody, ReleaseOn, RequestHead, ResponseBody,
    ResponseFuture, RunStatsService, SnapshotFuture, SnapshotService, TokenEstimator, bounded_relay,
};
pub use self::limiter::key::{Kind, LaneKey};
pub use self::limiter::{
    Acquire, Admission, Admitted, Call, CallEvent, InCurrentScope, Lane, LimitChange, Limiter, LimiterBuilder, Permit,
    Scope, Scoped, StillInFlight, Subject,
};
pub use self::route::{Candidate, QueueAwareRouter, RewriteBody, RouteError, RouteFuture, Routing};
pub use self::runs::{
    Backpressure, Budget, BudgetAnswer, BudgetAsk, BudgetError, BudgetFault, BudgetMoment, BudgetRefused, Once, Run,
    RunEvent, RunEvents, RunHandle, RunNotice, RunNotices, RunOver, RunQueue, RunQueueBuilder, RunStats, StartError,
    StartRun, TokenBudget, UnknownRun, UserRuns,
};
pub use self::snapshot::{ByPriority, Condition, LaneSnapshot, LastChange, PoolSnapshot, QuotaSnapshot, Snapshot};
pub use self::usage::{CachedInput, Reading, Usage, UsageTap};

/// Any error, boxed: what services under this layer fail with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

// Its examples show every adapter.
#[cfg(all(doctest, feature = "reqwest-middleware", feature = "async-openai"))]
#[doc = include_str!("../README.md")]
struct Readme;
