//! The layer.

use std::sync::Arc;

use http::HeaderName;
use tower_layer::Layer;

use super::answer_rules::{ReadUsage, ReleaseOn};
use super::classify::Classify;
use super::estimate::TokenEstimator;
use super::options::{Options, RequestHead};
use super::service::InflightLimit;
use crate::limiter::Limiter;
use crate::limiter::key::{Kind, LaneKey};
use crate::usage::CachedInput;

/// Makes calls to model APIs wait for a slot of their lane, and holds the slot until the body of the answer ends.
///
/// Goes around any `Service<http::Request<Q>, Response = http::Response<B>>` that is `Clone`. Every service that clones of
/// this layer build shares the one limiter.
///
/// # Order of layers
/// Retries go *outside*, so that each attempt takes its own slot and nobody sleeps in one. A timeout around the upstream
/// call goes *inside*, so that time in the queue is not charged to it. [`CallLayer`](crate::CallLayer) goes outermost.
///
/// ```
/// use std::time::Duration;
/// use tower::ServiceBuilder;
/// use tower_inflight::{CallLayer, InflightLimitLayer, Limiter};
///
/// # let http_client = tower::service_fn(|_: http::Request<String>| async {
/// #     Ok::<_, tower_inflight::BoxError>(http::Response::new(String::new()))
/// # });
/// let limiter = Limiter::builder().max_inflight(6).build()?;
/// let client = ServiceBuilder::new()
///     .layer(CallLayer::new())
///     // .layer(RetryLayer::new(policy))
///     .layer(InflightLimitLayer::new(limiter))
///     .layer(tower::timeout::TimeoutLayer::new(Duration::from_secs(120)))
///     .service(http_client);
/// # let _ = client;
/// # Ok::<(), tower_inflight::ConfigError>(())
/// ```
///
/// # Lanes
/// From the URI and the model named in the path or the body, see [`LaneKey`]. A [`LaneKey`] or [`Model`](crate::Model) in
/// the request's extensions goes first, then [`lane_by`](Self::lane_by). The body is looked at where it lies in memory,
/// and is never changed, copied or consumed.
#[derive(Clone, Debug)]
pub struct InflightLimitLayer {
    pub(crate) limiter: Limiter,
    pub(crate) options: Arc<Options>,
}

impl InflightLimitLayer {
    /// Limits chat-like calls; everything else passes.
    #[must_use]
    pub fn new(limiter: Limiter) -> Self {
        Self { limiter, options: Arc::default() }
    }

    /// Which kinds of calls go through a lane. Default: [`Kind::Chat`] alone.
    #[must_use]
    pub fn limit_kinds(mut self, kinds: impl IntoIterator<Item = Kind>) -> Self {
        Arc::make_mut(&mut self.options).limit_kinds(kinds);
        self
    }

    /// Bodies longer than this many bytes are not searched for their model. Default 64 MiB.
    #[must_use]
    pub fn scan_limit(mut self, bytes: usize) -> Self {
        Arc::make_mut(&mut self.options).scan_limit(bytes);
        self
    }

    /// Chooses lanes by your own rule; where it says `None`, the usual one applies.
    #[must_use]
    pub fn lane_by(mut self, choose: impl Fn(RequestHead<'_>) -> Option<LaneKey> + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.options).lane_by(choose);
        self
    }

    /// Tells outcomes apart by your own rule. Default: [`ProviderClassify`](crate::ProviderClassify).
    #[must_use]
    pub fn classify(mut self, classify: impl Classify) -> Self {
        Arc::make_mut(&mut self.options).answers.classify = Arc::new(classify);
        self
    }

    /// Whether answers are read for their tokens, last events and errors while they pass. Default: [`ReadUsage::On`].
    #[must_use]
    pub fn read_usage(mut self, read: ReadUsage) -> Self {
        Arc::make_mut(&mut self.options).answers.read = read;
        self
    }

    /// Whether tokens out of the provider's cache count as input. Default: [`CachedInput::AsReported`].
    #[must_use]
    pub fn cached_input(mut self, cached: CachedInput) -> Self {
        Arc::make_mut(&mut self.options).answers.cached_input = cached;
        self
    }

    /// When the slot of a stream is free again. Default: [`ReleaseOn::BodyEnd`].
    #[must_use]
    pub fn release_on(mut self, release_on: ReleaseOn) -> Self {
        Arc::make_mut(&mut self.options).answers.release_on = release_on;
        self
    }

    /// Tells the upstream by this header how much of a call's time is left when it is sent, in whole milliseconds. Default:
    /// requests go out with the headers that they came with. Services inside of the layer find the
    /// [`Deadline`](crate::Deadline) in the request's extensions either way.
    ///
    /// ```
    /// use http::HeaderName;
    /// use tower_inflight::{InflightLimitLayer, Limiter};
    ///
    /// let limiter = Limiter::builder().max_inflight(6).build()?;
    /// let layer = InflightLimitLayer::new(limiter).deadline_header(HeaderName::from_static("x-time-left-ms"));
    /// # let _ = layer;
    /// # Ok::<(), tower_inflight::ConfigError>(())
    /// ```
    #[must_use]
    pub fn deadline_header(mut self, name: HeaderName) -> Self {
        Arc::make_mut(&mut self.options).deadline_header = Some(Arc::new(name));
        self
    }

    /// Guesses the tokens of prompts by your own rule, where a [`Quota`](crate::Quota) charges them. Default:
    /// [`BytesOverFour`](crate::BytesOverFour).
    #[must_use]
    pub fn estimate_tokens(mut self, estimator: impl TokenEstimator) -> Self {
        Arc::make_mut(&mut self.options).estimator = Arc::new(estimator);
        self
    }
}

impl From<Limiter> for InflightLimitLayer {
    fn from(limiter: Limiter) -> Self {
        Self::new(limiter)
    }
}

impl<S> Layer<S> for InflightLimitLayer {
    type Service = InflightLimit<S>;

    fn layer(&self, inner: S) -> InflightLimit<S> {
        InflightLimit::with_options(inner, self.limiter.clone(), self.options.clone())
    }
}
