//! One call: wait for the slot, ready the inner service, call it, look at the answer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{HeaderName, Method, Request, Response, response};
use http_body::Body;
use pin_project::pin_project;
use tower_service::Service;

use super::answer::{Fate, failed, fate, free, holding, peeked, settle};
use super::answer_rules::AnswerRules;
use super::body::ResponseBody;
use super::deadline::{self, Deadline};
use super::error_body::Peek;
use super::held::Held;
use crate::BoxError;
use crate::engine::outcome::Outcome;
use crate::error::Stalled;
use crate::limiter::Acquire;

/// The future of an [`InflightLimit`](crate::InflightLimit) call.
///
/// # Cancel safety
/// Dropping it gives up the place in line, or cancels the inner call and gives the slot back.
#[pin_project]
pub struct ResponseFuture<S, Q, B>
where
    S: Service<Request<Q>>,
    B: Body,
{
    #[pin]
    way: Way<S, Q, B>,
}

#[pin_project(project = WayNow)]
enum Way<S, Q, B>
where
    S: Service<Request<Q>>,
    B: Body,
{
    /// The limiter is off, and the inner service was ready.
    Open(#[pin] S::Future),
    Limited(#[pin] Limited<S, Q, B>),
}

/// ```text
/// Waiting ──▶ Readying ──▶ Called ──▶ (Peeking: error answers) ──▶ done
/// ```
// Field order: the inner call is dropped before its slot moves on.
#[pin_project]
struct Limited<S, Q, B>
where
    S: Service<Request<Q>>,
    B: Body,
{
    #[pin]
    stage: Stage<S::Future, B>,
    /// Until the call.
    unsent: Option<Box<Unsent<S, Q>>>,
    is_head: bool,
    held: Option<Box<Held>>,
}

/// What it takes to send the request. In a box, since callers move the future around, and most of it is this.
struct Unsent<S, Q> {
    /// The instance that is driven ready is the one that is called.
    inner: S,
    request: Request<Q>,
    /// Until there is a slot.
    rules: Option<AnswerRules>,
    deadline_header: Option<Arc<HeaderName>>,
}

#[pin_project(project = StageNow)]
enum Stage<F, B: Body> {
    Waiting(#[pin] Acquire),
    Readying,
    Called(#[pin] F),
    Peeking(Option<Box<(response::Parts, Peek<B>)>>),
    Done,
}

impl<S, Q, B> ResponseFuture<S, Q, B>
where
    S: Service<Request<Q>>,
    B: Body,
{
    #[inline(always)]
    pub(super) fn waiting(
        inner: S,
        request: Request<Q>,
        acquire: Acquire,
        rules: AnswerRules,
        deadline_header: Option<Arc<HeaderName>>,
    ) -> Self {
        let is_head = request.method() == Method::HEAD;
        let unsent = Unsent { inner, request, rules: Some(rules), deadline_header };
        Self::limited(Limited { stage: Stage::Waiting(acquire), unsent: Some(Box::new(unsent)), is_head, held: None })
    }

    /// The limiter is off.
    #[inline]
    pub(super) fn passing(inner: S, request: Request<Q>) -> Self {
        let unsent = Unsent { inner, request, rules: None, deadline_header: None };
        Self::limited(Limited { stage: Stage::Readying, unsent: Some(Box::new(unsent)), is_head: false, held: None })
    }

    /// The limiter is off, and the inner service was ready.
    #[inline]
    pub(super) fn called(future: S::Future) -> Self {
        Self { way: Way::Open(future) }
    }

    #[inline(always)]
    fn limited(limited: Limited<S, Q, B>) -> Self {
        Self { way: Way::Limited(limited) }
    }
}

impl<S, Q, B> Future for ResponseFuture<S, Q, B>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body,
    B::Error: Into<BoxError>,
{
    type Output = Result<Response<ResponseBody<B>>, BoxError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().way.project() {
            WayNow::Open(call) => call.poll(cx).map(|answer| Ok(answer.map_err(Into::into)?.map(free))),
            WayNow::Limited(limited) => limited.poll(cx),
        }
    }
}

impl<S, Q, B> Limited<S, Q, B>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body,
    B::Error: Into<BoxError>,
{
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Response<ResponseBody<B>>, BoxError>> {
        let mut this = self.project();
        loop {
            match this.stage.as_mut().project() {
                StageNow::Waiting(mut acquire) => {
                    let permit = ready!(acquire.as_mut().poll(cx))?;
                    if let Some(unsent) = this.unsent {
                        deadline::note(acquire.deadline(), unsent.request.extensions_mut());
                        *this.held = unsent.rules.take().and_then(|rules| Held::new(permit, rules));
                    }
                    this.stage.set(Stage::Readying);
                }
                StageNow::Readying => {
                    let unsent = this.unsent.as_mut().expect("a request is sent once");
                    let Poll::Ready(readied) = unsent.inner.poll_ready(cx) else {
                        let stalled = ready!(poll_silence(this.held, cx));
                        this.stage.set(Stage::Done);
                        settle(this.held, Outcome::Stalled);
                        return Poll::Ready(Err(stalled.into()));
                    };
                    if let Err(error) = readied {
                        this.stage.set(Stage::Done);
                        return Poll::Ready(Err(failed(this.held, error.into())));
                    }
                    let unsent = this.unsent.take().expect("a request is sent once");
                    let Unsent { mut inner, mut request, deadline_header, .. } = *unsent;
                    if let Some(name) = deadline_header {
                        let deadline = request.extensions().get::<Deadline>().copied();
                        deadline::tell(&name, deadline, request.headers_mut());
                    }
                    this.stage.set(Stage::Called(inner.call(request)));
                }
                StageNow::Called(call) => match call.poll(cx) {
                    Poll::Pending => {
                        let stalled = ready!(poll_silence(this.held, cx));
                        this.stage.set(Stage::Done);
                        settle(this.held, Outcome::Stalled);
                        return Poll::Ready(Err(stalled.into()));
                    }
                    Poll::Ready(Err(error)) => {
                        this.stage.set(Stage::Done);
                        return Poll::Ready(Err(failed(this.held, error.into())));
                    }
                    Poll::Ready(Ok(response)) => {
                        // Whatever the call still held is gone before its slot may be.
                        this.stage.set(Stage::Done);
                        let (mut head, body) = response.into_parts();
                        match fate(&mut head, &body, *this.is_head, this.held) {
                            Fate::Free => return Poll::Ready(Ok(Response::from_parts(head, free(body)))),
                            Fate::Held(verdict) => {
                                let body = holding(body, &head.headers, verdict, this.held);
                                return Poll::Ready(Ok(Response::from_parts(head, body)));
                            }
                            Fate::Peek => {
                                this.stage.set(Stage::Peeking(Some(Box::new((head, Peek::new(body))))));
                            }
                        }
                    }
                },
                StageNow::Peeking(peeking) => {
                    let (_, peek) = &mut **peeking.as_mut().expect("looked at once");
                    ready!(peek.poll_peek(cx));
                    let (head, peek) = *peeking.take().expect("looked at just now");
                    this.stage.set(Stage::Done);
                    return Poll::Ready(Ok(peeked(head, peek, this.held)));
                }
                StageNow::Done => panic!("polled after it was ready"),
            }
        }
    }
}

/// Ready with the error of a call that has waited too long for the upstream.
fn poll_silence(held: &mut Option<Box<Held>>, cx: &mut Context<'_>) -> Poll<Stalled> {
    held.as_mut().map_or(Poll::Pending, |held| held.poll_silence(cx))
}

impl<S, Q, B> fmt::Debug for ResponseFuture<S, Q, B>
where
    S: Service<Request<Q>>,
    B: Body,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
