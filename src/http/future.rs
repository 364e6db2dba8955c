//! One call: wait for the slot, ready the inner service, call it, look at the answer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Method, Request, Response, response};
use http_body::Body;
use pin_project::pin_project;
use tower_service::Service;

use super::answer::{Answer, Held, answer, failed, peeked, settle};
use super::answer_rules::AnswerRules;
use super::body::ResponseBody;
use super::error_body::Peek;
use crate::BoxError;
use crate::engine::outcome::Outcome;
use crate::error::Stalled;
use crate::limiter::Acquire;

/// The future of an [`InflightLimit`](crate::InflightLimit) call.
///
/// ```text
/// Waiting ──▶ Readying ──▶ Called ──▶ (Peeking: error answers) ──▶ done
/// ```
///
/// # Cancel safety
/// Dropping it gives up the place in line, or cancels the inner call and gives the slot back.
// Field order: the inner call is dropped before its slot moves on.
#[pin_project]
pub struct ResponseFuture<S, Q, B>
where
    S: Service<Request<Q>>,
    B: Body,
{
    #[pin]
    stage: Stage<S::Future, B>,
    /// The instance that is driven ready is the one that is called.
    inner: S,
    request: Option<Request<Q>>,
    is_head: bool,
    held: Option<Held>,
    /// Until there is a slot.
    rules: Option<AnswerRules>,
}

#[pin_project(project = StageNow)]
enum Stage<F, B: Body> {
    Waiting(#[pin] Acquire),
    Readying,
    Called(#[pin] F),
    Peeking(Option<(response::Parts, Peek<B>)>),
    Done,
}

impl<S, Q, B> ResponseFuture<S, Q, B>
where
    S: Service<Request<Q>>,
    B: Body,
{
    #[inline]
    pub(super) fn waiting(inner: S, request: Request<Q>, acquire: Acquire, rules: AnswerRules) -> Self {
        Self::at(Stage::Waiting(acquire), inner, request, Some(rules))
    }

    /// The limiter is off.
    #[inline]
    pub(super) fn passing(inner: S, request: Request<Q>) -> Self {
        Self::at(Stage::Readying, inner, request, None)
    }

    #[inline]
    fn at(stage: Stage<S::Future, B>, inner: S, request: Request<Q>, rules: Option<AnswerRules>) -> Self {
        let is_head = request.method() == Method::HEAD;
        Self { stage, inner, request: Some(request), is_head, held: None, rules }
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

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.stage.as_mut().project() {
                StageNow::Waiting(acquire) => {
                    let permit = ready!(acquire.poll(cx))?;
                    *this.held = this.rules.take().and_then(|rules| Held::new(permit, rules));
                    this.stage.set(Stage::Readying);
                }
                StageNow::Readying => {
                    let Poll::Ready(readied) = this.inner.poll_ready(cx) else {
                        let stalled = ready!(poll_silence(this.held, cx));
                        this.stage.set(Stage::Done);
                        settle(this.held, Outcome::Stalled);
                        return Poll::Ready(Err(stalled.into()));
                    };
                    if let Err(error) = readied {
                        this.stage.set(Stage::Done);
                        return Poll::Ready(Err(failed(this.held, error.into())));
                    }
                    let request = this.request.take().expect("a request is sent once");
                    let call = this.inner.call(request);
                    this.stage.set(Stage::Called(call));
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
                        match answer(response, *this.is_head, this.held) {
                            Answer::Whole(response) => return Poll::Ready(Ok(response)),
                            Answer::Peek(head, peek) => this.stage.set(Stage::Peeking(Some((head, peek)))),
                        }
                    }
                },
                StageNow::Peeking(peeking) => {
                    let (_, peek) = peeking.as_mut().expect("looked at once");
                    ready!(peek.poll_peek(cx));
                    let (head, peek) = peeking.take().expect("looked at just now");
                    this.stage.set(Stage::Done);
                    return Poll::Ready(Ok(peeked(head, peek, this.held)));
                }
                StageNow::Done => panic!("polled after it was ready"),
            }
        }
    }
}

/// Ready with the error of a call that has waited too long for the upstream.
fn poll_silence(held: &mut Option<Held>, cx: &mut Context<'_>) -> Poll<Stalled> {
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
