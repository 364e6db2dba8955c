//! Chooses a candidate for each request.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use http::Request;
use pin_project::pin_project;
use tower_service::Service;

use super::body::RewriteBody;
use super::candidate::{Candidate, RouteError};
use crate::BoxError;
use crate::limiter::{Call, Limiter, Scope};

/// Whether requests may go round a busy candidate. In a request's extensions it goes before what the router says.
///
/// ```
/// use tower_inflight::Routing;
///
/// assert_eq!(Routing::default(), Routing::FirstCandidate);
/// let request = http::Request::post("/chat/completions").extension(Routing::QueueAware).body(())?;
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Routing {
    /// Off: every request goes to the first candidate.
    #[default]
    FirstCandidate,
    /// A request for which the candidate before it would make it wait goes to the first one that would not.
    QueueAware,
}

/// A service over the candidates of one tier: places that are as good as each other. Goes outside of an
/// [`InflightLimitLayer`](crate::InflightLimitLayer) with the same limiter.
///
/// Each request becomes one for the first candidate: its URI, its headers, and the `model` of a JSON body in memory, which
/// is read once for both the rewrite and the lane. With [`Routing::QueueAware`] a busy candidate is skipped for an idle
/// one. Busy is one whose lane would not send the call at once: no slot is free, the lane is paused, its breaker is open, or
/// the limiter closed. If all are busy nobody is skipped.
///
/// The turns of a [`Run`](crate::Run) stay with one candidate, whose caches know them: the first may skip, and a later one
/// once more if the run lost its place after lending. Calls outside of a run's own turns are on their own: each may skip.
///
/// ```
/// use tower::ServiceBuilder;
/// use tower_inflight::{Candidate, InflightLimitLayer, Limiter, QueueAwareRouter, Routing};
///
/// # let http_client = tower::service_fn(|_: http::Request<String>| async {
/// #     Ok::<_, tower_inflight::BoxError>(http::Response::new(String::new()))
/// # });
/// let limiter = Limiter::builder().max_inflight(6).build()?;
/// let limited = ServiceBuilder::new().layer(InflightLimitLayer::new(limiter.clone())).service(http_client);
/// let candidates = [
///     Candidate::new("http://localhost:8080/v1")?.with_model("gemma"),
///     Candidate::new("https://gw.example/v1")?.with_model("acme/smart"),
/// ];
/// let router = QueueAwareRouter::new(limited, limiter, candidates)?.with_routing(Routing::QueueAware);
/// // router.oneshot(http::Request::post("/chat/completions").body(..)?)
/// # let _ = router;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A request whose path makes no URL with the candidate's fails with a [`RouteError`] before it is sent.
#[derive(Clone)]
pub struct QueueAwareRouter<S> {
    inner: S,
    limiter: Limiter,
    tier: Arc<Tier>,
    routing: Routing,
}

struct Tier {
    /// Runs know by it which router they chose a candidate of.
    id: u64,
    candidates: Vec<Candidate>,
}

impl<S> QueueAwareRouter<S> {
    /// Chooses among `candidates`, the first of which is preferred. Off until [`with_routing`](Self::with_routing).
    ///
    /// # Errors
    /// [`RouteError::NoCandidates`] if there is no candidate.
    pub fn new(
        inner: S,
        limiter: Limiter,
        candidates: impl IntoIterator<Item = Candidate>,
    ) -> Result<Self, RouteError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let candidates: Vec<Candidate> = candidates.into_iter().collect();
        if candidates.is_empty() {
            return Err(RouteError::NoCandidates);
        }
        let tier = Arc::new(Tier { id: NEXT.fetch_add(1, Ordering::Relaxed), candidates });
        Ok(Self { inner, limiter, tier, routing: Routing::default() })
    }

    /// What requests do that do not say otherwise.
    #[must_use]
    pub fn with_routing(self, routing: Routing) -> Self {
        Self { routing, ..self }
    }

    fn choose<Q>(&self, request: &Request<Q>) -> &Candidate {
        let Tier { id, candidates } = &*self.tier;
        let mut call = request.extensions().get::<Call>().cloned().unwrap_or_else(Call::unnamed);
        Scope::complete(&mut call);
        let routing = request.extensions().get::<Routing>().copied().unwrap_or(self.routing);
        let is_idle = |candidate: &Candidate| !self.limiter.would_wait(candidate.lane(), call.priority());
        let skip = |from: usize| {
            if routing == Routing::FirstCandidate || is_idle(&candidates[from]) {
                return None;
            }
            candidates.iter().position(is_idle)
        };
        let own_turn = call.run.as_ref().filter(|run| run.is_own_turn());
        let at = match own_turn {
            Some(run) => run.candidate(*id, skip),
            None => skip(0).unwrap_or(0),
        };
        &candidates[at]
    }
}

impl<S, Q> Service<Request<Q>> for QueueAwareRouter<S>
where
    S: Service<Request<Q>>,
    S::Error: Into<BoxError>,
    Q: RewriteBody,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = RouteFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        match self.choose(&request).rewrite(request) {
            Ok(request) => RouteFuture { way: Way::Called(self.inner.call(request)) },
            Err(error) => RouteFuture { way: Way::Failed(Some(error)) },
        }
    }
}

/// The future of a [`QueueAwareRouter`] call.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct RouteFuture<F> {
    #[pin]
    way: Way<F>,
}

#[pin_project(project = WayNow)]
enum Way<F> {
    Called(#[pin] F),
    Failed(Option<RouteError>),
}

impl<F, R, E> Future for RouteFuture<F>
where
    F: Future<Output = Result<R, E>>,
    E: Into<BoxError>,
{
    type Output = Result<R, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().way.project() {
            WayNow::Called(call) => call.poll(cx).map_err(Into::into),
            WayNow::Failed(error) => Poll::Ready(Err(error.take().expect("polled after it was ready").into())),
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for QueueAwareRouter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueAwareRouter")
            .field("inner", &self.inner)
            .field("candidates", &self.tier.candidates)
            .field("routing", &self.routing)
            .finish_non_exhaustive()
    }
}

impl<F> fmt::Debug for RouteFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteFuture").finish_non_exhaustive()
    }
}
