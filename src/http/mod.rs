//! The layer: finds the lane of a request, waits for a slot, holds it until the body of the response ends.

pub(crate) mod answer;
pub(crate) mod answer_rules;
mod body;
mod call_layer;
mod classify;
pub(crate) mod deadline;
pub(crate) mod error_body;
mod estimate;
mod future;
mod guard;
mod hangup;
pub(crate) mod held;
mod lane_key;
mod layer;
mod model_scan;
pub(crate) mod options;
mod peek_body;
mod relay;
mod remaining;
pub(crate) mod retry_after;
mod service;
mod telemetry;
mod terminal;
#[cfg(feature = "tiktoken")]
mod tiktoken;
mod watch;

pub use self::answer_rules::{ReadUsage, ReleaseOn};
pub use self::body::ResponseBody;
pub use self::call_layer::{CallLayer, CallService};
pub use self::classify::{BodyHints, Classify, ProviderClassify};
pub use self::deadline::Deadline;
pub use self::estimate::{BytesOverFour, TokenEstimator};
pub use self::future::ResponseFuture;
pub use self::layer::InflightLimitLayer;
pub(crate) use self::model_scan::model_span;
pub use self::options::{Model, RequestHead};
pub use self::peek_body::{PeekBody, Peeked};
pub use self::relay::{Abandoned, Relay, RelayBody, bounded_relay};
pub use self::service::InflightLimit;
pub use self::telemetry::{RunStatsService, SnapshotFuture, SnapshotService};
#[cfg(feature = "tiktoken")]
pub use self::tiktoken::Tiktoken;
