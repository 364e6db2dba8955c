//! Stamps a call before anybody retries it.

use std::task::{Context, Poll};

use http::Request;
use tower_layer::Layer;
use tower_service::Service;

use crate::limiter::{Call, Scope};

/// Puts a [`Call`] into the extensions of requests that have none.
///
/// Goes outside of the retry layer: the attempts are clones of the request, so they keep the first arrival, class, tenant
/// and deadline, and count up the attempt number.
///
/// ```
/// use tower_inflight::CallLayer;
/// use tower_layer::Layer;
///
/// let service = CallLayer::new().layer(tower::service_fn(|request: http::Request<()>| async move {
///     Ok::<_, std::convert::Infallible>(request.extensions().get::<tower_inflight::Call>().is_some())
/// }));
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # use tower::ServiceExt;
/// # let service = CallLayer::new().layer(tower::service_fn(|request: http::Request<()>| async move {
/// #     Ok::<_, std::convert::Infallible>(request.extensions().get::<tower_inflight::Call>().is_some())
/// # }));
/// # assert!(service.oneshot(http::Request::new(())).await.unwrap());
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct CallLayer {
    _private: (),
}

impl CallLayer {
    /// The layer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl<S> Layer<S> for CallLayer {
    type Service = CallService<S>;

    fn layer(&self, inner: S) -> CallService<S> {
        CallService { inner }
    }
}

/// The service that [`CallLayer`] builds, where it is described.
///
/// ```
/// use tower_inflight::{CallLayer, CallService};
/// use tower_layer::Layer;
///
/// let service: CallService<()> = CallLayer::new().layer(());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CallService<S> {
    inner: S,
}

impl<S, Q> Service<Request<Q>> for CallService<S>
where
    S: Service<Request<Q>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Q>) -> S::Future {
        if request.extensions().get::<Call>().is_none() {
            let mut call = Call::arrived();
            Scope::complete(&mut call);
            request.extensions_mut().insert(call);
        }
        self.inner.call(request)
    }
}
