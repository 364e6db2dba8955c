use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use proptest::prelude::*;
use tokio::time::timeout;

use super::{PEEK_BYTES, PEEK_FRAMES, Peek, Replay};

const MS: Duration = Duration::from_millis(1);

#[derive(Clone, Debug)]
enum Step {
    Data(Vec<u8>),
    Trailers,
    Error,
    /// Not yet, but soon.
    Yield,
    /// Not yet, and never.
    Silence,
}

/// Plays its steps, then ends.
#[derive(Clone, Debug)]
struct Script {
    steps: VecDeque<Step>,
    knows_its_end: bool,
}

fn script(steps: &[Step]) -> Script {
    Script { steps: steps.iter().cloned().collect(), knows_its_end: false }
}

fn data(text: &str) -> Step {
    Step::Data(text.as_bytes().to_vec())
}

impl Body for Script {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.steps.pop_front() {
            Some(Step::Data(bytes)) => Poll::Ready(Some(Ok(Frame::data(bytes.into())))),
            Some(Step::Trailers) => {
                let trailers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("x"))]);
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
            Some(Step::Error) => Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into()))),
            Some(Step::Yield) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(Step::Silence) => {
                self.steps.push_front(Step::Silence);
                Poll::Pending
            }
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.knows_its_end && self.steps.iter().all(|step| matches!(step, Step::Yield))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(
            self.steps.iter().map(|step| if let Step::Data(data) = step { data.len() as u64 } else { 0 }).sum(),
        )
    }
}

async fn peek<B: Body>(body: B) -> (Vec<u8>, Replay<B>) {
    let mut peek = Peek::new(body);
    poll_fn(|cx| peek.poll_peek(cx)).await;
    (peek.prefix().to_vec(), peek.into_body())
}

/// All that a reader can notice, frame by frame.
async fn trace<B: Body<Data = Bytes, Error = io::Error>>(body: B) -> Vec<String> {
    let mut body = pin!(body);
    let mut seen = Vec::new();
    loop {
        let before = (body.is_end_stream(), body.size_hint().exact());
        let item = poll_fn(|cx| body.as_mut().poll_frame(cx)).await;
        seen.push(format!("{before:?} {item:?}"));
        if item.is_none() {
            seen.push(format!("{:?}", (body.is_end_stream(), body.size_hint().exact())));
            return seen;
        }
    }
}

async fn read_all<B: Body<Data = Bytes, Error = io::Error>>(body: B) -> Vec<u8> {
    let mut body = pin!(body);
    let mut read = Vec::new();
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        read.extend_from_slice(&frame.unwrap().into_data().unwrap());
    }
    read
}

#[tokio::test(start_paused = true)]
async fn the_reader_sees_what_it_would_have_seen() {
    // cases 43 and 77: empty, text/html, an error after a frame, trailers
    for steps in [
        &[][..],
        &[data("<!doctype html>"), data("<title>429</title>")],
        &[data("{\"error\""), Step::Yield, data(":{}}")],
        &[data("a"), Step::Error],
        &[data("a"), Step::Error, data("b")],
        &[Step::Error],
        &[data("a"), Step::Trailers],
        &[Step::Trailers],
        &[data(""), data("a"), data("")],
    ] {
        for knows_its_end in [false, true] {
            let body = Script { knows_its_end, ..script(steps) };
            let (_, replay) = peek(body.clone()).await;
            assert_eq!(trace(replay).await, trace(body).await);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_body_costs_a_quarter_of_a_second() {
    // case 77: chunked, 10 bytes, then silence
    let mut looking = pin!(peek(script(&[data("0123456789"), Step::Silence])));
    assert!(timeout(249 * MS, looking.as_mut()).await.is_err());
    let (prefix, replay) = timeout(2 * MS, looking).await.unwrap();
    assert_eq!(prefix, b"0123456789");

    let mut replay = pin!(replay);
    let frame = poll_fn(|cx| replay.as_mut().poll_frame(cx)).await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "0123456789");
    assert!(replay.as_mut().poll_frame(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_there_is_not_waited_for() {
    // case 131: complete in memory
    let complete = Script { knows_its_end: true, ..script(&[data("busy")]) };
    let (prefix, replay) = timeout(Duration::ZERO, peek(complete)).await.unwrap();
    assert_eq!(prefix, b"busy");
    assert!(!replay.is_end_stream());
    assert_eq!(replay.size_hint().exact(), Some(4));
}

#[tokio::test(start_paused = true)]
async fn of_a_large_body_only_the_beginning_is_read() {
    // case 77: 2 MiB
    let kilobytes = vec![Step::Data(vec![7; 1024]); 2048];
    let (prefix, replay) = peek(script(&kilobytes)).await;
    assert_eq!(prefix, vec![7; PEEK_BYTES]);
    let Replay::Peeked(peeked) = &replay else { panic!("not peeked") };
    assert_eq!(peeked.steps.len(), 8);
    assert_eq!(read_all(replay).await, vec![7; 2048 * 1024]);

    let one_frame = script(&[Step::Data(vec![7; 2048 * 1024]), data("rest")]);
    let (prefix, replay) = peek(one_frame.clone()).await;
    assert_eq!(prefix.len(), PEEK_BYTES);
    assert_eq!(trace(replay).await, trace(one_frame).await);
}

#[tokio::test(start_paused = true)]
async fn a_body_in_crumbs_is_not_collected() {
    for crumb in ["", "x"] {
        let body = script(&vec![data(crumb); 10_000]);
        let (prefix, replay) = peek(body.clone()).await;
        assert!(prefix.len() <= PEEK_FRAMES);
        let Replay::Peeked(peeked) = &replay else { panic!("not peeked") };
        assert_eq!(peeked.steps.len(), PEEK_FRAMES);
        assert_eq!(trace(replay).await, trace(body).await);
    }
}

#[test]
fn without_a_runtime_only_what_is_ready_is_read() {
    let mut peek = Peek::new(script(&[data("a"), Step::Silence]));
    assert!(peek.poll_peek(&mut Context::from_waker(Waker::noop())).is_ready());
    assert_eq!(peek.prefix(), b"a");
}

#[tokio::test(start_paused = true)]
async fn a_peek_given_up_half_way_loses_nothing() {
    let body = script(&[data("a"), Step::Yield, data("b")]);
    let mut peek = Peek::new(body.clone());
    assert!(peek.poll_peek(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(read_all(peek.into_body()).await, b"ab");
}

#[tokio::test(start_paused = true)]
async fn a_peek_that_is_over_does_not_go_on() {
    for steps in [&[data("a")][..], &[Step::Silence], &[Step::Error, data("b")]] {
        let mut peek = Peek::new(script(steps));
        poll_fn(|cx| peek.poll_peek(cx)).await;
        let prefix = peek.prefix().to_vec();
        assert!(peek.poll_peek(&mut Context::from_waker(Waker::noop())).is_ready());
        assert_eq!(peek.prefix(), prefix);
    }
}

#[tokio::test(start_paused = true)]
async fn an_untouched_body_passes_through() {
    let body = script(&[data("a"), Step::Trailers]);
    assert_eq!(trace(Replay::Untouched(body.clone())).await, trace(body).await);
}

/// A buffer in pieces that cannot be cloned and, being `!Sync`, would make a queue of frames `!Sync` as well.
struct Pieces {
    left: VecDeque<&'static [u8]>,
    _not_sync: Cell<()>,
    shows_all: bool,
}

impl Buf for Pieces {
    fn remaining(&self) -> usize {
        self.left.iter().map(|piece| piece.len()).sum()
    }

    fn chunk(&self) -> &[u8] {
        self.left.front().copied().unwrap_or_default()
    }

    fn chunks_vectored<'a>(&'a self, into: &mut [io::IoSlice<'a>]) -> usize {
        let shown = if self.shows_all { self.left.len() } else { 1 };
        let pieces = self.left.iter().take(shown).zip(into);
        pieces.map(|(piece, slot)| *slot = io::IoSlice::new(piece)).count()
    }

    fn advance(&mut self, mut count: usize) {
        while count > 0 {
            let piece = self.left.front_mut().unwrap();
            let step = count.min(piece.len());
            piece.advance(step);
            count -= step;
            if piece.is_empty() {
                self.left.pop_front();
            }
        }
    }
}

/// Two frames of three pieces each.
struct InPieces {
    frames_left: usize,
    shows_all: bool,
}

impl Body for InPieces {
    type Data = Pieces;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Pieces>>>> {
        let Some(left) = self.frames_left.checked_sub(1) else { return Poll::Ready(None) };
        self.frames_left = left;
        let left = VecDeque::from([&b"one "[..], b"two ", b"three "]);
        Poll::Ready(Some(Ok(Frame::data(Pieces { left, _not_sync: Cell::new(()), shows_all: self.shows_all }))))
    }
}

#[tokio::test(start_paused = true)]
async fn every_piece_of_a_frame_is_seen_and_left_in_place() {
    for (shows_all, expected) in [(true, "one two three one two three "), (false, "one ")] {
        let (prefix, replay) = peek(InPieces { frames_left: 2, shows_all }).await;
        assert_eq!(prefix, expected.as_bytes());
        let mut replay = pin!(replay);
        for _ in 0..2 {
            let mut pieces =
                poll_fn(|cx| replay.as_mut().poll_frame(cx)).await.unwrap().unwrap().into_data().ok().unwrap();
            assert_eq!(pieces.left.len(), 3);
            assert_eq!(pieces.copy_to_bytes(pieces.remaining()), "one two three ");
        }
    }
}

#[test]
fn a_replay_is_send_and_sync_where_its_body_is() {
    fn assert_send_sync<T: Send + Sync>() {}
    assert_send_sync::<Replay<Script>>();
    assert_send_sync::<Replay<InPieces>>();
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::collection::vec(any::<u8>(), 0..3000).prop_map(Step::Data),
        2 => Just(Step::Yield),
        1 => Just(Step::Trailers),
        1 => Just(Step::Error),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_peek_is_noticed(steps in prop::collection::vec(any_step(), 0..12), knows_its_end: bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let body = Script { knows_its_end, ..script(&steps) };
            let (prefix, replay) = peek(body.clone()).await;
            assert!(prefix.len() <= PEEK_BYTES);
            assert_eq!(trace(replay).await, trace(body).await);
        });
    }
}
