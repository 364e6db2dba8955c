//! Streams through a reqwest-middleware chain.

use std::error::Error;
use std::time::Duration;

use futures_util::StreamExt;
use reqwest::Client;
use tower_inflight::{Limiter, Priority, Silence, Stalled};

use super::reply::{Reply, Step};
use super::reqwest_support::{chain, chat, lane_of, plain, plain_h2, plain_with, retrying};
use super::server::Server;
use super::support::{assert_idle, eventually, in_flight, is_caused_by, lane, limiter, outcomes, pass, queued, within};

const TIMEOUT: Duration = Duration::from_secs(50);

fn both() -> [Client; 2] {
    [plain(), plain_h2()]
}

#[tokio::test]
async fn a_stream_comes_piece_by_piece_and_holds_its_slot_until_its_end() {
    for client in both() {
        let limiter = limiter(1);
        let server = Server::answering(Reply::ok().data("a").gate().data("b").gate().ends_apart()).await;
        let mut response = chat(&chain(client, limiter.clone()), &server).send().await.expect("an answer");
        for piece in ["a", "b"] {
            assert_eq!(within(response.chunk()).await.expect("no error").expect("more"), piece);
            assert_eq!(in_flight(&limiter), 1);
            server.open_gates(1);
        }
        while within(response.chunk()).await.expect("no error").is_some() {}
        assert_eq!((in_flight(&limiter), outcomes(&limiter).as_str()), (0, "success 1"));
        assert_eq!(lane(&limiter).lane, lane_of(&limiter, &server).key().to_string());
        assert_idle(&limiter);
    }
}

#[tokio::test]
async fn a_second_call_waits_for_the_end_of_the_first_stream() {
    let limiter = limiter(1);
    let server = Server::answering(Reply::ok().data("a").gate().data("b")).await;
    let client = chain(plain(), limiter.clone());
    let first = chat(&client, &server).send().await.expect("an answer");
    let second = tokio::spawn(chat(&client, &server).send());
    eventually("the second queues", || queued(&limiter) == 1).await;
    assert_eq!(server.counts().total, 1);
    server.open_gates(2);
    assert_eq!(first.text().await.expect("whole"), "ab");
    let second = within(second).await.expect("no panic").expect("an answer");
    assert_eq!(second.text().await.expect("whole"), "ab");
    assert_eq!(server.counts().peak, 1);
    assert_idle(&limiter);
}

/// Case 1.
#[tokio::test]
async fn a_stream_dropped_half_way_frees_its_slot_at_once_and_is_closed_upstream() {
    for client in both() {
        for as_stream in [false, true] {
            let limiter = limiter(1);
            let server = Server::answering(Reply::endless()).await;
            let mut response = chat(&chain(client.clone(), limiter.clone()), &server).send().await.expect("an answer");
            assert!(response.chunk().await.expect("no error").is_some());
            if as_stream {
                let mut stream = Box::pin(response.bytes_stream());
                assert!(stream.next().await.expect("more").is_ok());
                drop(stream);
            } else {
                drop(response);
            }
            assert_eq!((in_flight(&limiter), outcomes(&limiter).as_str()), (0, "cancelled 1"));
            server.until("the abort is noticed", |counts| counts.aborted == 1).await;
            assert_idle(&limiter);
        }
    }
}

#[tokio::test]
async fn a_call_dropped_before_its_head_frees_its_slot_and_is_closed_upstream() {
    for client in both() {
        let limiter = limiter(1);
        let server = Server::answering(Reply::never()).await;
        let call = tokio::spawn(chat(&chain(client, limiter.clone()), &server).send());
        server.until("the call is there", |counts| counts.open == 1).await;
        call.abort();
        assert!(call.await.expect_err("aborted").is_cancelled());
        assert_eq!((in_flight(&limiter), outcomes(&limiter).as_str()), (0, "cancelled 1"));
        server.until("the abort is noticed", |counts| counts.aborted == 1).await;
        assert_idle(&limiter);
    }
}

/// Case 42.
#[tokio::test]
async fn a_reset_in_mid_stream_fails_as_it_would_without_the_limiter_and_frees_the_slot() {
    for client in both() {
        let limiter = limiter(1);
        let server = Server::answering(Reply::ok().data("a").gate().reset()).await;
        let mut through = chat(&chain(client.clone(), limiter.clone()), &server).send().await.expect("an answer");
        let mut bare = client.post(server.chat_url()).send().await.expect("an answer");
        assert!(through.chunk().await.expect("no error").is_some());
        assert!(bare.chunk().await.expect("no error").is_some());
        server.open_gates(2);
        let through = within(through.chunk()).await.expect_err("reset");
        let bare = within(bare.chunk()).await.expect_err("reset");
        assert_eq!(kinds(&through), kinds(&bare));
        assert!(is_caused_by::<hyper::Error>(&through) && is_caused_by::<hyper::Error>(&bare));
        assert_eq!((in_flight(&limiter), outcomes(&limiter).as_str()), (0, "transport 1"));
        assert_idle(&limiter);
    }
}

fn kinds(error: &reqwest::Error) -> [bool; 5] {
    [error.is_body(), error.is_decode(), error.is_timeout(), error.is_request(), error.is_connect()]
}

/// The timeouts of the client live on in the body.
#[tokio::test]
async fn a_client_timeout_in_mid_stream_is_still_a_timeout_and_frees_the_slot() {
    for builder in [Client::builder().read_timeout(TIMEOUT), Client::builder().timeout(TIMEOUT)] {
        let limiter = limiter(1);
        let server = Server::answering(Reply::ok().data("a").step(Step::Hang)).await;
        let client = chain(plain_with(builder), limiter.clone());
        let mut response = chat(&client, &server).send().await.expect("an answer");
        assert_eq!(response.chunk().await.expect("no error").expect("more"), "a");
        let reading = tokio::spawn(async move { response.chunk().await.map(drop) });
        // The timeout between two reads starts with the second.
        tokio::task::yield_now().await;
        pass(TIMEOUT).await;
        let error = within(reading).await.expect("no panic").expect_err("timed out");
        assert!(error.is_timeout(), "{error:?}");
        assert_eq!((in_flight(&limiter), outcomes(&limiter).as_str()), (0, "transport 1"));
        server.until("the abort is noticed", |counts| counts.aborted == 1).await;
        assert_idle(&limiter);
    }
}

/// A silence is ours to name, and no reason to try again.
#[tokio::test]
async fn a_silent_upstream_is_a_stall_before_and_after_the_first_byte() {
    let limiter = Limiter::builder().max_inflight(1).first_byte_timeout(TIMEOUT).idle_timeout(TIMEOUT);
    let limiter = limiter.build().expect("valid");
    let server = Server::in_turn([Reply::never(), Reply::ok().data("a").step(Step::Hang)]).await;
    let call = tokio::spawn(chat(&retrying(3, limiter.clone()), &server).send());
    server.until("the call is there", |counts| counts.open == 1).await;
    pass(TIMEOUT).await;
    let error = within(call).await.expect("no panic").expect_err("silent");
    assert!(error.is_middleware(), "{error:?}");
    assert_eq!(Stalled::find(&error).expect("ours").silence(), Silence::FirstByte);

    let mut response = chat(&chain(plain(), limiter.clone()), &server).send().await.expect("an answer");
    assert!(response.chunk().await.expect("no error").is_some());
    let reading = tokio::spawn(async move { response.chunk().await.map(drop) });
    tokio::task::yield_now().await;
    pass(TIMEOUT).await;
    let error = within(reading).await.expect("no panic").expect_err("silent");
    assert!(!error.is_timeout(), "{error:?}");
    assert_eq!(Stalled::find(&error).expect("ours").silence(), Silence::Idle);
    assert_eq!(outcomes(&limiter), "stalled 2");
    server.until("both are closed", |counts| counts.aborted == 2).await;
    assert_idle(&limiter);
}

#[tokio::test]
async fn time_in_the_queue_is_not_charged_to_the_clients_timeout() {
    let limiter = limiter(1);
    let server = Server::answering(Reply::whole(200, "fine")).await;
    let client = chain(plain_with(Client::builder().timeout(TIMEOUT)), limiter.clone());
    let held = lane_of(&limiter, &server).try_acquire(Priority::Default).expect("a slot");
    let call = tokio::spawn(chat(&client, &server).send());
    eventually("it queues", || queued(&limiter) == 1).await;
    pass(TIMEOUT * 2).await;
    drop(held);
    let response = within(call).await.expect("no panic").expect("no timeout");
    assert_eq!(response.text().await.expect("whole"), "fine");
}

#[tokio::test]
async fn a_refused_connection_is_reqwests_own_error_and_frees_the_slot() {
    let limiter = limiter(1);
    // Bound and not listening: nobody else gets the port, and nobody answers.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    let url = format!("http://{}/v1/chat/completions", socket.local_addr().expect("bound"));
    let error = chain(plain(), limiter.clone()).post(url).send().await.expect_err("refused");
    assert!(matches!(&error, reqwest_middleware::Error::Reqwest(error) if error.is_connect()), "{error:?}");
    assert!(error.source().is_some());
    assert_eq!((in_flight(&limiter), outcomes(&limiter).as_str()), (0, "transport 1"));
    assert_idle(&limiter);
}
