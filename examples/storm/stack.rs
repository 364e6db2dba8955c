//! The three stacks. They differ in one layer.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use tower::retry::RetryLayer;
use tower::util::BoxCloneService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};
use tower_inflight::{CallLayer, InflightLimitLayer, Limiter};

use crate::client::{Backoff, SdkRetry, Ticket};
use crate::record::Recorder;
use crate::support::{CountedBody, HttpRequest, http_client};
use crate::upstream::{Endpoint, Upstream};

pub(crate) type Reply = Response<UnsyncBoxBody<Bytes, BoxError>>;
pub(crate) type Client = BoxCloneService<HttpRequest, Reply, BoxError>;

/// Without an answer for so many service times, an attempt is given up.
const TIMEOUT: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    None,
    Tower,
    Inflight,
}

impl Stack {
    pub(crate) const ALL: [Self; 3] = [Self::None, Self::Tower, Self::Inflight];

    /// The key in the JSON report.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Tower => "tower",
            Self::Inflight => "inflight",
        }
    }

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::None => "no limit",
            Self::Tower => "ConcurrencyLimit",
            Self::Inflight => "InflightLimit",
        }
    }

    pub(crate) fn client(
        self,
        upstream: &Upstream,
        endpoint: &Endpoint,
        recorder: &Recorder,
    ) -> Result<Client, BoxError> {
        let retry = RetryLayer::new(SdkRetry::new(Backoff(upstream.service)));
        let http = attempt(upstream.service * TIMEOUT, endpoint, recorder);
        Ok(match self {
            Self::None => boxed(ServiceBuilder::new().layer(retry).service(http)),
            Self::Tower => boxed(ServiceBuilder::new().layer(retry).concurrency_limit(upstream.slots).service(http)),
            Self::Inflight => {
                let limiter = Limiter::builder().max_inflight(u32::try_from(upstream.slots)?).build()?;
                let limit = InflightLimitLayer::new(limiter);
                boxed(ServiceBuilder::new().layer(CallLayer::new()).layer(retry).layer(limit).service(http))
            }
        })
    }
}

/// One attempt, the same in every stack. It fails without a response head in time.
fn attempt(
    timeout: Duration,
    endpoint: &Endpoint,
    recorder: &Recorder,
) -> impl Service<HttpRequest, Response = Response<CountedBody>, Error = BoxError, Future: Send> + Clone + Send + use<>
{
    let recorder = recorder.clone();
    ServiceBuilder::new()
        .map_result(move |result: Result<_, BoxError>| result.inspect_err(|_| recorder.attempt_failed()))
        .map_request(|call: HttpRequest| {
            call.extensions().get::<Ticket>().inspect(|ticket| ticket.sent());
            call
        })
        .timeout(timeout)
        .service(http_client(&endpoint.wire))
}

fn boxed<S, B>(stack: S) -> Client
where
    S: Service<HttpRequest, Response = Response<B>, Future: Send> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    BoxCloneService::new(
        stack.map_response(|response| response.map(|body| body.map_err(Into::into).boxed_unsync())).map_err(Into::into),
    )
}
