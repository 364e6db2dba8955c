//! The innermost client: hyper, with a count of the calls that leave and of those that are open.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use pin_project::pin_project;
use tower::{BoxError, Service, ServiceBuilder};

pub(crate) type HttpRequest = Request<Full<Bytes>>;

/// What went over the wire so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wire(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    calls: AtomicUsize,
    open: AtomicUsize,
    peak_open: AtomicUsize,
}

impl Wire {
    pub(crate) fn calls(&self) -> usize {
        self.0.calls.load(Relaxed)
    }

    pub(crate) fn open(&self) -> usize {
        self.0.open.load(Relaxed)
    }

    pub(crate) fn peak_open(&self) -> usize {
        self.0.peak_open.load(Relaxed)
    }

    fn enter(&self) -> OpenCall {
        self.0.calls.fetch_add(1, Relaxed);
        self.0.peak_open.fetch_max(self.0.open.fetch_add(1, Relaxed) + 1, Relaxed);
        OpenCall(self.clone())
    }
}

#[derive(Debug)]
struct OpenCall(Wire);

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.0.open.fetch_sub(1, Relaxed);
    }
}

/// A hyper client that counts.
pub(crate) fn http_client(
    wire: &Wire,
) -> impl Service<HttpRequest, Response = Response<CountedBody>, Error = BoxError, Future: Send> + Clone + Send + use<>
{
    let wire = wire.clone();
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    // A connection per call: an idle one that the server closes in the same moment would look like a failure.
    let http = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
    ServiceBuilder::new().map_future(move |response| count(response, wire.enter())).service(http)
}

async fn count<E: Into<BoxError>>(
    response: impl Future<Output = Result<Response<Incoming>, E>>,
    open: OpenCall,
) -> Result<Response<CountedBody>, BoxError> {
    let response = response.await.map_err(Into::into)?;
    Ok(response.map(|body| CountedBody { body, open: Some(open) }))
}

/// A response body that counts as open until it ends.
#[pin_project]
#[derive(Debug)]
pub(crate) struct CountedBody {
    #[pin]
    body: Incoming,
    open: Option<OpenCall>,
}

impl Body for CountedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.project();
        let frame = ready!(this.body.poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            *this.open = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
