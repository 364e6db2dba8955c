//! The response body that holds the slot.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;

use super::classify::Classify;
use super::error_body::Replay;
use super::guard::Guard;
use super::hangup::untaken;
use super::watch::Watch;
use crate::BoxError;
use crate::engine::outcome::{Outcome, Verdict};
use crate::error::Stalled;
use crate::limiter::Permit;

/// A response body that holds its call's slot until it ends, fails or is dropped.
///
/// Data, trailers, `is_end_stream` and `size_hint` are the inner body's. Nothing is read ahead or kept. Its error is the
/// inner body's, boxed, or [`Stalled`] when a guard was configured and the upstream fell silent.
///
/// Dropped early, it closes the inner body first and gives the slot back second. Dropping needs no runtime.
///
/// ```
/// use tower_inflight::ResponseBody;
///
/// fn forward<B: http_body::Body>(response: http::Response<ResponseBody<B>>) -> http::Response<ResponseBody<B>> {
///     response // the slot travels with the body
/// }
/// ```
// Field order: an early drop closes the connection before the slot moves on.
#[pin_project]
pub struct ResponseBody<B: Body> {
    #[pin]
    inner: Option<Replay<B>>,
    hold: Option<Hold>,
}

/// The slot, and what is known so far of how the call ends.
pub(super) struct Hold {
    permit: Permit,
    guard: Guard,
    classify: Arc<dyn Classify>,
    /// If the body ends well.
    verdict: Verdict,
    watch: Watch,
}

impl Hold {
    pub(super) fn new(
        permit: Permit,
        guard: Guard,
        classify: Arc<dyn Classify>,
        verdict: Verdict,
        watch: Watch,
    ) -> Self {
        Self { permit, guard, classify, verdict, watch }
    }

    /// The body has ended well, as far as the transport knows.
    fn end(mut self) {
        let (verdict, reading) = self.watch.finish(self.verdict);
        self.permit.end(verdict, reading);
    }

    /// The same, and something was heard just now.
    fn end_heard(mut self) {
        let (verdict, reading) = self.watch.finish(self.verdict);
        self.permit.end_heard(verdict, reading);
    }

    /// The body has failed, unless the stream had named a trouble of its own before.
    fn fail(mut self, failure: impl FnOnce(&Self) -> Verdict) {
        let (told, reading) = self.watch.finish(self.verdict);
        let verdict = if self.watch.has_trouble() { told } else { failure(&self) };
        self.permit.end(verdict, reading);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.permit.is_held() {
            let (verdict, reading) = self.watch.finish(self.verdict);
            let untaken = untaken().tokens(self.permit.bytes(), reading.as_ref());
            self.permit.note_after_hangup(untaken);
            let verdict = if self.watch.is_complete() { verdict } else { Outcome::Cancelled.into() };
            self.permit.end(verdict, reading);
        }
    }
}

impl<B: Body> ResponseBody<B> {
    /// Holds nothing: the call has been settled, or never had a slot.
    #[inline]
    pub(super) fn free(inner: Replay<B>) -> Self {
        Self { inner: Some(inner), hold: None }
    }

    #[inline]
    pub(super) fn holding(inner: B, hold: Hold) -> Self {
        Self { inner: Some(Replay::Untouched(inner)), hold: Some(hold) }
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let mut this = self.project();
        let Some(mut inner) = this.inner.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        let polled = inner.as_mut().poll_frame(cx);
        let Some(hold) = this.hold else { return polled.map_err(Into::into) };
        match polled {
            Poll::Ready(Some(Ok(frame))) => {
                hold.guard.heard();
                if let Some(data) = frame.data_ref() {
                    hold.permit.note_chunk(data.remaining());
                    hold.watch.look_at(data, inner.size_hint().exact() == Some(0));
                }
                if frame.is_trailers() || inner.is_end_stream() || hold.watch.is_released() {
                    end(this.hold, Hold::end_heard);
                } else {
                    hold.permit.note_first_byte();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                end(this.hold, Hold::end);
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                let error = error.into();
                // Nothing comes after an error; the connection is closed before its slot moves on.
                this.inner.set(None);
                end(this.hold, |hold| hold.fail(|hold| hold.classify.error(&*error)));
                Poll::Ready(Some(Err(error)))
            }
            // Silence after the last event is no stall.
            Poll::Pending if hold.watch.is_complete() => Poll::Pending,
            Poll::Pending => match hold.guard.poll_silence(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready((silence, after)) => {
                    let stalled = Stalled::new(hold.permit.lane_key(), silence, after);
                    this.inner.set(None);
                    end(this.hold, |hold| hold.fail(|_| Outcome::Stalled.into()));
                    Poll::Ready(Some(Err(stalled.into())))
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

fn end(hold: &mut Option<Hold>, how: impl FnOnce(Hold)) {
    if let Some(hold) = hold.take() {
        how(hold);
    }
}

impl<B: Body> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").field("holds_slot", &self.hold.is_some()).finish_non_exhaustive()
    }
}
