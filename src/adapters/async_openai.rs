//! For [`async_openai`] clients, through their `with_http_service`.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_openai::error::OpenAIError;
use async_openai::middleware::HttpRequestFactory;
use http::Extensions;
use reqwest::{Client, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::reqwest::{Failure, Sent, acquire};
use crate::http::InflightLimitLayer;
use crate::limiter::{Scope, Scoped};

/// A service that sends requests with `client` once they have a slot of their lane.
///
/// Takes a [`Limiter`](crate::Limiter), or an [`InflightLimitLayer`] with options of your own. `with_http_service` takes
/// the client's own retry layer away: add it again outside, so that each attempt takes its own slot. Do not call
/// `with_http_client` after it, which replaces the whole stack.
///
/// ```
/// use async_openai::middleware::retry::OpenAIRetryLayer;
/// use tower::ServiceBuilder;
/// use tower_inflight::{Limiter, async_openai::{OneCallLayer, service}};
///
/// let limiter = Limiter::builder().max_inflight(6).build()?;
/// let stack = ServiceBuilder::new()
///     .layer(OneCallLayer::new())
///     .layer(OpenAIRetryLayer::default())
///     .service(service(reqwest::Client::new(), limiter));
/// let client = async_openai::Client::new().with_http_service(stack);
/// # Ok::<(), tower_inflight::ConfigError>(())
/// ```
///
/// # Class, tenant and deadline
/// From the task's [`Scope`]: the client has no place for request extensions.
///
/// # Errors
/// reqwest's are `OpenAIError::Reqwest`, so that retry layers know them. [`Rejected`](crate::Rejected) and
/// [`Stalled`](crate::Stalled) are `OpenAIError::Boxed`, found by downcast or by their `find`, and not retried.
pub fn service(client: Client, layer: impl Into<InflightLimitLayer>) -> InflightLimitService {
    InflightLimitService { client, layer: layer.into() }
}

/// The service that [`service`] makes, where it is described.
#[derive(Clone, Debug)]
pub struct InflightLimitService {
    client: Client,
    layer: InflightLimitLayer,
}

type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response, OpenAIError>> + Send>>;

impl Service<HttpRequestFactory> for InflightLimitService {
    type Response = Response;
    type Error = OpenAIError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), OpenAIError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, factory: HttpRequestFactory) -> ResponseFuture {
        let Self { client, layer } = self.clone();
        Box::pin(async move {
            let mut request = factory.build().await?;
            let acquire = acquire(&layer, &Extensions::new(), &request);
            let boxed = |error| OpenAIError::Boxed(Box::new(error));
            let sent = Sent::after(acquire, request.method(), &layer).await.map_err(boxed)?;
            sent.tell_deadline(&layer, &mut Extensions::new(), &mut request);
            sent.drive(client.execute(request), &layer).await.map_err(|failure| match failure {
                Failure::Stalled(stalled) => OpenAIError::Boxed(Box::new(stalled)),
                Failure::Inner(error) => OpenAIError::Reqwest(error),
            })
        })
    }
}

/// Makes all attempts of a retry layer inside of it one call, which keeps its first arrival and counts its attempts.
///
/// What [`CallLayer`](crate::CallLayer) is to plain requests.
///
/// ```
/// use tower_inflight::async_openai::OneCallLayer;
/// use tower_layer::Layer;
///
/// let service = OneCallLayer::new().layer(());
/// # let _: tower_inflight::async_openai::OneCall<()> = service;
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct OneCallLayer {
    _private: (),
}

impl OneCallLayer {
    /// The layer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl<S> Layer<S> for OneCallLayer {
    type Service = OneCall<S>;

    fn layer(&self, inner: S) -> OneCall<S> {
        OneCall { inner }
    }
}

/// The service that [`OneCallLayer`] builds, where it is described.
///
/// ```
/// use tower_inflight::async_openai::{OneCall, OneCallLayer};
/// use tower_layer::Layer;
///
/// let service: OneCall<()> = OneCallLayer::new().layer(());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct OneCall<S> {
    inner: S,
}

impl<S: Service<HttpRequestFactory>> Service<HttpRequestFactory> for OneCall<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = Scoped<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, factory: HttpRequestFactory) -> Self::Future {
        Scope::new().as_one_call().run(self.inner.call(factory))
    }
}
