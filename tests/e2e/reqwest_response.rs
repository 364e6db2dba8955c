//! What a response still says after it went through a reqwest-middleware chain: all of it.

use bytes::Bytes;
use http_body_util::BodyExt;
use reqwest::{Client, Method, Response, StatusCode};
use tower_inflight::{Admitted, LaneKey, Limiter};

use super::reply::Reply;
use super::reqwest_support::{chain, chat, plain, plain_h2};
use super::server::Server;
use super::support::{JSON, assert_idle, in_flight, limiter, outcomes, within};

/// `whole and unpacked`, packed with gzip.
const PACKED: [u8; 38] = [
    31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 43, 207, 200, 207, 73, 85, 72, 204, 75, 81, 40, 205, 43, 72, 76, 206, 78, 77, 1,
    0, 245, 227, 109, 149, 18, 0, 0, 0,
];

/// The same request through the chain and without it.
async fn both(client: &Client, limiter: &Limiter, server: &Server, method: Method) -> (Response, Response) {
    let lane = LaneKey::without_model("here");
    let through = chain(client.clone(), limiter.clone())
        .request(method.clone(), server.chat_url())
        .header("te", "trailers")
        .body(JSON)
        .with_extension(lane)
        .send();
    let through = within(through).await.expect("an answer");
    let bare = client.request(method, server.chat_url()).header("te", "trailers").body(JSON).send();
    let bare = within(bare).await.expect("an answer");
    assert_eq!(through.url(), bare.url());
    assert_eq!(through.status(), bare.status());
    assert_eq!(through.version(), bare.version());
    assert_eq!(through.headers(), bare.headers());
    assert_eq!(through.content_length(), bare.content_length());
    assert_eq!(through.remote_addr(), bare.remote_addr());
    assert_eq!(through.remote_addr(), Some(server.addr()));
    (through, bare)
}

/// All data, and the trailers.
async fn read(response: Response) -> (Bytes, Option<http::HeaderMap>) {
    let whole = http::Response::<reqwest::Body>::from(response).into_body().collect().await.expect("whole");
    let trailers = whole.trailers().cloned();
    (whole.to_bytes(), trailers)
}

fn redirecting(to: &'static str) -> impl Fn(&super::server::Seen) -> Reply + Send + Sync {
    move |seen| match seen.uri.path() {
        "/v1/chat/completions" => Reply::status(307).header("location", "/b"),
        _ if to == "gone" => Reply::whole(404, to).header("x-odd", "1"),
        _ => Reply::whole(200, to).header("x-odd", "1"),
    }
}

/// Case 48.
#[tokio::test]
async fn a_redirect_is_followed_in_one_slot_and_the_final_url_length_and_peer_are_kept() {
    for client in [plain(), plain_h2()] {
        let limiter = limiter(1);
        let server = Server::start(redirecting("abc")).await;
        let (through, bare) = both(&client, &limiter, &server, Method::POST).await;
        assert_eq!(through.url().as_str(), server.url("/b"));
        assert_eq!(through.content_length(), Some(3));
        assert_eq!(through.headers()["x-odd"], "1");
        assert!(through.error_for_status_ref().is_ok());
        assert_eq!(through.text().await.expect("whole"), bare.text().await.expect("whole"));
        assert_eq!(server.requests()[1].body, JSON);
        assert_eq!(outcomes(&limiter), "success 1");
        assert_idle(&limiter);
    }
}

/// Case 48.
#[tokio::test]
async fn error_for_status_names_the_real_url() {
    let limiter = limiter(1);
    let server = Server::start(redirecting("gone")).await;
    let (through, bare) = both(&plain(), &limiter, &server, Method::POST).await;
    let error = through.error_for_status().expect_err("not found");
    assert_eq!(error.url().map(reqwest::Url::as_str), Some(server.url("/b").as_str()));
    assert_eq!(error.status(), Some(StatusCode::NOT_FOUND));
    assert_eq!(error.to_string(), bare.error_for_status().expect_err("not found").to_string());
    assert_eq!(outcomes(&limiter), "client_error 1");
    assert_idle(&limiter);
}

#[tokio::test]
async fn answers_without_a_body_hold_nothing_and_keep_their_heads() {
    for client in [plain(), plain_h2()] {
        for (method, reply) in [
            (Method::HEAD, Reply::ok().header("content-length", "10")),
            (Method::HEAD, Reply::ok()),
            (Method::POST, Reply::status(204)),
            (Method::POST, Reply::ok().header("content-length", "0")),
            (Method::GET, Reply::status(304).header("etag", "x")),
        ] {
            let limiter = limiter(1);
            let server = Server::answering(reply).await;
            let (through, bare) = both(&client, &limiter, &server, method).await;
            assert_eq!((in_flight(&limiter), outcomes(&limiter).as_str()), (0, "success 1"));
            assert_eq!(read(through).await, read(bare).await);
            assert_idle(&limiter);
        }
    }
}

#[tokio::test]
async fn trailers_come_through_and_end_the_call() {
    for client in [plain(), plain_h2()] {
        let limiter = limiter(1);
        let server = Server::answering(Reply::ok().data("a").trailer("x-cost", "7")).await;
        let (through, bare) = both(&client, &limiter, &server, Method::POST).await;
        assert_eq!(in_flight(&limiter), 1);
        let (data, trailers) = read(through).await;
        assert_eq!(data, "a");
        assert_eq!(trailers.as_ref().expect("trailers")["x-cost"], "7");
        assert_eq!((data, trailers), read(bare).await);
        assert_eq!(outcomes(&limiter), "success 1");
        assert_idle(&limiter);
    }
}

#[tokio::test]
async fn a_packed_answer_is_unpacked_inside_and_frees_its_slot_at_its_end() {
    for client in [plain(), plain_h2()] {
        let limiter = limiter(1);
        let (first, rest) = PACKED.split_at(20);
        let reply = Reply::ok().header("content-encoding", "gzip").data(first).gate().data(rest);
        let server = Server::answering(reply).await;
        let (through, bare) = both(&client, &limiter, &server, Method::POST).await;
        assert!(!through.headers().contains_key("content-encoding"));
        assert_eq!(in_flight(&limiter), 1);
        server.open_gates(2);
        assert_eq!(through.text().await.expect("whole"), "whole and unpacked");
        assert_eq!(bare.text().await.expect("whole"), "whole and unpacked");
        assert_eq!(outcomes(&limiter), "success 1");
        assert_idle(&limiter);
    }
}

/// Case 43: an error answer is looked at, and comes whole.
#[tokio::test]
async fn error_bodies_come_byte_for_byte() {
    for client in [plain(), plain_h2()] {
        for reply in [
            Reply::whole(429, "{ \"error\" : {\"code\":\"x\"}}").header("x-ratelimit-remaining-requests", "3"),
            Reply::status(400).data("not ").gate().data("json"),
            Reply::whole(500, "oh"),
        ] {
            let limiter = limiter(1);
            let server = Server::answering(reply).await;
            server.open_gates(2);
            let (through, bare) = both(&client, &limiter, &server, Method::POST).await;
            assert_eq!(in_flight(&limiter), 0);
            assert_eq!(read(through).await, read(bare).await);
            assert_idle(&limiter);
        }
    }
}

#[tokio::test]
async fn a_response_says_how_it_was_admitted_beside_what_reqwest_put_there() {
    let limiter = limiter(1);
    let server = Server::answering(Reply::whole(200, "fine")).await;
    let response = chat(&chain(plain(), limiter.clone()), &server).send().await.expect("an answer");
    let admitted = response.extensions().get::<Admitted>().expect("admitted").clone();
    assert_eq!(admitted.lane().to_string(), format!("http://{}/v1|acme/smart", server.addr()));
    assert_eq!((admitted.position(), admitted.attempt()), (None, 1));
    assert_eq!(response.remote_addr(), Some(server.addr()));
}

#[tokio::test]
async fn a_limiter_that_is_off_changes_nothing() {
    let limiter = Limiter::builder().build().expect("valid");
    let server = Server::start(redirecting("abc")).await;
    let (through, bare) = both(&plain(), &limiter, &server, Method::POST).await;
    assert!(through.extensions().get::<Admitted>().is_none());
    assert_eq!(read(through).await, read(bare).await);
    assert!(!limiter.snapshot().enabled);
}
