//! Whole calls through the layer: against tower's `ConcurrencyLimit`, against reading the model with `serde_json`, and
//! against no layer at all.
//!
//! A call is `ready`, `call`, and the body of the answer read to its end. The inner service answers at once, so that the
//! layer is all there is to see. Requests are made before the watch starts. A Prometheus recorder is installed, and is
//! scraped between passes.

#[path = "support/mod.rs"]
mod support;

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt::Debug;
use std::fmt::Write as _;
use std::future::Future;
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde::Deserialize;
use support::{AtMost, MANY, Passes, Stopwatch, difference, ratio, runtime, time};
use tokio::runtime::Runtime;
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceExt};
use tower_inflight::{InflightLimitLayer, LaneKey, Limiter};

fn main() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    metrics::set_global_recorder(recorder).expect("the first recorder");
    let bench = Bench { runtime: runtime(), metrics };

    let limited = || InflightLimitLayer::new(limiter(LIMIT)).layer(inner(one_frame));
    let off = InflightLimitLayer::new(limiter(0)).layer(inner(one_frame));
    let tower = || ConcurrencyLimitLayer::new(LIMIT as usize).layer(inner(one_frame));

    ratio(
        "layer_vs_tower",
        AtMost(3.0),
        MANY,
        || bench.calls(limited(), with_lane, 500),
        || bench.calls(tower(), with_lane, 500),
    );
    let body = small_body();
    ratio(
        "layer_vs_serde",
        AtMost(1.5),
        MANY,
        || bench.calls(limited(), || with_body(&body), 500),
        || time(500, || (0..500).for_each(|_| read_model(&body))),
    );
    let body = large_body();
    ratio(
        "scan_5mb_vs_serde",
        AtMost(0.7),
        Passes(51),
        || bench.calls(limited(), || with_body(&body), 1),
        || time(1, || read_model(&body)),
    );
    ratio(
        "off_vs_bare",
        AtMost(1.1),
        MANY,
        || bench.calls(off.clone(), with_lane, 500),
        || bench.calls(inner(one_frame), with_lane, 500),
    );
    let limited = InflightLimitLayer::new(limiter(LIMIT)).layer(inner(Chunks::new));
    difference(
        "body_chunk_ns",
        AtMost(20.0),
        MANY,
        || bench.chunks(limited.clone()),
        || bench.chunks(inner(Chunks::new)),
    );
}

const LIMIT: u32 = 8;

fn limiter(limit: u32) -> Limiter {
    Limiter::builder().max_inflight(limit).build().expect("a good configuration")
}

fn one_frame() -> Full<Bytes> {
    Full::new(Bytes::from_static(br#"{"choices":[{"message":{"content":"yes"}}]}"#))
}

type Answered<B> = Result<Response<B>, Infallible>;

/// Answers at once.
fn inner<B>(
    body: fn() -> B,
) -> impl Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible, Future: Future<Output = Answered<B>>>
+ Clone {
    tower::service_fn(move |request: Request<Full<Bytes>>| {
        drop(black_box(request));
        std::future::ready(Ok(Response::new(body())))
    })
}

fn with_lane() -> Request<Full<Bytes>> {
    let mut request = Request::post("https://gw.example/v1/chat/completions").body(Full::default()).expect("a request");
    request.extensions_mut().insert(LaneKey::new("https://gw.example/v1", "acme/smart"));
    request
}

fn with_body(body: &Bytes) -> Request<Full<Bytes>> {
    Request::post("https://gw.example/v1/chat/completions")
        .header("content-type", "application/json")
        .body(Full::new(body.clone()))
        .expect("a request")
}

/// 2 KiB of a conversation without escapes, then the model: escapes would slow the peer down more than us.
fn small_body() -> Bytes {
    body_of(PLAIN, 4, 460)
}

/// 5 MiB in 12,000 messages with escapes.
fn large_body() -> Bytes {
    let body = body_of(ESCAPED, 12_000, 402);
    assert!(body.len().abs_diff(5 << 20) < 100_000, "{} bytes", body.len());
    body
}

const PLAIN: &str = "He said no, and then it rained, and nobody came to look for the key any more, all day. ";
const ESCAPED: &str = "He said: \\\"no\\\".\\nThen it rained, and nobody came to look for the key any more. \\u00e4 ";

fn body_of(text: &str, messages: usize, length: usize) -> Bytes {
    let mut json = String::from(r#"{"temperature":0.7,"stream":true,"messages":["#);
    for n in 0..messages {
        let comma = if n == 0 { "" } else { "," };
        let content: String = text.chars().cycle().take(length).collect();
        // Not in the middle of an escape.
        let content = content.trim_end_matches(|c: char| c == '\\' || c.is_ascii_hexdigit() || c == 'u');
        write!(json, r#"{comma}{{"role":"user","content":"{content}"}}"#).expect("memory");
    }
    json.push_str(r#"],"model":"acme/smart"}"#);
    json.into()
}

/// One pass of `serde_json` that keeps nothing but the model.
fn read_model(body: &[u8]) {
    #[derive(Deserialize)]
    struct OnlyModel<'a> {
        #[serde(borrow)]
        model: Cow<'a, str>,
    }

    let read: OnlyModel<'_> = serde_json::from_slice(black_box(body)).expect("a body with a model");
    assert_eq!(black_box(read.model), "acme/smart");
}

struct Bench {
    runtime: Runtime,
    metrics: PrometheusHandle,
}

impl Bench {
    /// Nanoseconds per call.
    fn calls<S, B>(&self, mut service: S, request: impl Fn() -> Request<Full<Bytes>>, calls: usize) -> f64
    where
        S: Service<Request<Full<Bytes>>, Response = Response<B>, Error: Debug>,
        B: Body<Error: Debug>,
    {
        const AT_ONCE: usize = 500;
        let batches = calls.div_ceil(AT_ONCE);
        let mut took = 0.0;
        for _ in 0..batches {
            let requests: Vec<_> = (0..calls.min(AT_ONCE)).map(|_| request()).collect();
            took += self.runtime.block_on(async {
                let watch = Stopwatch::start();
                for request in requests {
                    let service = service.ready().await.expect("ready");
                    let response = service.call(request).await.expect("an answer");
                    let mut body = pin!(response.into_body());
                    while let Some(frame) = body.frame().await {
                        black_box(frame.expect("a frame"));
                    }
                }
                watch.per(calls)
            });
        }
        // Histograms keep every value until somebody looks.
        self.metrics.run_upkeep();
        took
    }

    /// Nanoseconds per chunk of one long body.
    fn chunks<S, B>(&self, mut service: S) -> f64
    where
        S: Service<Request<Full<Bytes>>, Response = Response<B>, Error: Debug>,
        B: Body<Error: Debug>,
    {
        self.runtime.block_on(async {
            let service = service.ready().await.expect("ready");
            let response = service.call(with_lane()).await.expect("an answer");
            let mut body = pin!(response.into_body());
            let watch = Stopwatch::start();
            while let Some(frame) = body.frame().await {
                black_box(frame.expect("a frame"));
            }
            watch.per(Chunks::COUNT)
        })
    }
}

/// A body of many chunks, each ready at once.
struct Chunks {
    left: usize,
}

impl Chunks {
    const COUNT: usize = 10_000;
    const CHUNK: [u8; 100] = [b'x'; 100];

    fn new() -> Self {
        Self { left: Self::COUNT }
    }
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&Self::CHUNK)))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.left * Self::CHUNK.len()) as u64)
    }
}
