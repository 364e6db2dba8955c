//! One call through the limiter, with reqwest's types.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use http::{Extensions, Method, Uri};
use reqwest::{Body, Request, Response, ResponseBuilderExt, Url};

use crate::engine::time::Time;
use crate::error::{Rejected, Stalled};
use crate::http::answer::{Fate, fate, free, holding, peeked, settle};
use crate::http::deadline;
use crate::http::error_body::Peek;
use crate::http::held::Held;
use crate::http::options::RequestHead;
use crate::http::{InflightLimitLayer, PeekBody, ResponseBody};
use crate::limiter::Acquire;
use crate::{Outcome, Verdict};

/// How sending failed.
pub(super) enum Failure<E> {
    Stalled(Stalled),
    /// The inner client's own error.
    Inner(E),
}

/// Waits for the slot of a request. `extensions` are the request's, wherever the client keeps them.
pub(super) fn acquire(layer: &InflightLimitLayer, extensions: &Extensions, request: &Request) -> Acquire {
    if !layer.limiter.is_enabled() {
        return Acquire::off();
    }
    let uri = Uri::try_from(request.url().as_str()).unwrap_or_default();
    let head = RequestHead { method: request.method(), uri: &uri, headers: request.headers(), extensions };
    layer.options.acquire(&layer.limiter, head, || request.body().and_then(PeekBody::peek))
}

/// What is to be known of a request once it is sent.
pub(super) struct Sent {
    deadline: Time,
    held: Option<Box<Held>>,
    is_head: bool,
}

impl Sent {
    pub(super) async fn after(
        mut acquire: Acquire,
        method: &Method,
        layer: &InflightLimitLayer,
    ) -> Result<Self, Rejected> {
        let held = Held::new((&mut acquire).await?, layer.options.answers.clone());
        Ok(Self { deadline: acquire.deadline(), held, is_head: method == Method::HEAD })
    }

    /// Gives the call's deadline to its request, which is about to be sent. `extensions` as for [`acquire`].
    pub(super) fn tell_deadline(&self, layer: &InflightLimitLayer, extensions: &mut Extensions, request: &mut Request) {
        deadline::note(self.deadline, extensions);
        if let Some(name) = &layer.options.deadline_header {
            deadline::tell(name, extensions.get().copied(), request.headers_mut());
        }
    }

    /// Drives the call, and hands its slot to the body of the answer.
    pub(super) async fn drive<E: Error + 'static>(
        mut self,
        call: impl Future<Output = Result<Response, E>>,
        layer: &InflightLimitLayer,
    ) -> Result<Response, Failure<E>> {
        let response = match self.head(call).await {
            Ok(response) => response,
            Err(failure) => {
                let verdict = match &failure {
                    Failure::Stalled(_) => Verdict::new(Outcome::Stalled),
                    Failure::Inner(error) => layer.options.answers.classify.error(error),
                };
                settle(&mut self.held, verdict);
                return Err(failure);
            }
        };
        let url = response.url().clone();
        let (mut head, body) = http::Response::from(response).into_parts();
        let response = match fate(&mut head, &body, self.is_head, &mut self.held) {
            Fate::Free => http::Response::from_parts(head, free(body)),
            Fate::Held(verdict) => {
                let body = holding(body, &head.headers, verdict, &mut self.held);
                http::Response::from_parts(head, body)
            }
            Fate::Peek => {
                let mut peek = Peek::new(body);
                poll_fn(|cx| peek.poll_peek(cx)).await;
                peeked(head, peek, &mut self.held)
            }
        };
        Ok(rebuild(response, url))
    }

    /// The call is over, or dropped, when this returns: its connection is closed before the slot moves on.
    async fn head<E>(&mut self, call: impl Future<Output = Result<Response, E>>) -> Result<Response, Failure<E>> {
        let mut call = pin!(call);
        poll_fn(|cx| match call.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(result.map_err(Failure::Inner)),
            Poll::Pending => match &mut self.held {
                Some(held) => held.poll_silence(cx).map(|stalled| Err(Failure::Stalled(stalled))),
                None => Poll::Pending,
            },
        })
        .await
    }
}

/// A conversion through `http` alone would lose the final URL.
fn rebuild(response: http::Response<ResponseBody<Body>>, url: Url) -> Response {
    let mut response = response.map(Body::wrap);
    if let Ok(carrier) = http::Response::builder().url(url).body(()) {
        response.extensions_mut().extend(carrier.into_parts().0.extensions);
    }
    response.into()
}
