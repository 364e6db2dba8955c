//! What reading a stream costs while it passes.
//!
//! The peer is the body of hyper's client over a connection in memory that gives one event of 200 bytes a read, as a model
//! sends them: what the caller would read without this crate. The difference per event is printed for a body that costs
//! nothing by itself, and the rate of the tap alone in bytes.

#[path = "support/mod.rs"]
mod support;

use std::convert::Infallible;
use std::fmt::Debug;
use std::hint::black_box;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use support::{AtMost, MANY, Passes, Stopwatch, difference, is_wanted, ratio, runtime, time};
use tokio::runtime::Runtime;
use tower::{Layer, Service, ServiceExt};
use tower_inflight::{InflightLimitLayer, LaneKey, Limiter, ReadUsage, ResponseBody, UsageTap};

const EVENTS: usize = 1_000;

fn main() {
    let runtime = runtime();
    let event = event("null");
    let with_null = self::event("null,\"usage\":null");

    let bare = |event: &Bytes| passing(&runtime, event, |body| body);
    let tapped = |event: &Bytes| passing(&runtime, event, |body| wrapped(&runtime, ReadUsage::On, body));
    ratio("tap_vs_bare", AtMost(1.5), MANY, || tapped(&event), || bare(&event));
    ratio("tap_with_null_usage_vs_bare", AtMost(1.5), MANY, || tapped(&with_null), || bare(&with_null));
    let off = || passing(&runtime, &event, |body| wrapped(&runtime, ReadUsage::Off, body));
    ratio("tap_on_vs_off", AtMost(1.5), MANY, || tapped(&event), off);

    let chunks = |read| {
        let body = wrapped(&runtime, read, Chunks { event: event.clone(), left: EVENTS });
        runtime.block_on(drain(body))
    };
    difference("tap_event_ns", AtMost(60.0), MANY, || chunks(ReadUsage::On), || chunks(ReadUsage::Off));

    answer();
    gbps("tap_gbps", &event);
    gbps("tap_json_gbps", &document());
}

/// An event of an OpenAI stream, 200 bytes with the blank line behind it.
fn event(finish: &str) -> Bytes {
    let event = format!(
        "data: {{\"id\":\"chatcmpl-9xKqT0\",\"object\":\"chat.completion.chunk\",\"created\":1717000000,\"model\":\"acme/smart\",\
         \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" words\"}},\"logprobs\":null,\"finish_reason\":{finish}}}]}}\n\n"
    );
    assert!(event.len().abs_diff(200) < 20, "{} bytes", event.len());
    event.into()
}

/// Three embeddings of 1,536 numbers.
fn document() -> Bytes {
    let vector = vec!["-0.012345"; 1_536].join(",");
    let data = vec![format!(r#"{{"object":"embedding","embedding":[{vector}]}}"#); 3].join(",");
    format!(r#"{{"object":"list","data":[{data}],"usage":{{"prompt_tokens":9,"total_tokens":9}}}}"#).into()
}

/// A whole short answer, with a tap of its own.
fn answer() {
    if !is_wanted("tap_answer_ns") {
        return;
    }
    let body = br#"{"choices":[{"message":{"content":"yes"}}],"usage":{"prompt_tokens":8,"completion_tokens":3}}"#;
    let one = || {
        let mut tap = Box::new(UsageTap::new());
        tap.header("content-type", b"application/json");
        tap.feed(black_box(body));
        black_box(tap.finish());
    };
    let Passes(passes) = MANY;
    let mut took: Vec<f64> = (0..passes).map(|_| time(500, || (0..500).for_each(|_| one()))).collect();
    took.sort_by(f64::total_cmp);
    println!("bar tap_answer_ns {:.3} ns  # for information; {} bytes of JSON", took[passes / 2], body.len());
}

fn gbps(name: &str, chunk: &[u8]) {
    if !is_wanted(name) {
        return;
    }
    let count = (1 << 20) / chunk.len();
    let pass = || {
        let mut tap = UsageTap::new();
        let took = time(count, || (0..count).for_each(|_| tap.feed(black_box(chunk))));
        black_box(tap.finish());
        took
    };
    let Passes(passes) = MANY;
    let mut took: Vec<f64> = (0..passes).map(|_| pass()).collect();
    took.sort_by(f64::total_cmp);
    let median = took[passes / 2];
    #[expect(clippy::cast_precision_loss, reason = "a length")]
    let rate = chunk.len() as f64 / median;
    println!("bar {name} {rate:.3} GB/s  # for information; {median:.0} ns for {} bytes", chunk.len());
}

/// Nanoseconds per event through hyper's body, as `wrap` has it.
fn passing<B>(runtime: &Runtime, event: &Bytes, wrap: impl FnOnce(Incoming) -> B) -> f64
where
    B: Body<Error: Debug>,
{
    let incoming = runtime.block_on(incoming(event));
    let body = wrap(incoming);
    runtime.block_on(drain(body))
}

async fn drain<B: Body<Error: Debug>>(body: B) -> f64 {
    let mut body = pin!(body);
    let mut events = 0;
    let watch = Stopwatch::start();
    while let Some(frame) = body.frame().await {
        black_box(frame.expect("a frame"));
        events += 1;
    }
    let took = watch.per(EVENTS);
    assert_eq!(events, EVENTS);
    took
}

/// The body of an answer through the layer, whose inner service answers at once.
fn wrapped<B>(runtime: &Runtime, read: ReadUsage, body: B) -> ResponseBody<B>
where
    B: Body,
    B::Error: Into<tower_inflight::BoxError>,
{
    let limiter = Limiter::builder().max_inflight(8).build().expect("a good configuration");
    let slot = std::sync::Arc::new(std::sync::Mutex::new(Some(body)));
    let inner = tower::service_fn(move |_: Request<Bytes>| {
        let body = slot.lock().expect("no panic").take().expect("one call");
        let response = Response::builder().header("content-type", "text/event-stream").body(body);
        std::future::ready(Ok::<_, Infallible>(response.expect("a response")))
    });
    let mut request = Request::new(Bytes::new());
    request.extensions_mut().insert(LaneKey::new("https://gw.example/v1", "acme/smart"));
    let mut service = InflightLimitLayer::new(limiter).read_usage(read).layer(inner);
    runtime.block_on(async {
        let service = service.ready().await.expect("ready");
        service.call(request).await.expect("an answer").into_body()
    })
}

async fn incoming(event: &Bytes) -> Incoming {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(Wire::new(event.clone())).await.expect("a connection");
    tokio::spawn(connection);
    let request = Request::get("/").body(Empty::<Bytes>::new()).expect("a request");
    sender.send_request(request).await.expect("an answer").into_body()
}

/// A connection on which the answer arrives event by event.
struct Wire {
    chunk: Vec<u8>,
    state: State,
}

enum State {
    /// The request has not been sent.
    Idle(Option<Waker>),
    Head,
    Events(usize),
    Over,
}

impl Wire {
    fn new(event: Bytes) -> Self {
        let chunk = [format!("{:x}\r\n", event.len()).as_bytes(), &event, b"\r\n"].concat();
        Self { chunk, state: State::Idle(None) }
    }
}

impl Read for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        self.state = match self.state {
            State::Idle(_) => {
                self.state = State::Idle(Some(cx.waker().clone()));
                return Poll::Pending;
            }
            State::Head => {
                buf.put_slice(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
                );
                State::Events(EVENTS)
            }
            State::Events(0) => {
                buf.put_slice(b"0\r\n\r\n");
                State::Over
            }
            State::Events(left) => {
                buf.put_slice(&self.chunk);
                State::Events(left - 1)
            }
            State::Over => return Poll::Pending,
        };
        Poll::Ready(Ok(()))
    }
}

impl Write for Wire {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if let State::Idle(waker) = std::mem::replace(&mut self.state, State::Head) {
            waker.into_iter().for_each(Waker::wake);
        }
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A body of many events, each ready at once.
struct Chunks {
    event: Bytes,
    left: usize,
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        Poll::Ready(Some(Ok(Frame::data(self.event.clone()))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
