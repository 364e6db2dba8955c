//! For chains of [`reqwest_middleware`].

use async_trait::async_trait;
use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};

use super::reqwest::{Failure, Sent, acquire};
use crate::http::InflightLimitLayer;
use crate::limiter::{Call, Scope};

/// Makes the calls of a `reqwest-middleware` client wait for a slot of their lane.
///
/// Takes a [`Limiter`](crate::Limiter), or an [`InflightLimitLayer`] with options of your own. The first middleware that is
/// added is the outermost, so retries go before this one: each attempt takes its own slot.
///
/// ```
/// use reqwest_retry::{RetryTransientMiddleware, policies::ExponentialBackoff};
/// use tower_inflight::{Limiter, reqwest_middleware::InflightLimitMiddleware};
///
/// let limiter = Limiter::builder().max_inflight(6).build()?;
/// let backoff = ExponentialBackoff::builder().build_with_max_retries(3);
/// let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new())
///     .with(RetryTransientMiddleware::new_with_policy(backoff))
///     .with(InflightLimitMiddleware::new(limiter))
///     .build();
/// # Ok::<(), tower_inflight::ConfigError>(())
/// ```
///
/// # Class, tenant and deadline
/// From a [`Call`] that `RequestBuilder::with_extension` put in, else from the task's [`Scope`]. Mind that `build()`
/// followed by `execute(request)` drops extensions: use `execute_with_extensions`, or a scope. Retries outside keep the
/// call's first arrival either way.
///
/// # Errors
/// Refusals and stalls are `Error::Middleware`; [`Rejected::find`](crate::Rejected::find) and
/// [`Stalled::find`](crate::Stalled::find) find them, after retries as well. The default strategy of `reqwest-retry` does
/// not retry them.
///
/// # The response
/// URL, version, status, headers, content length, remote address and trailers are the upstream's.
#[derive(Clone, Debug)]
pub struct InflightLimitMiddleware {
    layer: InflightLimitLayer,
}

impl InflightLimitMiddleware {
    /// With a limiter and the defaults, or with a layer that has options.
    pub fn new(layer: impl Into<InflightLimitLayer>) -> Self {
        Self { layer: layer.into() }
    }
}

#[async_trait]
impl Middleware for InflightLimitMiddleware {
    async fn handle(&self, mut request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        // The map outlives the attempts of a retry layer, so the call keeps its first arrival.
        if extensions.get::<Call>().is_none() {
            let mut call = Call::arrived();
            Scope::complete(&mut call);
            extensions.insert(call);
        }
        let acquire = acquire(&self.layer, extensions, &request);
        let sent = Sent::after(acquire, request.method(), &self.layer).await.map_err(Error::middleware)?;
        sent.tell_deadline(&self.layer, extensions, &mut request);
        sent.drive(next.run(request, extensions), &self.layer).await.map_err(|failure| match failure {
            Failure::Stalled(stalled) => Error::middleware(stalled),
            Failure::Inner(error) => error,
        })
    }
}
