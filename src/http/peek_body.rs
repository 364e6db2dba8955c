//! A look at the bytes of a body that is in memory, before it is sent.

use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::Body;
use http_body_util::combinators::{BoxBody, MapErr, UnsyncBoxBody};
use http_body_util::{Either, Empty, Full, StreamBody};

/// A body that shows its bytes if it has them in memory.
///
/// The lane of a request is read from the top-level `model` of its JSON body. That must not change, copy or consume the
/// body, so it is only looked at: a body that is in memory answers with its bytes, any other with `None`, and the request
/// goes to the lane of its endpoint.
///
/// Implement it for a body type of your own. `None` is always a right answer; the bytes are right only if they are the whole
/// body as it will be sent:
///
/// ```
/// use std::convert::Infallible;
/// use std::pin::Pin;
/// use std::task::{Context, Poll};
///
/// use bytes::Bytes;
/// use http_body::Frame;
/// use tower_inflight::{PeekBody, Peeked};
///
/// enum RequestBody {
///     Json(Option<Vec<u8>>),
///     Upload(tokio::sync::mpsc::Receiver<Bytes>),
/// }
///
/// impl PeekBody for RequestBody {
///     fn peek(&self) -> Option<Peeked<'_>> {
///         match self {
///             Self::Json(json) => json.as_deref().map(Peeked::from),
///             Self::Upload(_) => None,
///         }
///     }
/// }
///
/// impl http_body::Body for RequestBody {
///     type Data = Bytes;
///     type Error = Infallible;
///
///     fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
///         match self.get_mut() {
///             Self::Json(json) => Poll::Ready(json.take().map(|json| Ok(Frame::data(json.into())))),
///             Self::Upload(chunks) => chunks.poll_recv(cx).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk)))),
///         }
///     }
/// }
///
/// let body = RequestBody::Json(Some(br#"{"model":"acme/smart"}"#.to_vec()));
/// assert_eq!(body.peek().as_deref(), Some(&br#"{"model":"acme/smart"}"#[..]));
/// ```
pub trait PeekBody {
    /// The whole body as it will be sent, or `None` if it is not in memory.
    ///
    /// This runs once per request before anything else does: it should be cheap, and must not block.
    fn peek(&self) -> Option<Peeked<'_>>;
}

/// The bytes of a body: borrowed from it where it lends them, else a counted reference to the same memory.
///
/// [`Full`] is why there are two: it holds its [`Bytes`] but lends them to nobody, while a clone of it gives up its own.
#[derive(Clone)]
pub struct Peeked<'a>(Source<'a>);

#[derive(Clone)]
enum Source<'a> {
    Borrowed(&'a [u8]),
    Shared(Bytes),
}

impl Deref for Peeked<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Source::Borrowed(bytes) => bytes,
            Source::Shared(bytes) => bytes,
        }
    }
}

impl<'a> From<&'a [u8]> for Peeked<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self(Source::Borrowed(bytes))
    }
}

impl<'a> From<&'a str> for Peeked<'a> {
    fn from(text: &'a str) -> Self {
        text.as_bytes().into()
    }
}

impl From<Bytes> for Peeked<'_> {
    fn from(bytes: Bytes) -> Self {
        Self(Source::Shared(bytes))
    }
}

/// Prints the length only: prompts do not belong into logs.
impl fmt::Debug for Peeked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peeked({} bytes)", self.len())
    }
}

impl PeekBody for Full<Bytes> {
    fn peek(&self) -> Option<Peeked<'_>> {
        // A clone of `Bytes` counts a reference; the clone's one frame is then the body's memory.
        let mut clone = self.clone();
        match Pin::new(&mut clone).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().ok().map(Peeked::from),
            _ => Some(Peeked::from("")),
        }
    }
}

impl<D> PeekBody for Empty<D> {
    fn peek(&self) -> Option<Peeked<'_>> {
        Some(Peeked::from(""))
    }
}

impl PeekBody for () {
    fn peek(&self) -> Option<Peeked<'_>> {
        Some(Peeked::from(""))
    }
}

impl PeekBody for Bytes {
    fn peek(&self) -> Option<Peeked<'_>> {
        Some(Peeked::from(&self[..]))
    }
}

impl PeekBody for String {
    fn peek(&self) -> Option<Peeked<'_>> {
        Some(Peeked::from(&self[..]))
    }
}

impl PeekBody for &'static str {
    fn peek(&self) -> Option<Peeked<'_>> {
        Some(Peeked::from(*self))
    }
}

impl<L: PeekBody, R: PeekBody> PeekBody for Either<L, R> {
    fn peek(&self) -> Option<Peeked<'_>> {
        match self {
            Self::Left(body) => body.peek(),
            Self::Right(body) => body.peek(),
        }
    }
}

impl<B: PeekBody, F> PeekBody for MapErr<B, F> {
    fn peek(&self) -> Option<Peeked<'_>> {
        self.get_ref().peek()
    }
}

impl<B: PeekBody + ?Sized> PeekBody for Box<B> {
    fn peek(&self) -> Option<Peeked<'_>> {
        (**self).peek()
    }
}

/// Not in memory: the box hides what it holds.
impl<D, E> PeekBody for BoxBody<D, E> {
    fn peek(&self) -> Option<Peeked<'_>> {
        None
    }
}

/// Not in memory: the box hides what it holds.
impl<D, E> PeekBody for UnsyncBoxBody<D, E> {
    fn peek(&self) -> Option<Peeked<'_>> {
        None
    }
}

/// Not in memory.
impl<S> PeekBody for StreamBody<S> {
    fn peek(&self) -> Option<Peeked<'_>> {
        None
    }
}

#[cfg(any(feature = "reqwest-middleware", feature = "async-openai"))]
impl PeekBody for reqwest::Body {
    fn peek(&self) -> Option<Peeked<'_>> {
        self.as_bytes().map(Peeked::from)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::BodyExt;

    use super::*;

    const JSON: &str = r#"{"model":"m1"}"#;

    fn peeked(body: &impl PeekBody) -> Option<Vec<u8>> {
        body.peek().map(|bytes| bytes.to_vec())
    }

    #[test]
    fn bodies_in_memory_show_their_bytes() {
        let json = Some(JSON.as_bytes().to_vec());
        assert_eq!(peeked(&Full::new(Bytes::from(JSON))), json);
        assert_eq!(peeked(&Bytes::from(JSON)), json);
        assert_eq!(peeked(&JSON.to_owned()), json);
        assert_eq!(peeked(&JSON), json);
        assert_eq!(peeked(&Box::new(Full::new(Bytes::from(JSON)))), json);
        assert_eq!(peeked(&Full::new(Bytes::from(JSON)).map_err(|never| match never {})), json);
        assert_eq!(peeked(&Either::<Full<Bytes>, StreamBody<()>>::Left(Full::new(Bytes::from(JSON)))), json);
    }

    #[test]
    fn an_empty_body_is_in_memory() {
        assert_eq!(peeked(&Empty::<Bytes>::new()), Some(vec![]));
        assert_eq!(peeked(&Full::new(Bytes::new())), Some(vec![]));
        assert_eq!(peeked(&()), Some(vec![]));
    }

    /// Case 66.
    #[test]
    fn streams_and_boxes_are_not_in_memory() {
        assert_eq!(peeked(&StreamBody::new(())), None);
        assert_eq!(peeked(&Full::new(Bytes::from(JSON)).boxed()), None);
        assert_eq!(peeked(&Full::new(Bytes::from(JSON)).boxed_unsync()), None);
        assert_eq!(peeked(&Either::<Full<Bytes>, StreamBody<()>>::Right(StreamBody::new(()))), None);
    }

    #[test]
    fn peeking_neither_copies_nor_consumes() {
        let bytes = Bytes::from(JSON.as_bytes().to_vec());
        let mut body = Full::new(bytes.clone());
        assert_eq!(body.peek().map(|peeked| peeked.as_ptr()), Some(bytes.as_ptr()));
        let frame = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Some(Ok::<_, Infallible>(frame))) = frame else { panic!("the body was consumed") };
        assert_eq!(frame.into_data().map(|data| data.as_ptr()).ok(), Some(bytes.as_ptr()));
    }

    #[test]
    fn debug_output_keeps_prompts_to_itself() {
        assert_eq!(format!("{:?}", Peeked::from(JSON)), "Peeked(14 bytes)");
    }

    #[cfg(any(feature = "reqwest-middleware", feature = "async-openai"))]
    #[test]
    fn reqwest_bodies_show_what_they_hold() {
        assert_eq!(peeked(&reqwest::Body::from(JSON)), Some(JSON.as_bytes().to_vec()));
        assert_eq!(peeked(&reqwest::Body::wrap(Full::new(Bytes::from(JSON)))), None);
    }
}
