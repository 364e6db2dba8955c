//! Where retries and timeouts belong.
//!
//! ```text
//! CallLayer -> retry -> InflightLimit -> timeout -> hyper
//! ```
//!
//! *Retries outside.* Each attempt takes a slot of its own and gives it back before the pause, so that nobody sleeps on a
//! slot. `CallLayer`, outside of the retries, keeps what belongs to the call and not to the attempt: its first arrival,
//! class, tenant and deadline.
//!
//! *The timeout inside.* It starts when the call leaves. Outside it would run while the call stands in line here: calls
//! time out because others are served, their retries go to the end of the line, and the storm is back. How long a call
//! may stand in line is the business of `queue_timeout`; how long it may take in all, of the call's deadline.
//!
//! The example sends the same ten calls through both orders. The gateway serves one at a time and refuses the first.

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use support::{Answer, ChatRequest, Gateway, GatewayConfig, Refusal};
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep};
use tower::retry::{Policy, RetryLayer};
use tower::timeout::TimeoutLayer;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};
use tower_inflight::{CallLayer, InflightLimitLayer, Limiter, Rejected};

const CALLS: usize = 10;

/// Enough for the gateway to begin its answer, too short for the line.
const TIMEOUT: Duration = Duration::from_millis(400);

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let inside = ServiceBuilder::new()
        .layer(CallLayer::new())
        .layer(RetryLayer::new(ThreeAttempts(1)))
        .layer(InflightLimitLayer::new(limiter()?))
        .layer(TimeoutLayer::new(TIMEOUT))
        .service(Client::builder(TokioExecutor::new()).build_http());
    println!("timeout inside the limiter:  {}", send(inside).await?);

    let outside = ServiceBuilder::new()
        .layer(CallLayer::new())
        .layer(RetryLayer::new(ThreeAttempts(1)))
        .layer(TimeoutLayer::new(TIMEOUT))
        .layer(InflightLimitLayer::new(limiter()?))
        .service(Client::builder(TokioExecutor::new()).build_http());
    println!("timeout outside the limiter: {}", send(outside).await?);
    Ok(())
}

fn limiter() -> Result<Limiter, BoxError> {
    Ok(Limiter::builder().max_inflight(1).queue_timeout(Duration::from_secs(30)).build()?)
}

async fn send<S, B>(client: S) -> Result<String, BoxError>
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>, Error = BoxError, Future: Send> + Clone + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin + Send + 'static,
{
    let busy = Refusal { status: StatusCode::SERVICE_UNAVAILABLE, retry_after: None };
    let gateway = Gateway::start(GatewayConfig { slots: 1, refusals: vec![busy], ..Default::default() }).await;
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let request = ChatRequest { model: "acme/smart", prompt: "Why wait?", max_tokens: 40 }.to(gateway.url());
        let client = client.clone();
        calls.spawn(async move { Answer::new(client.oneshot(request).await?.into_body()).text().await });
    }
    let mut finished = 0;
    while let Some(answer) = calls.join_next().await {
        finished += usize::from(answer?.is_ok());
    }
    Ok(format!("{finished} of {CALLS} finished, {} calls reached the gateway", gateway.stats().calls))
}

/// Up to three attempts.
#[derive(Clone, Debug)]
struct ThreeAttempts(u32);

impl<B> Policy<Request<Full<Bytes>>, Response<B>, BoxError> for ThreeAttempts {
    type Future = Sleep;

    fn retry(
        &mut self,
        _: &mut Request<Full<Bytes>>,
        result: &mut Result<Response<B>, BoxError>,
    ) -> Option<Self::Future> {
        let is_worth_it = match result {
            Ok(response) => response.status().is_server_error(),
            // The limiter said no, for a reason that does not go away by asking again.
            Err(error) => Rejected::find(&**error).is_none(),
        };
        let pause = Duration::from_millis(20) * 2_u32.pow(self.0);
        self.0 += 1;
        (is_worth_it && self.0 <= 3).then(|| sleep(pause))
    }

    fn clone_request(&mut self, request: &Request<Full<Bytes>>) -> Option<Request<Full<Bytes>>> {
        Some(request.clone())
    }
}
