//! async-openai's retry layer outside of the limiter.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_openai::Client;
use async_openai::error::OpenAIError;
use async_openai::middleware::HttpRequestFactory;
use async_openai::middleware::retry::OpenAIRetryLayer;
use reqwest::multipart::Form;
use tower::{ServiceBuilder, ServiceExt};
use tower_inflight::async_openai::{OneCallLayer, service};
use tower_inflight::{
    Acquire, Admitted, BreakerConfig, Call, Lane, Limiter, Permit, Priority, RejectKind, Rejected, Stalled,
};

use super::openai_support::{answer, chat, client, config, counting, lane_of, plain, retrying, retrying_service};
use super::reply::{Reply, Step};
use super::server::Server;
use super::support::{JSON, assert_idle, eventually, lane, limiter, outcomes, pass, queued, within};

const LIMITED: &str = r#"{"error":{"message":"slow down","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#;
const EMPTY: &str =
    r#"{"error":{"message":"pay","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#;

fn post(server: &Server) -> (HttpRequestFactory, Arc<std::sync::atomic::AtomicUsize>) {
    let (http, url) = (plain(), server.chat_url());
    counting(move || http.post(&url).body(JSON))
}

/// The retry layer keeps the answer alive over its sleep and the next call.
#[tokio::test]
async fn a_503_then_success_does_not_hang_on_a_limit_of_one() {
    let refusals = [
        Reply::whole(503, "busy"),
        Reply::status(503).data("busy").step(Step::Hang),
        Reply::whole(429, LIMITED),
        Reply::status(500).data("bu").step(Step::Yield).data("sy"),
    ];
    for refusal in refusals {
        let limiter = limiter(1);
        let server = Server::in_turn([refusal, answer()]).await;
        let answer = within(retrying(&server, &limiter).chat().create(chat())).await.expect("an answer");
        assert_eq!(answer.choices[0].message.content.as_deref(), Some("fine"));
        assert_eq!(lane(&limiter).outcomes["success"], 1);
        assert_eq!(lane(&limiter).offered, 2);
        assert_idle(&limiter);
    }
}

#[tokio::test]
async fn a_stream_opened_on_the_second_attempt_comes_whole() {
    let limiter = limiter(1);
    let events = Reply::events([super::openai_support::CHUNK]);
    let server = Server::in_turn([Reply::whole(503, "busy"), events]).await;
    let stream = within(retrying(&server, &limiter).chat().create_stream(chat())).await.expect("a stream");
    assert_eq!(within(futures_util::StreamExt::count(stream)).await, 1);
    eventually("the task lets go", || lane(&limiter).inflight == 0).await;
    assert_eq!(outcomes(&limiter), "success 1, unavailable 1");
    assert_idle(&limiter);
}

/// Case 138.
#[tokio::test]
async fn a_request_is_built_once_per_attempt_with_the_same_bytes() {
    let limiter = limiter(1);
    let server = Server::in_turn([Reply::whole(503, "busy"), answer(), Reply::whole(503, "busy"), answer()]).await;
    let service = retrying_service(2, &limiter);
    let (json, json_builds) = post(&server);
    let (http, url) = (plain(), server.url("/v1/audio/transcriptions"));
    let (form, form_builds) = counting(move || http.post(&url).multipart(Form::new().text("model", "whisper-1")));
    within(service.clone().oneshot(json)).await.expect("an answer");
    assert_eq!(json_builds.load(Ordering::Relaxed), 2);
    within(service.oneshot(form)).await.expect("an answer");
    assert_eq!(server.counts().total, 4);
    assert_eq!(form_builds.load(Ordering::Relaxed), 2);
    let seen = server.requests();
    assert_eq!((&seen[0].body[..], &seen[1].body[..]), (JSON.as_bytes(), JSON.as_bytes()));
}

/// Case 85.
#[tokio::test]
async fn a_queue_timeout_is_found_and_not_retried() {
    for has_retries in [false, true] {
        let timeout = Duration::from_secs(300);
        let limiter = Limiter::builder().max_inflight(1).queue_timeout(timeout).build().expect("valid");
        let server = Server::answering(answer()).await;
        let client = if has_retries { retrying(&server, &limiter) } else { client(&server, &limiter) };
        let held = lane_of(&limiter, &server).try_acquire(Priority::Default).expect("a slot");
        let call = tokio::spawn(async move { client.chat().create(chat()).await });
        eventually("it queues", || queued(&limiter) == 1).await;
        pass(timeout).await;
        let error = within(call).await.expect("no panic").expect_err("refused");
        let OpenAIError::Boxed(boxed) = &error else { panic!("{error:?}") };
        assert!(boxed.is::<Rejected>());
        let rejected = Rejected::find(&error).expect("ours");
        assert_eq!((rejected.kind(), rejected.waited()), (RejectKind::QueueTimeout, timeout));
        assert_eq!(rejected.lane(), lane_of(&limiter, &server).key());
        assert_eq!((lane(&limiter).offered, server.counts().total), (2, 0), "one attempt, never sent");
        drop(held);
        assert_idle(&limiter);
    }
}

/// Case 85.
#[tokio::test]
async fn an_open_breaker_is_found_and_not_retried() {
    let breaker = BreakerConfig { min_calls: 1, ..BreakerConfig::default() };
    let limiter = Limiter::builder().max_inflight(1).breaker(breaker).build().expect("valid");
    let server = Server::answering(Reply::whole(500, "broken")).await;
    within(client(&server, &limiter).chat().create(chat())).await.expect_err("broken");
    let error = within(retrying(&server, &limiter).chat().create(chat())).await.expect_err("refused");
    let rejected = Rejected::find(&error).expect("ours");
    assert_eq!((rejected.kind(), rejected.lane()), (RejectKind::BreakerOpen, lane_of(&limiter, &server).key()));
    assert_eq!((lane(&limiter).offered, server.counts().total), (2, 1), "one attempt, never sent");
    assert_idle(&limiter);
}

/// Case 85: refused on the second attempt, after a first one that was sent.
#[tokio::test]
async fn a_refusal_of_a_retry_is_found_in_the_clients_error() {
    let limiter = limiter(1);
    let server = Server::answering(Reply::whole(503, "busy")).await;
    let closing = {
        let limiter = limiter.clone();
        move |result: Result<reqwest::Response, OpenAIError>| {
            limiter.close();
            result
        }
    };
    let stack = ServiceBuilder::new().layer(OpenAIRetryLayer::new(2)).map_result(closing);
    let client =
        Client::with_config(config(&server)).with_http_service(stack.service(service(plain(), limiter.clone())));
    let error = within(client.chat().create(chat())).await.expect_err("refused");
    assert_eq!(Rejected::find(&error).expect("ours").kind(), RejectKind::Closed);
    assert_eq!((server.counts().total, outcomes(&limiter).as_str()), (1, "unavailable 1"));
    assert_idle(&limiter);
}

#[tokio::test]
async fn a_silent_upstream_is_a_stall_and_not_retried() {
    let bound = Duration::from_secs(50);
    let limiter = Limiter::builder().max_inflight(1).first_byte_timeout(bound).build().expect("valid");
    let server = Server::answering(Reply::never()).await;
    let client = retrying(&server, &limiter);
    let call = tokio::spawn(async move { client.chat().create(chat()).await });
    server.until("the call is there", |counts| counts.open == 1).await;
    pass(bound).await;
    let error = within(call).await.expect("no panic").expect_err("silent");
    assert!(matches!(&error, OpenAIError::Boxed(error) if error.is::<Stalled>()), "{error:?}");
    assert_eq!(outcomes(&limiter), "stalled 1");
    server.until("it is closed", |counts| counts.aborted == 1).await;
    assert_idle(&limiter);
}

#[tokio::test]
async fn an_empty_account_is_neither_retried_nor_taken_for_load() {
    let limiter = limiter(1);
    let server = Server::answering(Reply::whole(429, EMPTY).header("retry-after", "60")).await;
    let error = within(retrying(&server, &limiter).chat().create(chat())).await.expect_err("no money");
    assert!(matches!(error, OpenAIError::ApiError(_)), "{error:?}");
    assert_eq!(server.counts().total, 1);
    assert_eq!((outcomes(&limiter).as_str(), lane(&limiter).paused_until_s), ("quota 1", None));
    assert_idle(&limiter);
}

#[tokio::test]
async fn one_call_counts_its_attempts_and_without_its_layer_each_is_a_first() {
    let replies = || [Reply::whole(503, "busy"), Reply::whole(503, "busy"), answer()];
    let attempt = |response: reqwest::Response| response.extensions().get::<Admitted>().expect("admitted").attempt();

    let server = Server::in_turn(replies()).await;
    let service = retrying_service(2, &limiter(1));
    assert_eq!(attempt(within(service.clone().oneshot(post(&server).0)).await.expect("an answer")), 3);
    assert_eq!(attempt(within(service.oneshot(post(&server).0)).await.expect("an answer")), 1, "another call");

    let server = Server::in_turn(replies()).await;
    let bare = tower_inflight::async_openai::service(plain(), limiter(1));
    let bare = ServiceBuilder::new().layer(OpenAIRetryLayer::new(2)).service(bare);
    assert_eq!(attempt(within(bare.oneshot(post(&server).0)).await.expect("an answer")), 1);
}

type Waiting = std::pin::Pin<Box<Acquire>>;

/// Takes the free slot, and puts one more call in line: other calls than the one in whose scope it runs.
fn queue_behind_a_holder(lane: &Lane) -> (Permit, Waiting) {
    let holder = lane.try_acquire(Call::new(Priority::Default)).expect("a free slot, during the backoff too");
    let mut later = Box::pin(lane.acquire(Call::new(Priority::Default)));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(later.as_mut().poll(&mut cx).is_pending());
    (holder, later)
}

/// Case 130, and a call that came between the attempts of another waits behind it.
#[tokio::test]
async fn a_retried_call_holds_no_slot_while_it_backs_off_and_keeps_its_first_arrival() {
    let limiter = limiter(1);
    let server = Server::in_turn([Reply::whole(503, "busy"), answer()]).await;
    let between = Arc::new(Mutex::new(None));
    let look = {
        let (between, lane) = (between.clone(), lane_of(&limiter, &server));
        move |result: Result<reqwest::Response, OpenAIError>| {
            if result.as_ref().is_ok_and(|response| response.status().is_server_error()) {
                *between.lock().unwrap() = Some(queue_behind_a_holder(&lane));
            }
            result
        }
    };
    let service = ServiceBuilder::new()
        .layer(OneCallLayer::new())
        .layer(OpenAIRetryLayer::new(2))
        .map_result(look)
        .service(service(plain(), limiter.clone()));
    let call = tokio::spawn(service.oneshot(post(&server).0));
    eventually("both wait", || queued(&limiter) == 2).await;
    let (holder, mut later) = between.lock().unwrap().take().expect("asked");
    drop(holder);
    let response = within(call).await.expect("no panic").expect("an answer");
    assert_eq!(response.extensions().get::<Admitted>().expect("admitted").attempt(), 2);
    assert!(futures_util::poll!(&mut later).is_pending(), "the later call waits");
    drop(response);
    drop(within(later).await.expect("its turn"));
    assert_idle(&limiter);
}

#[tokio::test]
async fn a_refused_connection_is_reqwests_error_and_is_retried() {
    let limiter = limiter(1);
    // Bound and not listening: nobody else gets the port, and nobody answers.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    let url = format!("http://{}/v1/chat/completions", socket.local_addr().expect("bound"));
    let http = plain();
    let (factory, builds) = counting(move || http.post(&url).body(JSON));
    let error = within(retrying_service(1, &limiter).oneshot(factory)).await.expect_err("refused");
    assert!(matches!(&error, OpenAIError::Reqwest(error) if error.is_connect()), "{error:?}");
    assert_eq!(builds.load(Ordering::Relaxed), 2);
    assert_eq!(outcomes(&limiter), "transport 2");
    assert_idle(&limiter);
}
