//! The service that an [`InflightLimitLayer`](crate::InflightLimitLayer) builds.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::future::ResponseFuture;
use super::options::{Options, RequestHead};
use super::peek_body::PeekBody;
use super::{InflightLimitLayer, ResponseBody};
use crate::BoxError;
use crate::limiter::Limiter;

/// Makes each call wait for a slot of its lane. Built by [`InflightLimitLayer`], where it is described.
///
/// # Readiness
/// Always ready, and holds nothing while it is: the lane is known only once the request is. The inner service is driven
/// ready after the grant, on the clone that is then called. So `load_shed` outside of it never sheds; use
/// [`Admission::Reject`](crate::Admission::Reject) or `max_queue = 0` for that. While the limiter is off, it is ready when
/// the inner service is.
///
/// # Errors
/// [`Rejected`](crate::Rejected) and [`Stalled`](crate::Stalled) are ours; errors of the inner service pass through as
/// they are.
///
/// ```
/// use http::Request;
/// use tower_inflight::{InflightLimitLayer, Limiter};
/// use tower_layer::Layer;
///
/// let limiter = Limiter::builder().max_inflight(6).build()?;
/// let service = InflightLimitLayer::new(limiter).layer(tower::service_fn(|request: Request<String>| async move {
///     Ok::<_, std::io::Error>(http::Response::new(request.into_body()))
/// }));
/// # let _ = service;
/// # Ok::<(), tower_inflight::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct InflightLimit<S> {
    inner: S,
    /// `inner` was driven ready for the next call: the limiter was off.
    is_readied: bool,
    limiter: Limiter,
    options: Arc<Options>,
}

impl<S> InflightLimit<S> {
    /// Wraps `inner` with the defaults of [`InflightLimitLayer`].
    #[must_use]
    pub fn new(inner: S, limiter: Limiter) -> Self {
        tower_layer::Layer::layer(&InflightLimitLayer::new(limiter), inner)
    }

    pub(super) fn with_options(inner: S, limiter: Limiter, options: Arc<Options>) -> Self {
        Self { inner, is_readied: false, limiter, options }
    }

    /// The limiter that decides.
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }
}

/// Readiness is not cloned: a clone of `inner` has none.
impl<S: Clone> Clone for InflightLimit<S> {
    fn clone(&self) -> Self {
        Self::with_options(self.inner.clone(), self.limiter.clone(), self.options.clone())
    }
}

impl<S, Q, B> Service<Request<Q>> for InflightLimit<S>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    Q: PeekBody,
    B: Body,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<B>>;
    type Error = BoxError;
    type Future = ResponseFuture<S, Q, B>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.limiter.is_enabled() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.inner.poll_ready(cx)).map_err(Into::into)?;
        self.is_readied = true;
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let is_readied = std::mem::take(&mut self.is_readied);
        if is_readied && !self.limiter.is_enabled() {
            return ResponseFuture::called(self.inner.call(request));
        }
        let clone = self.inner.clone();
        // One that was readied is the one to call, also if the limiter came on or off since.
        let inner = if is_readied { std::mem::replace(&mut self.inner, clone) } else { clone };
        if !self.limiter.is_enabled() {
            return ResponseFuture::passing(inner, request);
        }
        let acquire = self.options.acquire(&self.limiter, RequestHead::of(&request), || request.body().peek());
        let Options { answers, deadline_header, .. } = &*self.options;
        ResponseFuture::waiting(inner, request, acquire, answers.clone(), deadline_header.clone())
    }
}
