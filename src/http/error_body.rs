//! A look at the first bytes of an error body that its reader will not notice.
//!
//! [`Peek`] polls the body until it knows enough, and [`Replay`] hands on the same frames, the same end or error, and
//! the same answers to `is_end_stream` and `size_hint` in between, before it goes on with the body itself:
//!
//! ```text
//! body: [data][data][trailers]          body: [data]...silence          body: [data][error]
//! peek:  ----   ----  --------  done     peek:  ----         250 ms     peek:  ----  -----  done
//! ```

use std::collections::VecDeque;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;
use tokio::time::Sleep;

/// Error envelopes put their code first; few are longer than this as a whole.
const PEEK_BYTES: usize = 8 * 1024;
/// A body that follows its head at all does so at once; this is what a silent one may cost the caller.
const PEEK_TIME: Duration = Duration::from_millis(250);
/// Bounds what is kept of a body that comes in crumbs, or in empty frames without end.
const PEEK_FRAMES: usize = 256;
/// Pieces of one frame that are looked at; a frame in more pieces, or one that shows only its first, ends the look.
const PIECES: usize = 64;

/// Reads ahead in a body, within [`PEEK_BYTES`] and [`PEEK_TIME`].
///
/// Without a tokio runtime it takes what is ready and does not wait for more.
pub(crate) struct Peek<B: Body> {
    body: Pin<Box<Peeked<B>>>,
    prefix: Vec<u8>,
    timer: Option<Pin<Box<Sleep>>>,
    is_over: bool,
}

impl<B: Body> Peek<B> {
    pub(crate) fn new(body: B) -> Self {
        let body = Box::pin(Peeked { steps: VecDeque::new(), body });
        Self { body, prefix: Vec::new(), timer: None, is_over: false }
    }

    /// Ready when the look is over: time for [`prefix`](Self::prefix), then [`into_body`](Self::into_body).
    ///
    /// Both may be called earlier, and show and hand on what was read so far.
    pub(crate) fn poll_peek(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.is_over {
            self.is_over = match self.body.as_mut().poll_ahead(cx, &mut self.prefix) {
                Poll::Ready(Look::Over) => true,
                Poll::Ready(Look::GoesOn) => false,
                Poll::Pending => {
                    ready!(self.poll_timer(cx));
                    true
                }
            };
        }
        self.timer = None;
        Poll::Ready(())
    }

    /// The first bytes of the body, as far as they were seen.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    pub(crate) fn into_body(self) -> Replay<B> {
        Replay::Peeked(self.body)
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if tokio::runtime::Handle::try_current().is_err() {
            return Poll::Ready(());
        }
        self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(PEEK_TIME))).as_mut().poll(cx)
    }
}

/// A body that was peeked at, or was not; both are read the same way.
#[pin_project(project = ReplayProjection)]
pub(crate) enum Replay<B: Body> {
    Untouched(#[pin] B),
    // Boxed, and with the body inside: what was polled cannot move, and the other variant stays small.
    Peeked(Pin<Box<Peeked<B>>>),
    /// It was dropped, and nothing comes any more.
    Closed,
}

impl<B: Body> Body for Replay<B> {
    type Data = B::Data;
    type Error = B::Error;

    #[inline]
    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match self.project() {
            ReplayProjection::Untouched(body) => body.poll_frame(cx),
            ReplayProjection::Peeked(peeked) => peeked.as_mut().poll_next(cx),
            ReplayProjection::Closed => Poll::Ready(None),
        }
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        match self {
            Self::Untouched(body) => body.is_end_stream(),
            // Nobody reads ahead past a body that says it is over.
            Self::Peeked(peeked) => peeked.steps.is_empty() && peeked.body.is_end_stream(),
            Self::Closed => true,
        }
    }

    #[inline]
    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Untouched(body) => body.size_hint(),
            Self::Peeked(peeked) => {
                let before = peeked.steps.front().map(|step| &step.size_hint_before);
                before.cloned().unwrap_or_else(|| peeked.body.size_hint())
            }
            Self::Closed => SizeHint::with_exact(0),
        }
    }
}

/// A body and what was read from it ahead of its reader.
#[pin_project]
pub(crate) struct Peeked<B: Body> {
    steps: VecDeque<Step<B::Data, B::Error>>,
    #[pin]
    body: B,
}

type Item<D, E> = Option<Result<Frame<D>, E>>;

struct Step<D, E> {
    size_hint_before: SizeHint,
    // Never locked. It makes a response body `Sync` whose frames or errors are only `Send`.
    item: Mutex<Item<D, E>>,
}

enum Look {
    GoesOn,
    Over,
}

impl<B: Body> Peeked<B> {
    fn poll_ahead(self: Pin<&mut Self>, cx: &mut Context<'_>, prefix: &mut Vec<u8>) -> Poll<Look> {
        let this = self.project();
        if this.body.is_end_stream() || this.steps.len() >= PEEK_FRAMES {
            return Poll::Ready(Look::Over);
        }
        let size_hint_before = this.body.size_hint();
        let item = ready!(this.body.poll_frame(cx));
        let look = match &item {
            Some(Ok(frame)) => frame.data_ref().map_or(Look::GoesOn, |data| look_at(data, prefix)),
            Some(Err(_)) | None => Look::Over,
        };
        this.steps.push_back(Step { size_hint_before, item: Mutex::new(item) });
        Poll::Ready(look)
    }

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Item<B::Data, B::Error>> {
        let this = self.project();
        match this.steps.pop_front() {
            Some(step) => Poll::Ready(step.item.into_inner().unwrap_or_else(PoisonError::into_inner)),
            None => this.body.poll_frame(cx),
        }
    }
}

/// Copies what fits and can be seen without consuming it. After a gap nothing more is seen.
fn look_at(data: &impl Buf, prefix: &mut Vec<u8>) -> Look {
    let before = prefix.len();
    let mut pieces = [IoSlice::new(&[]); PIECES];
    let count = data.chunks_vectored(&mut pieces);
    for piece in pieces.iter().take(count) {
        let fits = piece.len().min(PEEK_BYTES - prefix.len());
        prefix.extend_from_slice(&piece[..fits]);
    }
    if prefix.len() - before < data.remaining() || prefix.len() == PEEK_BYTES { Look::Over } else { Look::GoesOn }
}

#[cfg(test)]
mod tests;
