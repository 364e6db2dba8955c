//! A bounded buffer between an upstream and a reader that may go away without a word.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Buf;
use http_body::{Body, Frame};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::hangup::{Amount, drop_untaken};
use crate::BoxError;

/// Passes `body` on through a buffer of so many bytes. See [`Relay`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use http_body_util::{BodyExt, Full};
/// use tower_inflight::bounded_relay;
///
/// let body = bounded_relay(Full::new(bytes::Bytes::from("an answer")), 64 * 1024);
/// assert_eq!(body.collect().await.unwrap().to_bytes(), "an answer");
/// # }
/// ```
pub fn bounded_relay<B>(body: B, bytes: usize) -> RelayBody<B::Data>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    Relay::new(bytes).spawn(body)
}

/// Reads a body ahead of its reader, as far as a bounded buffer goes: for servers that pass answers on.
///
/// A reader that is slower than the upstream does not hold the upstream's slot for as long as the answer is short enough to
/// fit. Once the buffer is full, nothing is read, and the transport's own flow control pushes back.
///
/// A body can only notice that its reader is gone when it is dropped. Some frameworks keep one that nobody reads, and with it
/// the slot. With [`consumer_timeout`](Self::consumer_timeout), a reader that leaves a full buffer alone for that long loses
/// the answer: the upstream's body is closed, its slot is free, and the reader finds an [`Abandoned`] error should it come
/// back.
///
/// What was read ahead of a reader that is gone, before the answer was over, is counted as
/// [`tokens_after_hangup`](crate::LaneSnapshot::tokens_after_hangup): a smaller buffer makes it less.
///
/// ```
/// use std::time::Duration;
/// use tower_inflight::{Relay, RelayBody, ResponseBody};
///
/// fn pass_on<B>(response: http::Response<ResponseBody<B>>) -> http::Response<RelayBody<B::Data>>
/// where
///     B: http_body::Body<Data: Send, Error: Into<tower_inflight::BoxError> + Send> + Send + 'static,
/// {
///     let relay = Relay::new(256 * 1024).consumer_timeout(Duration::from_secs(60));
///     response.map(|body| relay.spawn(body))
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relay {
    bytes: usize,
    consumer_timeout: Option<Duration>,
}

impl Relay {
    /// A buffer of so many bytes, at least one. One more frame may be in hand, whatever its size.
    #[must_use]
    pub const fn new(bytes: usize) -> Self {
        Self { bytes, consumer_timeout: None }
    }

    /// How long a full buffer waits for its reader. Default: for ever.
    #[must_use]
    pub const fn consumer_timeout(self, after: Duration) -> Self {
        Self { consumer_timeout: Some(after), ..self }
    }

    /// Starts a task that reads `body`, and ends with it, or with the reader.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn spawn<B>(self, body: B) -> RelayBody<B::Data>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let bytes = self.bytes.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        let buffer = Arc::new(Buffer { bytes, room: Semaphore::new(bytes), given: Given::default() });
        let (frames, receiver) = unbounded_channel();
        tokio::spawn(pump(Box::pin(body), frames, buffer.clone(), self.consumer_timeout));
        RelayBody { frames: receiver, buffer }
    }
}

/// What the reader and the task behind it share.
struct Buffer {
    bytes: usize,
    room: Semaphore,
    given: Given,
}

/// Of the answer's data, what the reader was given.
#[derive(Default)]
struct Given {
    bytes: AtomicU64,
    pieces: AtomicU64,
}

impl Given {
    fn note(&self, data: &impl Buf) {
        self.bytes.fetch_add(data.remaining() as u64, Ordering::Relaxed);
        self.pieces.fetch_add(1, Ordering::Relaxed);
    }

    fn amount(&self) -> Amount {
        Amount { bytes: self.bytes.load(Ordering::Relaxed), pieces: self.pieces.load(Ordering::Relaxed) }
    }
}

/// A body that comes through a [`Relay`]. Its error is the inner body's, boxed, or [`Abandoned`].
///
/// ```
/// fn is_body<B: http_body::Body>() {}
/// is_body::<tower_inflight::RelayBody<bytes::Bytes>>();
/// ```
pub struct RelayBody<D> {
    frames: UnboundedReceiver<Result<Frame<D>, BoxError>>,
    buffer: Arc<Buffer>,
}

/// The reader of a relayed body left a full buffer alone for too long, and the answer was given up.
///
/// ```
/// fn is_late(error: &(dyn std::error::Error + 'static)) -> bool {
///     error.is::<tower_inflight::Abandoned>()
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abandoned {
    after: Duration,
}

impl Abandoned {
    /// The `consumer_timeout` that was over.
    #[must_use]
    pub fn after(&self) -> Duration {
        self.after
    }
}

impl fmt::Display for Abandoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nobody read the answer for {:?}; see `consumer_timeout`", self.after)
    }
}

impl std::error::Error for Abandoned {}

impl<D: Buf> Body for RelayBody<D> {
    type Data = D;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<D>, BoxError>>> {
        let this = self.get_mut();
        let polled = this.frames.poll_recv(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            this.buffer.room.add_permits(weight(frame, this.buffer.bytes));
            if let Some(data) = frame.data_ref() {
                this.buffer.given.note(data);
            }
        }
        polled
    }
}

impl<D> fmt::Debug for RelayBody<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayBody").field("bytes", &self.buffer.bytes).finish_non_exhaustive()
    }
}

/// A frame larger than the buffer takes all of it.
fn weight<D: Buf>(frame: &Frame<D>, bytes: usize) -> usize {
    frame.data_ref().map_or(0, Buf::remaining).min(bytes)
}

async fn pump<B>(
    mut body: Pin<Box<B>>,
    frames: UnboundedSender<Result<Frame<B::Data>, BoxError>>,
    buffer: Arc<Buffer>,
    consumer_timeout: Option<Duration>,
) where
    B: Body,
    B::Error: Into<BoxError>,
{
    let mut read = Amount::default();
    let passed = pass_on(body.as_mut(), &frames, &buffer, consumer_timeout, &mut read).await;
    // The connection is closed and the slot is free before anybody hears why.
    drop_untaken(body, read.less(buffer.given.amount()));
    if let Err(abandoned) = passed {
        let _ = frames.send(Err(abandoned.into()));
    }
}

/// Until the body ends or its reader does, and counts what it reads.
async fn pass_on<B>(
    mut body: Pin<&mut B>,
    frames: &UnboundedSender<Result<Frame<B::Data>, BoxError>>,
    buffer: &Buffer,
    consumer_timeout: Option<Duration>,
    read: &mut Amount,
) -> Result<(), Abandoned>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    loop {
        let next = poll_fn(|cx| body.as_mut().poll_frame(cx));
        let Some(Some(frame)) = while_heard(frames, next).await else { return Ok(()) };
        let Ok(frame) = frame.map_err(|error| frames.send(Err(error.into()))) else { return Ok(()) };
        if let Some(data) = frame.data_ref() {
            read.bytes += data.remaining() as u64;
            read.pieces += 1;
        }
        let weight = u32::try_from(weight(&frame, buffer.bytes)).unwrap_or(u32::MAX);
        let got_room = while_heard(frames, make_room(&buffer.room, weight, consumer_timeout)).await;
        let Some(taken) = got_room.transpose()? else { return Ok(()) };
        taken.forget();
        if frames.send(Ok(frame)).is_err() {
            return Ok(());
        }
    }
}

async fn make_room(room: &Semaphore, weight: u32, bound: Option<Duration>) -> Result<SemaphorePermit<'_>, Abandoned> {
    let taken = async { room.acquire_many(weight).await.expect("the room is never closed") };
    match bound {
        None => Ok(taken.await),
        Some(after) => timeout(after, taken).await.map_err(|_| Abandoned { after }),
    }
}

/// `None` when the reader is gone first.
async fn while_heard<T, R>(frames: &UnboundedSender<T>, work: impl Future<Output = R>) -> Option<R> {
    let (mut gone, mut work) = (pin!(frames.closed()), pin!(work));
    poll_fn(|cx| match gone.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => work.as_mut().poll(cx).map(Some),
    })
    .await
}
