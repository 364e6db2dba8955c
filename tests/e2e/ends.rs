//! Each way in which a body ends, over HTTP/1 and HTTP/2: when its slot comes back, and that nothing else changes.

use std::error::Error;

use bytes::Bytes;
use futures_util::future::join;
use http::{Request, Version};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tower::ServiceExt;
use tower_inflight::{LaneKey, Limiter};

use super::hyper::{BOTH, Limited, Protocol, bare, limited};
use super::reply::{Reply, Step};
use super::server::Server;
use super::support::{JSON, assert_idle, eventually, in_flight, is_caused_by, lane, limiter, outcomes, queued, within};

/// What a reader sees at one moment, and whether the slot is still held after it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stop {
    saw: &'static str,
    is_end_stream: bool,
    size: Option<u64>,
}

/// `head`, each `data`, `trailers` or `error`, and `end`, with `+` while the slot is held.
fn shown(stops: &[(Stop, u32)]) -> String {
    let shown = |(stop, held): &(Stop, u32)| format!("{}{}", stop.saw, if *held > 0 { "+" } else { "" });
    stops.iter().map(shown).collect::<Vec<_>>().join(" ")
}

/// Reads to the end, opening a gate of the server after each frame.
async fn walk<B>(mut body: B, server: &Server, limiter: &Limiter) -> Vec<(Stop, u32)>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    let stop = |body: &B, saw| {
        let stop = Stop { saw, is_end_stream: body.is_end_stream(), size: body.size_hint().exact() };
        (stop, in_flight(limiter))
    };
    let mut stops = vec![stop(&body, "head")];
    loop {
        let saw = match body.frame().await {
            None => "end",
            Some(Ok(frame)) if frame.is_trailers() => "trailers",
            Some(Ok(_)) => "data",
            Some(Err(error)) => {
                assert!(is_caused_by::<::hyper::Error>(&*error.into()), "the error is hyper's own");
                // After an error, clients differ in what they say; ours says that it is over.
                stops.push((Stop { saw: "error", is_end_stream: true, size: Some(0) }, in_flight(limiter)));
                return stops;
            }
        };
        stops.push(stop(&body, saw));
        if saw == "end" {
            return stops;
        }
        server.open_gates(1);
    }
}

/// The client under the limiter sees what the bare client sees, and holds its slot as `expected`. Returns the outcomes.
async fn holds(protocol: Protocol, request: Request<()>, reply: Reply, expected: &str) -> String {
    let limiter = limiter(1);
    let server = Server::answering(reply.clone()).await;
    let client = limited(protocol, &limiter);
    let response = within(client.clone().oneshot(to(&server, &request))).await.expect("an answer");
    let mut body = response.into_body();
    let stops = within(walk(&mut body, &server, &limiter)).await;
    assert_eq!(shown(&stops), expected, "{protocol:?}");

    let unlimited = Server::answering(reply).await;
    let plain = bare(protocol).request(to(&unlimited, &request)).await.expect("an answer");
    let plain = within(walk(plain.into_body(), &unlimited, &limiter)).await;
    let seen = |stops: &[(Stop, u32)]| stops.iter().map(|(stop, _)| stop.clone()).collect::<Vec<_>>();
    assert_eq!(seen(&stops), seen(&plain), "{protocol:?}");

    assert!(body.frame().await.is_none() && body.frame().await.is_none());
    let outcomes = outcomes(&limiter);
    assert_idle(&limiter);
    drop(body);
    released_once(&client, &limiter).await;
    outcomes
}

fn to(server: &Server, request: &Request<()>) -> Request<Full<Bytes>> {
    let mut request = request.clone().map(|()| Full::from(JSON));
    *request.uri_mut() = server.chat_url().parse().expect("a URI");
    request
}

/// Case 7: of two calls after it, one runs and one waits.
async fn released_once(client: &Limited, limiter: &Limiter) {
    let server = Server::answering(Reply::endless()).await;
    let lane = lane(limiter).lane;
    let key = match lane.split_once('|').expect("endpoint and model") {
        (endpoint, "*") => LaneKey::without_model(endpoint),
        (endpoint, model) => LaneKey::new(endpoint, model),
    };
    let call = || {
        let mut request = to(&server, &post());
        request.extensions_mut().insert(key.clone());
        client.clone().oneshot(request)
    };
    let two = tokio::spawn(join(call(), call()));
    eventually("one runs, one waits", || (in_flight(limiter), queued(limiter)) == (1, 1)).await;
    server.until("one call arrives", |counts| counts.total == 1).await;
    two.abort();
    assert!(two.await.is_err());
    assert_idle(limiter);
}

fn post() -> Request<()> {
    Request::post("/").body(()).expect("a request")
}

/// No call to a model, so it names its lane.
fn head() -> Request<()> {
    Request::head("/").extension(LaneKey::without_model("heads")).body(()).expect("a request")
}

fn asking_for_trailers() -> Request<()> {
    Request::post("/").header("te", "trailers").body(()).expect("a request")
}

fn sized(length: u32) -> Reply {
    Reply::ok().header("content-length", &length.to_string())
}

#[tokio::test]
async fn h1_with_content_length_ends_with_its_last_data() {
    let reply = sized(2).data("a").gate().data("b");
    let outcomes = holds(Protocol::H1, post(), reply, "head+ data+ data end").await;
    assert_eq!(outcomes, "success 1");
}

#[tokio::test]
async fn h1_chunked_ends_when_it_says_so() {
    let reply = Reply::ok().data("a").gate().data("b");
    let outcomes = holds(Protocol::H1, post(), reply, "head+ data+ data+ end").await;
    assert_eq!(outcomes, "success 1");
}

#[tokio::test]
async fn h1_close_delimited_ends_with_the_connection() {
    let mut request = post();
    *request.version_mut() = Version::HTTP_10;
    let reply = Reply::ok().data("a").gate().data("b").gate();
    let outcomes = holds(Protocol::H1, request, reply, "head+ data+ data+ end").await;
    assert_eq!(outcomes, "success 1");
}

#[tokio::test]
async fn h1_chunked_and_empty_ends_only_when_it_says_so() {
    let reply = Reply::ok().ends_apart();
    assert_eq!(holds(Protocol::H1, post(), reply, "head+ end").await, "success 1");
}

#[tokio::test]
async fn h1_trailers_are_the_end() {
    let reply = Reply::ok().data("a").gate().trailer("x-cost", "7");
    let outcomes = holds(Protocol::H1, asking_for_trailers(), reply, "head+ data+ trailers end").await;
    assert_eq!(outcomes, "success 1");
}

#[tokio::test]
async fn h2_ends_with_its_last_data() {
    let reply = Reply::ok().data("a").gate().data("b");
    assert_eq!(holds(Protocol::H2, post(), reply, "head+ data+ data end").await, "success 1");
}

#[tokio::test]
async fn h2_that_ends_apart_from_its_data_ends_when_it_says_so() {
    let reply = Reply::ok().data("a").gate().ends_apart();
    assert_eq!(holds(Protocol::H2, post(), reply, "head+ data+ data end").await, "success 1");
}

#[tokio::test]
async fn h2_trailers_are_the_end() {
    let reply = Reply::ok().data("a").gate().trailer("x-cost", "7");
    assert_eq!(holds(Protocol::H2, post(), reply, "head+ data+ trailers end").await, "success 1");
}

/// Nothing is left of the length, and a frame is left of the body.
#[tokio::test]
async fn h2_trailers_after_all_of_the_content_length_are_the_end() {
    let reply = sized(1).data("a").gate().trailer("x-cost", "7");
    assert_eq!(holds(Protocol::H2, post(), reply, "head+ data+ trailers end").await, "success 1");
}

#[tokio::test]
async fn h2_empty_apart_from_its_head_ends_when_it_says_so() {
    let reply = Reply::ok().ends_apart();
    let limiter = limiter(1);
    let server = Server::answering(reply).await;
    let response = limited(Protocol::H2, &limiter).oneshot(to(&server, &post())).await.expect("an answer");
    assert!(response.collect().await.expect("whole").to_bytes().is_empty());
    assert_eq!(outcomes(&limiter), "success 1");
    assert_idle(&limiter);
}

#[tokio::test]
async fn answers_without_a_body_hold_nothing_after_their_head() {
    for protocol in BOTH {
        for (request, reply) in [
            (post(), sized(0)),
            (post(), Reply::ok()),
            (post(), Reply::status(204)),
            (post(), Reply::status(304)),
            (head(), Reply::ok()),
            (head(), sized(10)),
            (head(), Reply::status(204)),
            (head(), Reply::status(304).header("content-length", "10")),
        ] {
            let outcomes = holds(protocol, request, reply, "head end").await;
            assert_eq!(outcomes, "success 1");
        }
    }
}

/// Case 42.
#[tokio::test]
async fn a_reset_in_mid_stream_is_one_transport_failure_and_frees_the_slot_at_the_error() {
    for protocol in BOTH {
        for reply in [Reply::ok(), sized(9)] {
            let reply = reply.data("a").gate().data("b").gate().reset();
            let outcomes = holds(protocol, post(), reply, "head+ data+ data+ error").await;
            assert_eq!(outcomes, "transport 1");
        }
    }
}

/// A reset stream takes nobody else's slot or stream along.
#[tokio::test]
async fn a_reset_stream_leaves_its_neighbour_on_the_connection_alone() {
    let limiter = limiter(2);
    let replies = [Reply::ok().data("a").gate().reset(), Reply::ok().data("b").gate().data("c")];
    let server = Server::in_turn(replies).await;
    let client = limited(Protocol::H2, &limiter);
    let mut first = client.clone().oneshot(to(&server, &post())).await.expect("an answer");
    assert!(first.frame().await.expect("more").is_ok());
    let mut second = client.oneshot(to(&server, &post())).await.expect("an answer");
    assert!(second.frame().await.expect("more").is_ok());
    server.open_gates(2);
    assert!(within(first.frame()).await.expect("more").is_err());
    assert_eq!(within(second.collect()).await.expect("whole").to_bytes(), "c");
    assert_eq!(outcomes(&limiter), "success 1, transport 1");
    assert_idle(&limiter);
}

/// Clients of event streams stop at the last event, and of sized bodies at the last byte: neither polls on to the end.
#[tokio::test]
async fn a_complete_body_that_is_not_read_to_its_end_mark_is_a_success() {
    for protocol in BOTH {
        for reply in [Reply::events(["{}"]).step(Step::Hang), sized(2).data("a").gate().data("b")] {
            let limiter = limiter(1);
            let server = Server::answering(reply).await;
            let mut response = limited(protocol, &limiter).oneshot(to(&server, &post())).await.expect("an answer");
            for _ in 0..2 {
                within(response.frame()).await.expect("more").expect("no error");
                server.open_gates(1);
            }
            drop(response);
            assert_eq!(outcomes(&limiter), "success 1", "{protocol:?}");
            assert_idle(&limiter);
        }
    }
}

/// And one that has not said its last word is not.
#[tokio::test]
async fn an_event_stream_dropped_before_its_last_event_is_cancelled() {
    for protocol in BOTH {
        let limiter = limiter(1);
        let server = Server::answering(Reply::ok().data("data: {}\n\n").gate().data("data: [DONE]\n\n")).await;
        let mut response = limited(protocol, &limiter).oneshot(to(&server, &post())).await.expect("an answer");
        within(response.frame()).await.expect("more").expect("no error");
        drop(response);
        assert_eq!(outcomes(&limiter), "cancelled 1", "{protocol:?}");
        assert_idle(&limiter);
    }
}
