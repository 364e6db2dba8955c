//! Serves the snapshot, and the figures of a run queue.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use tower_service::Service;

use crate::limiter::Limiter;
use crate::runs::RunQueue;

/// Answers every GET with the limiter's [`Snapshot`](crate::Snapshot) as JSON, so that any HTTP server can mount it, for
/// instance at `/api/telemetry/llm-lanes`.
///
/// It says which models are called how often: mount it where your other telemetry is.
///
/// ```
/// use http::Request;
/// use tower::ServiceExt;
/// use tower_inflight::{Limiter, SnapshotService};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder().max_inflight(6).build()?;
/// let response = SnapshotService::new(limiter).oneshot(Request::get("/api/telemetry/llm-lanes").body(())?).await?;
/// assert_eq!(response.headers()["content-type"], "application/json");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct SnapshotService {
    limiter: Limiter,
}

/// The future of a [`SnapshotService`] or [`RunStatsService`] call: ready at once.
pub type SnapshotFuture = Ready<Result<Response<Full<Bytes>>, Infallible>>;

impl SnapshotService {
    /// Serves this limiter's snapshot.
    #[must_use]
    pub fn new(limiter: Limiter) -> Self {
        Self { limiter }
    }
}

impl<B> Service<Request<B>> for SnapshotService {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = SnapshotFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> SnapshotFuture {
        ready(Ok(answer(request.method(), || self.limiter.snapshot())))
    }
}

/// Answers every GET with the [`RunStats`](crate::RunStats) of a queue as JSON, to be mounted at `/concurrency/stats` for
/// instance.
///
/// It names tenants and users: mount it where only those may look who may know them.
///
/// ```
/// use http::Request;
/// use http_body_util::BodyExt;
/// use tower::ServiceExt;
/// use tower_inflight::{RunQueue, RunStatsService};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let queue = RunQueue::builder().build()?;
/// let response = RunStatsService::new(queue).oneshot(Request::get("/concurrency/stats").body(())?).await?;
/// let json: serde_json::Value = serde_json::from_slice(&response.into_body().collect().await?.to_bytes())?;
/// assert_eq!(json["running"], 0);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RunStatsService {
    queue: RunQueue,
}

impl RunStatsService {
    /// Serves this queue's figures.
    #[must_use]
    pub fn new(queue: RunQueue) -> Self {
        Self { queue }
    }
}

impl<B> Service<Request<B>> for RunStatsService {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = SnapshotFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> SnapshotFuture {
        ready(Ok(answer(request.method(), || self.queue.stats())))
    }
}

fn answer<T: Serialize>(method: &Method, look: impl FnOnce() -> T) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let json = serde_json::to_vec(&look()).expect("names and numbers serialise");
    let mut response = Response::new(Full::new(Bytes::from(json)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
