//! hyper-util's client under the layer.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{join_all, poll_fn};
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tower::timeout::{TimeoutLayer, error::Elapsed};
use tower::{Layer, Service, ServiceExt};
use tower_inflight::{Call, InflightLimit, InflightLimitLayer, Limiter, Priority, ResponseBody};

use super::reply::{Reply, Step};
use super::server::Server;
use super::support::{JSON, assert_idle, eventually, in_flight, lane, limiter, outcomes, pass, queued, within};

pub(crate) type Bare = Client<HttpConnector, Full<Bytes>>;
pub(crate) type Limited = InflightLimit<Bare>;
pub(crate) type Answer = Response<ResponseBody<hyper::body::Incoming>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    H1,
    H2,
}

pub(crate) const BOTH: [Protocol; 2] = [Protocol::H1, Protocol::H2];

pub(crate) fn bare<Q>(protocol: Protocol) -> Client<HttpConnector, Q>
where
    Q: Body<Data: Send> + Send,
{
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    Client::builder(TokioExecutor::new()).http2_only(protocol == Protocol::H2).build(connector)
}

pub(crate) fn limited(protocol: Protocol, limiter: &Limiter) -> Limited {
    InflightLimitLayer::new(limiter.clone()).layer(bare(protocol))
}

pub(crate) fn chat(server: &Server) -> Request<Full<Bytes>> {
    Request::post(server.chat_url()).body(Full::from(JSON)).expect("a request")
}

async fn send(client: &Limited, request: Request<Full<Bytes>>) -> Answer {
    within(client.clone().oneshot(request)).await.expect("an answer")
}

async fn read_frames(response: &mut Answer, frames: usize) {
    for _ in 0..frames {
        response.frame().await.expect("more").expect("no error");
    }
}

/// Reading answers to their end, the server never has more open than the limit: exactly, as it counts an answer as over
/// before the client can know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_never_sees_more_open_bodies_than_the_limit() {
    for protocol in BOTH {
        let limiter = limiter(4);
        let reply = Reply::ok().data("a").step(Step::Yield).data("b").step(Step::Yield).data("c");
        let server = Arc::new(Server::answering(reply).await);
        let client = limited(protocol, &limiter);
        let calls = (0..400).map(|_| {
            let (client, request) = (client.clone(), chat(&server));
            tokio::spawn(async move { send(&client, request).await.collect().await.expect("whole").to_bytes() })
        });
        for body in within(join_all(calls)).await {
            assert_eq!(body.expect("no panic"), "abc");
        }
        let counts = server.counts();
        assert_eq!((counts.total, counts.open), (400, 0), "{protocol:?}");
        assert!((2..=4).contains(&counts.peak), "{protocol:?}: {counts:?}");
        assert_eq!(outcomes(&limiter), "success 400");
        assert_idle(&limiter);
    }
}

/// Case 1. An early drop frees the slot before the server notices: it may see more, by those that were dropped already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandoned_stream_gives_its_slot_back_at_once_a_thousand_times() {
    for protocol in BOTH {
        let limiter = limiter(1);
        let server = Server::answering(Reply::endless()).await;
        let client = limited(protocol, &limiter);
        within(async {
            for _ in 0..1_000 {
                let mut response = send(&client, chat(&server)).await;
                read_frames(&mut response, 2).await;
                assert_eq!(in_flight(&limiter), 1);
                server.client_drops();
                drop(response);
                assert_eq!(in_flight(&limiter), 0);
            }
        })
        .await;
        server.until("all aborts are noticed", |counts| counts.open == 0).await;
        let counts = server.counts();
        assert_eq!((counts.total, counts.aborted), (1_000, 1_000), "{protocol:?}");
        assert_eq!(counts.strict_peak, 1, "{protocol:?}: {counts:?}");
        assert_eq!(outcomes(&limiter), "cancelled 1000");
        assert_eq!(lane(&limiter).wait_p90_s_5m, 0.0, "nobody had to wait");
        assert_idle(&limiter);
    }
}

/// Cases 15 and 14.
#[tokio::test]
async fn an_open_body_keeps_the_next_call_waiting_until_its_end() {
    for protocol in BOTH {
        let limiter = limiter(1);
        let server = Server::answering(Reply::ok().data("a").gate().data("b")).await;
        let client = limited(protocol, &limiter);
        let mut first = send(&client, chat(&server)).await;
        read_frames(&mut first, 1).await;

        let second = tokio::spawn({
            let (client, request) = (client.clone(), chat(&server));
            async move { send(&client, request).await.collect().await.expect("whole").to_bytes() }
        });
        eventually("the second call queues", || queued(&limiter) == 1).await;
        assert_eq!(server.counts().total, 1);

        server.open_gates(2);
        assert_eq!(first.collect().await.expect("whole").to_bytes(), "b");
        assert_eq!(within(second).await.expect("no panic"), "ab");
        assert_eq!(server.counts().peak, 1);
        assert_idle(&limiter);
    }
}

#[tokio::test]
async fn a_call_dropped_before_its_head_is_cancelled_upstream_and_gives_its_slot_back() {
    for protocol in BOTH {
        let limiter = limiter(1);
        let server = Server::answering(Reply::never()).await;
        let client = limited(protocol, &limiter);
        let call = tokio::spawn(client.clone().oneshot(chat(&server)));
        server.until("the call is there", |counts| counts.open == 1).await;
        assert_eq!(in_flight(&limiter), 1);
        call.abort();
        assert!(call.await.expect_err("aborted").is_cancelled());
        assert_eq!(in_flight(&limiter), 0);
        server.until("the abort is noticed", |counts| counts.aborted == 1).await;
        assert_eq!(outcomes(&limiter), "cancelled 1");
        assert_idle(&limiter);
    }
}

/// Case 140.
#[tokio::test]
async fn a_timeout_inside_or_outside_cancels_the_work_and_frees_the_slot_together() {
    let bound = Duration::from_secs(30);
    let timeout = TimeoutLayer::new(bound);
    for (is_inside, outcome) in [(true, "transport 1"), (false, "cancelled 1")] {
        let limiter = limiter(1);
        let server = Server::answering(Reply::never()).await;
        let layer = InflightLimitLayer::new(limiter.clone());
        let call = if is_inside {
            tokio::spawn(layer.layer(timeout.layer(bare(Protocol::H1))).oneshot(chat(&server)))
        } else {
            tokio::spawn(timeout.layer(layer.layer(bare(Protocol::H1))).oneshot(chat(&server)))
        };
        server.until("the work has begun", |counts| counts.open == 1).await;
        pass(bound).await;
        let error = within(call).await.expect("no panic").expect_err("too slow");
        assert!(error.is::<Elapsed>());
        assert_eq!((in_flight(&limiter), outcomes(&limiter).as_str()), (0, outcome));
        server.until("the work is cancelled", |counts| counts.aborted == 1).await;
        assert_idle(&limiter);
    }
}

/// Case 131: an error answer that its owner keeps holds no slot.
#[tokio::test]
async fn a_refusal_that_is_kept_unread_blocks_nobody_and_stays_readable() {
    for protocol in BOTH {
        let limiter = limiter(1);
        let body = r#"{"error":{"type":"tokens","code":"rate_limit_exceeded"}}"#;
        let server = Server::in_turn([Reply::whole(429, body), Reply::whole(200, "fine")]).await;
        let client = limited(protocol, &limiter);
        let kept = send(&client, chat(&server)).await;
        assert_eq!(kept.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(in_flight(&limiter), 0);
        let second = within(send(&client, chat(&server))).await;
        assert_eq!(second.collect().await.expect("whole").to_bytes(), "fine");
        assert_eq!(kept.collect().await.expect("whole").to_bytes(), body);
        assert_eq!(outcomes(&limiter), "overload 1, success 1");
        assert_idle(&limiter);
    }
}

/// Case 43.
#[tokio::test]
async fn heads_and_bytes_are_the_same_with_the_layer_as_without() {
    const ODD: &str = "{ \"messages\" : [ ],\n\t\"model\":\"acme/smart\" ,\"z\":1 , \"a\": \"\\u00e9\" }";
    let replies = [
        Reply::whole(200, "{ \"b\":1,\n \"a\":2 }").header("x-odd", "a, b").header("x-odd", "c"),
        Reply::ok().data("chunked").gate().data(" answer"),
        Reply::whole(429, "{\"error\" : {\"code\":\"x\"}}").header("x-ratelimit-remaining-requests", "3"),
        Reply::status(500).data("no").gate().data("pe"),
    ];
    for (protocol, reply) in BOTH.iter().flat_map(|protocol| replies.iter().map(move |reply| (*protocol, reply))) {
        let server = Server::answering(reply.clone()).await;
        server.open_gates(2);
        let request = || {
            Request::post(server.url("/v1/chat/completions?b=2&a=%20"))
                .header("content-type", "application/json")
                .header("X-Mixed", "Case ; stays")
                .body(Full::<Bytes>::from(ODD))
                .expect("a request")
        };
        let through = limited(protocol, &limiter(1)).oneshot(request()).await.expect("an answer");
        let bare = bare(protocol).request(request()).await.expect("an answer");
        assert_eq!(through.status(), bare.status());
        assert_eq!(through.version(), bare.version());
        assert_eq!(through.headers(), bare.headers());
        let through = through.collect().await.expect("whole").to_bytes();
        assert_eq!(through, bare.collect().await.expect("whole").to_bytes());

        let seen = server.requests();
        assert_eq!(seen[0].headers, seen[1].headers);
        assert_eq!((&seen[0].uri, &seen[0].method), (&seen[1].uri, &seen[1].method));
        assert_eq!(seen[0].body, ODD);
        assert_eq!(seen[1].body, ODD);
    }
}

/// Cases 66 and 43: a body that is not in memory is sent as it comes, in the lane of its endpoint.
#[tokio::test]
async fn a_streamed_upload_passes_unread_in_the_lane_of_its_endpoint() {
    let limiter = limiter(1);
    let server = Server::answering(Reply::ok()).await;
    let pieces = [r#"{"model":"#, r#""acme/smart"}"#].map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece)));
    let frames = pieces.map(|piece| piece.map(http_body::Frame::data));
    let body = UnsyncBoxBody::new(StreamBody::new(futures_util::stream::iter(frames)));
    let client = InflightLimitLayer::new(limiter.clone()).layer(bare(Protocol::H1));
    client.oneshot(Request::post(server.chat_url()).body(body).expect("a request")).await.expect("an answer");
    let seen = &server.requests()[0];
    assert_eq!(seen.body, JSON);
    assert_eq!(seen.headers["transfer-encoding"], "chunked");
    assert!(!seen.headers.contains_key("content-length"));
    assert_eq!(lane(&limiter).lane, format!("http://{}/v1|*", server.addr()));
}

#[tokio::test]
async fn a_waiting_call_is_served_by_class_over_a_real_connection() {
    let limiter = limiter(1);
    let server = Server::in_turn([Reply::endless(), Reply::ok()]).await;
    let client = limited(Protocol::H1, &limiter);
    let first = send(&client, chat(&server)).await;
    let mut calls = Vec::new();
    for (n, class) in (1..).zip([Priority::Bulk, Priority::Default, Priority::Interactive]) {
        let mut request = chat(&server);
        request.extensions_mut().insert(Call::new(class));
        request.headers_mut().insert("x-class", class.as_str().parse().expect("a value"));
        calls.push(tokio::spawn(client.clone().oneshot(request)));
        eventually("it queues", || queued(&limiter) == n).await;
    }
    drop(first);
    for call in calls {
        within(call).await.expect("no panic").expect("an answer");
    }
    let order: Vec<_> = server.requests().iter().skip(1).map(|seen| seen.headers["x-class"].clone()).collect();
    assert_eq!(order, ["interactive", "default", "bulk"]);
}

/// Case 150.
#[test]
fn bodies_and_waiting_calls_may_be_dropped_after_their_runtime_is_gone() {
    let servers =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let server = servers.block_on(Server::answering(Reply::endless()));
    for protocol in BOTH {
        let limiter = limiter(1);
        let clients = tokio::runtime::Runtime::new().expect("a runtime");
        let client = limited(protocol, &limiter);
        let (body, mut waiting) = clients.block_on(async {
            let mut response = send(&client, chat(&server)).await;
            read_frames(&mut response, 1).await;
            let mut waiting = Box::pin(client.clone().call(chat(&server)));
            assert!(poll_fn(|cx| std::task::Poll::Ready(Pin::new(&mut waiting).poll(cx).is_pending())).await);
            (response.into_body(), waiting)
        });
        drop(clients);
        assert_eq!((in_flight(&limiter), queued(&limiter)), (1, 1));
        std::thread::spawn(move || {
            let waker = std::task::Waker::noop();
            let mut cx = std::task::Context::from_waker(waker);
            assert!(Pin::new(&mut waiting).poll(&mut cx).is_pending());
            drop(waiting);
            let unwinding = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                let _body = body;
                panic!("with the body in hand");
            }));
            assert!(unwinding.is_err());
        })
        .join()
        .expect("no other panic");
        assert_eq!((in_flight(&limiter), queued(&limiter)), (0, 0), "{protocol:?}");
        assert_idle(&limiter);
    }
}
