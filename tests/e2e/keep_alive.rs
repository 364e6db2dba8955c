//! An upstream that closes an idle connection just when the next request is written to it.

use std::net::SocketAddr;

use http::Request;
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;
use tower_inflight::controller::{AimdConfig, KneeConfig};
use tower_inflight::{Limit, Limiter};

use super::hyper::{Protocol, limited};
use super::support::{JSON, assert_idle, lane, outcomes, within};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

/// Answers so many requests on its first connection, and all on those after it.
async fn upstream(on_the_first: usize) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let addr = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        let mut answers = on_the_first;
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, answers));
            answers = usize::MAX;
        }
    });
    addr
}

/// Reads one request more than it answers: the client has written it when the connection goes.
async fn answer(mut stream: TcpStream, answers: usize) {
    for n in 0..=answers {
        let mut request = Vec::new();
        while !request.ends_with(JSON.as_bytes()) {
            match stream.read_buf(&mut request).await {
                Ok(1..) => {}
                _ => return,
            }
        }
        if n == answers {
            return;
        }
        stream.write_all(ANSWER).await.expect("the client reads");
    }
}

#[tokio::test]
async fn a_keep_alive_race_is_one_transport_failure_and_costs_nothing() {
    let aimd = AimdConfig { initial_limit: 16, ..AimdConfig::default() };
    let adaptive = KneeConfig { initial_limit: 16, ..KneeConfig::default() };
    for limit in [Limit::Aimd(aimd), Limit::Adaptive(adaptive)] {
        let limiter = Limiter::builder().limit(limit).interactive_reserve(0).build().expect("valid");
        let (addr, client) = (upstream(40).await, limited(Protocol::H1, &limiter));
        let mut broken = 0;
        for _ in 0..80 {
            let request = Request::post(format!("http://{addr}/v1/chat/completions")).body(Full::from(JSON));
            match within(client.clone().oneshot(request.expect("a request"))).await {
                Ok(response) => assert_eq!(within(response.collect()).await.expect("whole").to_bytes(), "{}"),
                Err(_) => broken += 1,
            }
        }
        assert_eq!((broken, outcomes(&limiter).as_str()), (1, "success 79, transport 1"));
        assert_eq!((lane(&limiter).limit, lane(&limiter).last_change), (16, None));
        assert_idle(&limiter);
    }
}
