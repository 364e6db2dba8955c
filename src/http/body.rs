//! The response body that holds the slot.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;

use super::error_body::Replay;
use super::held::Held;
use crate::BoxError;
use crate::engine::outcome::Outcome;

/// A response body that holds its call's slot until it ends, fails or is dropped.
///
/// Data, trailers, `is_end_stream` and `size_hint` are the inner body's. Nothing is read ahead or kept. Its error is the
/// inner body's, boxed, or [`Stalled`](crate::Stalled) when a guard was configured and the upstream fell silent.
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
    inner: Replay<B>,
    held: Option<Box<Held>>,
}

impl<B: Body> ResponseBody<B> {
    /// Holds nothing: the call has been settled, or never had a slot.
    #[inline]
    pub(super) fn free(inner: Replay<B>) -> Self {
        Self { inner, held: None }
    }

    #[inline]
    pub(super) fn holding(inner: B, held: Box<Held>) -> Self {
        Self { inner: Replay::Untouched(inner), held: Some(held) }
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    #[inline]
    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let mut this = self.project();
        let Some(held) = this.held.as_mut() else { return this.inner.poll_frame(cx).map_err(Into::into) };
        match this.inner.as_mut().poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                held.guard.heard();
                if let Some(data) = frame.data_ref() {
                    held.permit.note_chunk(data.remaining());
                    held.watch.look_at(data, this.inner.size_hint().exact() == Some(0));
                }
                if frame.is_trailers() || this.inner.is_end_stream() || held.watch.is_released() {
                    end(this.held, Held::end_heard);
                } else {
                    held.permit.note_first_byte();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                end(this.held, Held::end);
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                let error = error.into();
                // Nothing comes after an error; the connection is closed before its slot moves on.
                this.inner.set(Replay::Closed);
                end(this.held, |held| held.fail(|held| held.rules.classify.error(&*error)));
                Poll::Ready(Some(Err(error)))
            }
            // Silence after the last event is no stall.
            Poll::Pending if held.watch.is_complete() => Poll::Pending,
            Poll::Pending => match held.poll_silence(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(stalled) => {
                    this.inner.set(Replay::Closed);
                    end(this.held, |held| held.fail(|_| Outcome::Stalled.into()));
                    Poll::Ready(Some(Err(stalled.into())))
                }
            },
        }
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    #[inline]
    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

fn end(held: &mut Option<Box<Held>>, how: impl FnOnce(&mut Held)) {
    if let Some(mut held) = held.take() {
        how(&mut held);
    }
}

impl<B: Body> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").field("holds_slot", &self.held.is_some()).finish_non_exhaustive()
    }
}
