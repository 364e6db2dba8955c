//! What passes through is what was sent: bytes, headers, hints, errors, and nothing ahead of its time.

use std::cell::Cell;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::{HeaderMap, Request, Response, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use tower::{Service, ServiceExt, service_fn};
use tower_inflight::{
    BoxError, InflightLimit, InflightLimitLayer, LimitConfig, PeekBody, Peeked, ResponseBody, ResponseFuture,
};
use tower_layer::Layer;

use crate::support::*;

async fn open(script: Script) -> Reply {
    let script = Arc::new(Mutex::new(Some(script)));
    let client = answering(&limiter(1), move |_| ok(script.lock().unwrap().take().unwrap()));
    send(&client).await.unwrap()
}

// Case 39.
#[tokio::test]
async fn the_exact_length_of_a_body_shows_through() {
    let layer = InflightLimitLayer::new(limiter(1));
    let client = layer.layer(service_fn(|_: Query| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("twelve bytes"))))
    }));
    let mut body = client.oneshot(chat()).await.unwrap().into_body();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(12), false));
    body.frame().await.unwrap().unwrap();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
}

// Case 39.
#[tokio::test]
async fn a_body_with_trailers_left_is_not_over() {
    let mut body = open(Script::new([data("x"), trailers()]).telling_end()).await.into_body();
    assert!(!body.is_end_stream());
    body.frame().await.unwrap().unwrap();
    assert!(!body.is_end_stream());
    assert!(body.frame().await.unwrap().unwrap().is_trailers());
    assert!(body.is_end_stream());
}

// Case 39.
#[tokio::test]
async fn a_stream_of_unknown_length_stays_one() {
    let body = open(Script::new([data("x")])).await.into_body();
    assert_eq!((body.size_hint().lower(), body.size_hint().upper()), (0, None));
    assert!(!body.is_end_stream());
}

// Case 39.
#[tokio::test]
async fn an_empty_body_is_over_at_once() {
    let body = open(Script::new([]).sized().telling_end()).await.into_body();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
}

// Case 40.
#[tokio::test]
async fn frames_arrive_unchanged_and_in_order() {
    let mut body = open(Script::new([data("x"), data(""), data("y"), trailers()])).await.into_body();
    for expected in ["x", "", "y"] {
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), expected);
    }
    let trailers = body.frame().await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "0");
    assert!(body.frame().await.is_none());
}

const ODD: &str = "{ \"messages\" :[ ],\n\t\"temperature\":0.10 ,  \"model\" : \"m\"}";

// Case 43.
#[tokio::test]
async fn the_upstream_gets_the_very_bytes_and_headers() {
    let seen = Arc::new(Mutex::new(None));
    let client = answering(&limiter(1), {
        let seen = seen.clone();
        move |query| {
            *seen.lock().unwrap() = Some(query);
            ok(Script::new([]))
        }
    });
    let body = Bytes::from(ODD);
    let sent = Request::post("https://User:pw@GW.example:443//v1/chat/completions?key=secret&x=%2F")
        .version(Version::HTTP_2)
        .header("content-length", body.len())
        .header("X-Odd", "a")
        .header("x-odd", "b")
        .header("content-type", "text/plain")
        .extension(42_u32)
        .body(Full::new(body.clone()))
        .unwrap();
    let (uri, headers) = (sent.uri().clone(), sent.headers().clone());
    send_query(&client, sent).await.unwrap();

    let got = seen.lock().unwrap().take().unwrap();
    assert_eq!((got.uri(), got.headers(), got.version()), (&uri, &headers, Version::HTTP_2));
    assert_eq!(got.extensions().get::<u32>(), Some(&42));
    let got = got.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(got, ODD);
    assert_eq!(got.as_ptr(), body.as_ptr(), "the same memory");
}

fn decorated(code: u16) -> Response<Script> {
    let mut response = status(code, Script::new([data("{\"a\" "), data(":1}")]).sized());
    response.headers_mut().insert("content-length", "8".parse().unwrap());
    response.headers_mut().append("set-cookie", "a=1".parse().unwrap());
    response.headers_mut().append("set-cookie", "b=2".parse().unwrap());
    response.extensions_mut().insert(42_u32);
    *response.version_mut() = Version::HTTP_2;
    response
}

// Case 43.
#[tokio::test]
async fn the_caller_gets_the_very_bytes_and_headers() {
    for code in [200, 302, 400, 429, 503] {
        let client = answering(&limiter(1), move |_| decorated(code));
        let reply = send(&client).await.unwrap();
        let plain = decorated(code);
        assert_eq!(reply.status(), plain.status());
        assert_eq!((reply.headers(), reply.version()), (plain.headers(), Version::HTTP_2));
        assert_eq!(reply.extensions().get::<u32>(), Some(&42));
        assert_eq!(reply.body().size_hint().exact(), Some(8));
        assert_eq!(read(reply).await.unwrap(), "{\"a\" :1}");
    }
}

/// 64 KiB a frame, without end.
struct Fountain(Arc<AtomicUsize>);

impl Body for Fountain {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![7; 64 * 1024])))))
    }
}

// Case 44.
#[tokio::test(start_paused = true)]
async fn nothing_is_read_ahead_of_the_reader() {
    let polls = Arc::new(AtomicUsize::new(0));
    let made = polls.clone();
    let client = InflightLimitLayer::new(limiter(1)).layer(service_fn(move |_: Query| {
        let body = Fountain(made.clone());
        async move { Ok::<_, Infallible>(Response::new(body)) }
    }));
    let mut body = client.oneshot(chat()).await.unwrap().into_body();
    assert_eq!(polls.load(Ordering::Relaxed), 0);
    for read in 1..=3 {
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), 64 * 1024);
        assert_eq!(polls.load(Ordering::Relaxed), read);
    }
    sleep(10.0).await;
    assert_eq!(polls.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn an_error_of_the_inner_service_is_handed_on_as_it_is() {
    let limiter = limiter(1);
    let client = client(&limiter, |_| async { Err(reset(3).into()) });
    let error = send(&client).await.err().unwrap();
    assert_eq!(error.downcast_ref::<Reset>().unwrap().id, 3);
    assert_eq!(outcomes(&limiter)["transport"], 1);
}

#[derive(Clone)]
struct Broken;

impl Service<Query> for Broken {
    type Response = Response<Script>;
    type Error = Reset;
    type Future = std::future::Pending<Result<Response<Script>, Reset>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Reset>> {
        Poll::Ready(Err(reset(4)))
    }

    fn call(&mut self, _: Query) -> Self::Future {
        unreachable!("it is never ready")
    }
}

#[tokio::test]
async fn an_error_of_getting_ready_is_handed_on_as_it_is() {
    let limiter = limiter(1);
    let mut client = over(&limiter, Broken);
    assert!(client.ready().await.is_ok(), "before the grant nobody asks");
    let error = send(&client).await.err().unwrap();
    assert_eq!(error.downcast_ref::<Reset>().unwrap().id, 4);
    assert_eq!(outcomes(&limiter)["transport"], 1);
    assert_idle(&limiter);
}

#[tokio::test]
async fn while_the_limiter_is_off_the_inner_service_says_when_it_is_ready() {
    let mut client = InflightLimitLayer::new(limiter(0)).layer(Broken);
    let error = client.ready().await.err().unwrap();
    assert_eq!(error.downcast_ref::<Reset>().unwrap().id, 4);
}

/// Insists on being driven ready before each call, as a service with a slot of its own would.
#[derive(Default)]
struct Strict {
    is_ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Service<Query> for Strict {
    type Response = Response<Script>;
    type Error = Reset;
    type Future = std::future::Ready<Result<Response<Script>, Reset>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Reset>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Query) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "called without being ready");
        std::future::ready(Ok(status(200, Script::new([]))))
    }
}

fn config(max_inflight: u32) -> LimitConfig {
    let mut config = LimitConfig::default();
    config.max_inflight = max_inflight;
    config
}

#[tokio::test]
async fn the_instance_that_was_driven_ready_is_called_whether_the_limiter_is_on_or_off_or_changes() {
    for (at_ready, at_call) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let limiter = limiter(at_ready);
        let mut client = InflightLimitLayer::new(limiter.clone()).layer(Strict::default());
        let client = client.ready().await.unwrap();
        limiter.reconfigure(config(at_call)).unwrap();
        // A clone was never ready, nor is the service itself after its call.
        client.clone().call(chat()).await.unwrap();
        client.call(chat()).await.unwrap();
        client.call(chat()).await.unwrap();
        assert_eq!(limiter.is_enabled(), at_call > 0);
    }
}

/// A body whose error is boxed already.
struct Boxed;

impl Body for Boxed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(Some(Err(reset(9).into())))
    }
}

#[tokio::test]
async fn a_boxed_error_of_a_body_is_not_boxed_again() {
    for code in [200, 429] {
        let client = InflightLimitLayer::new(limiter(1)).layer(service_fn(move |_: Query| async move {
            Ok::<_, Infallible>(Response::builder().status(code).body(Boxed).unwrap())
        }));
        let mut body = client.oneshot(chat()).await.unwrap().into_body();
        let error = body.frame().await.unwrap().unwrap_err();
        assert_eq!(error.downcast_ref::<Reset>().unwrap().id, 9);
    }
}

/// Frames that may be sent to another thread, but not be shared.
struct Unshared(Cell<u8>);

impl Buf for Unshared {
    fn remaining(&self) -> usize {
        0
    }

    fn chunk(&self) -> &[u8] {
        self.0.set(1);
        &[]
    }

    fn advance(&mut self, _: usize) {}
}

struct OfUnshared;

impl Body for OfUnshared {
    type Data = Unshared;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Unshared>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(Unshared(Cell::new(0))))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::new()
    }
}

fn is_shared<T: Send + Sync + 'static>() {}
fn is_sent<T: Send + 'static>() {}

/// `reqwest::Body::wrap` asks for it.
#[test]
fn response_bodies_are_as_send_and_sync_as_what_they_wrap() {
    type Upstream = tower::util::BoxCloneSyncService<Query, Response<Full<Bytes>>, BoxError>;

    is_shared::<ResponseBody<Full<Bytes>>>();
    is_shared::<ResponseBody<Script>>();
    is_shared::<ResponseBody<ResponseBody<Script>>>();
    is_shared::<ResponseBody<OfUnshared>>();
    is_shared::<InflightLimit<Upstream>>();
    is_sent::<ResponseFuture<Upstream, Full<Bytes>, Full<Bytes>>>();
    is_sent::<ResponseBody<http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>>>();
}

#[tokio::test]
async fn a_wrapped_body_fits_into_reqwest() {
    let reply = open(Script::new([data("a"), data("b")])).await;
    let body = reqwest::Body::wrap(reply.into_body());
    assert_eq!(body.collect().await.unwrap().to_bytes(), "ab");
}

/// A request body of the caller's own, streamed.
struct Upload;

impl PeekBody for Upload {
    fn peek(&self) -> Option<Peeked<'_>> {
        None
    }
}

#[tokio::test]
async fn request_bodies_of_any_type_pass() {
    let client = InflightLimitLayer::new(limiter(1)).layer(service_fn(|_: Request<Upload>| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("got it"))))
    }));
    let mut request = Request::post("https://gw.example/v1/chat/completions").body(Upload).unwrap();
    *request.headers_mut() = HeaderMap::new();
    let reply = client.oneshot(request).await.unwrap();
    assert_eq!(reply.into_body().collect().await.unwrap().to_bytes(), "got it");
}
