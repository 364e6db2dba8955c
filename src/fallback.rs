//! A second way for calls that the breaker keeps from the first.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::BoxError;
use crate::error::{RejectKind, Rejected};

/// Sends calls elsewhere while the breaker of their lane is open: to another provider, a smaller model, a cache.
///
/// Goes around the layer whose breaker it is, and inside of retries. Only [`RejectKind::BreakerOpen`] is answered by the
/// fallback; every other error, and every answer, passes as it is. A request is cloned before it is sent, so its body has to
/// be cheap to clone.
///
/// ```
/// use http::{Request, Response};
/// use tower::{ServiceBuilder, service_fn};
/// use tower_inflight::{BreakerConfig, FallbackLayer, InflightLimitLayer, Limiter};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tower_inflight::BoxError> {
/// # let http_client = service_fn(|_: Request<String>| async { Ok::<_, std::io::Error>(Response::new(String::new())) });
/// # let small_model = service_fn(|_: Request<String>| async { Ok::<_, std::io::Error>(Response::new(String::new())) });
/// let limiter = Limiter::builder().max_inflight(8).breaker(BreakerConfig::default()).build()?;
/// let limited = InflightLimitLayer::new(limiter.clone());
/// let client = ServiceBuilder::new()
///     .layer(FallbackLayer::new(ServiceBuilder::new().layer(limited.clone()).service(small_model)))
///     .layer(limited)
///     .service(http_client);
/// # use tower::ServiceExt;
/// # client.oneshot(Request::post("http://gw/v1/chat/completions").body(String::new())?).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct FallbackLayer<F> {
    fallback: F,
}

impl<F> FallbackLayer<F> {
    /// Answers with `fallback` while the breaker inside is open.
    #[must_use]
    pub fn new(fallback: F) -> Self {
        Self { fallback }
    }
}

impl<S, F: Clone> Layer<S> for FallbackLayer<F> {
    type Service = Fallback<S, F>;

    fn layer(&self, inner: S) -> Fallback<S, F> {
        Fallback { inner, fallback: self.fallback.clone() }
    }
}

/// The service that a [`FallbackLayer`] builds, where it is described.
///
/// # Readiness
/// That of the inner service. The fallback is driven ready when it is needed, on the clone that is then called.
///
/// ```
/// use tower_inflight::{Fallback, FallbackLayer};
/// use tower_layer::Layer;
///
/// let service: Fallback<&str, &str> = FallbackLayer::new("second").layer("first");
/// ```
#[derive(Clone, Debug)]
pub struct Fallback<S, F> {
    inner: S,
    fallback: F,
}

impl<S, F, R> Service<R> for Fallback<S, F>
where
    S: Service<R>,
    S::Error: Into<BoxError>,
    F: Service<R, Response = S::Response> + Clone,
    F::Error: Into<BoxError>,
    R: Clone,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = FallbackFuture<S::Future, F, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let second = Some((self.fallback.clone(), request.clone()));
        FallbackFuture { stage: Stage::First(self.inner.call(request)), second }
    }
}

/// The future of a [`Fallback`] call.
///
/// # Cancel safety
/// Dropping it drops the call under way.
#[pin_project]
pub struct FallbackFuture<T, F: Service<R>, R> {
    #[pin]
    stage: Stage<T, F::Future>,
    second: Option<(F, R)>,
}

#[pin_project(project = StageNow)]
enum Stage<T, U> {
    First(#[pin] T),
    Readying,
    Second(#[pin] U),
}

impl<T, F, R, A, E> Future for FallbackFuture<T, F, R>
where
    T: Future<Output = Result<A, E>>,
    E: Into<BoxError>,
    F: Service<R, Response = A>,
    F::Error: Into<BoxError>,
{
    type Output = Result<A, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.stage.as_mut().project() {
                StageNow::First(call) => match ready!(call.poll(cx)).map_err(Into::into) {
                    Err(error) if is_breaker_open(&*error) => this.stage.set(Stage::Readying),
                    result => return Poll::Ready(result),
                },
                StageNow::Readying => {
                    let (fallback, _) = this.second.as_mut().expect("it is called once");
                    ready!(fallback.poll_ready(cx)).map_err(Into::into)?;
                    let (mut fallback, request) = this.second.take().expect("it is called once");
                    this.stage.set(Stage::Second(fallback.call(request)));
                }
                StageNow::Second(call) => return call.poll(cx).map_err(Into::into),
            }
        }
    }
}

fn is_breaker_open(error: &(dyn std::error::Error + 'static)) -> bool {
    Rejected::find(error).is_some_and(|rejected| rejected.kind() == RejectKind::BreakerOpen)
}

impl<T, F: Service<R>, R> fmt::Debug for FallbackFuture<T, F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FallbackFuture").finish_non_exhaustive()
    }
}
