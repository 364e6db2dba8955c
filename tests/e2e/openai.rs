//! async-openai over the limiter: answers, streams, classes.

use std::sync::atomic::Ordering;

use async_openai::error::OpenAIError;
use async_openai::types::chat::ChatCompletionStreamOptions;
use futures_util::StreamExt;
use futures_util::future::join;
use reqwest::multipart::{Form, Part};
use tower::ServiceExt;
use tower_inflight::async_openai::service;
use tower_inflight::{Admitted, InCurrentScope, InflightLimitLayer, Kind, Priority};

use super::openai_support::{CHUNK, answer, chat, client, counting, lane_of, plain, retrying};
use super::reply::{Reply, Step};
use super::server::Server;
use super::support::{assert_idle, eventually, in_flight, lane, limiter, outcomes, queued, within};

#[tokio::test]
async fn a_chat_takes_a_slot_of_its_lane_and_gives_it_back() {
    let limiter = limiter(1);
    let server = Server::answering(answer()).await;
    let chat = client(&server, &limiter).chat().create(chat()).await.expect("an answer");
    assert_eq!(chat.choices[0].message.content.as_deref(), Some("fine"));
    assert_eq!(lane(&limiter).lane, lane_of(&limiter, &server).key().to_string());
    assert_eq!(outcomes(&limiter), "success 1");
    assert_idle(&limiter);
}

/// The stream's task reads ahead: its slot is held until the last event has come.
#[tokio::test]
async fn a_streamed_chat_holds_its_slot_until_its_last_event() {
    let limiter = limiter(1);
    let gated = Reply::ok().header("content-type", "text/event-stream");
    let gated = gated.data(format!("data: {CHUNK}\n\n")).gate().data(format!("data: {CHUNK}\n\n"));
    let server = Server::answering(gated.gate().data("data: [DONE]\n\n")).await;
    let mut stream = client(&server, &limiter).chat().create_stream(chat()).await.expect("a stream");
    for _ in 0..2 {
        let event = within(stream.next()).await.expect("more").expect("no error");
        assert_eq!(event.choices[0].delta.content.as_deref(), Some("fine"));
        assert_eq!(in_flight(&limiter), 1);
        server.open_gates(1);
    }
    assert!(within(stream.next()).await.is_none());
    eventually("the task lets go", || in_flight(&limiter) == 0).await;
    assert_eq!(outcomes(&limiter), "success 1");
    assert_idle(&limiter);
}

/// Case 104: the report comes after the finish reason, in a chunk without choices.
#[tokio::test]
async fn a_streamed_chat_that_includes_usage_has_it_counted() {
    const USAGE: &str = r#"{"id":"1","object":"chat.completion.chunk","created":1,"model":"acme/smart","choices":[],"usage":{"prompt_tokens":8,"completion_tokens":3,"total_tokens":11}}"#;
    let limiter = limiter(1);
    let server = Server::answering(Reply::events([CHUNK, USAGE]).step(Step::Hang)).await;
    let mut request = chat();
    request.stream_options = Some(ChatCompletionStreamOptions { include_usage: Some(true), include_obfuscation: None });
    let mut stream = client(&server, &limiter).chat().create_stream(request).await.expect("a stream");
    let mut reported = None;
    while let Some(event) = within(stream.next()).await {
        reported = event.expect("no error").usage.or(reported);
    }
    let reported = reported.expect("a report");
    eventually("the task lets go", || in_flight(&limiter) == 0).await;
    let lane = lane(&limiter);
    let counted = (u64::from(reported.prompt_tokens), u64::from(reported.completion_tokens));
    assert_eq!((lane.tokens_input, lane.tokens_output, lane.usage_unknown), (counted.0, counted.1, 0));
    assert_eq!((counted, outcomes(&limiter).as_str()), ((8, 3), "success 1"));
    assert_idle(&limiter);
}

/// The client stops at `[DONE]` and drops the body, often before the transport says that it is over.
#[tokio::test]
async fn a_stream_whose_end_mark_never_comes_is_a_success_at_its_last_event() {
    let limiter = limiter(1);
    let server = Server::answering(Reply::events([CHUNK]).step(Step::Hang)).await;
    let stream = client(&server, &limiter).chat().create_stream(chat()).await.expect("a stream");
    assert_eq!(within(stream.count()).await, 1);
    eventually("the task lets go", || in_flight(&limiter) == 0).await;
    assert_eq!(outcomes(&limiter), "success 1");
    assert_idle(&limiter);
}

/// Case 1.
#[tokio::test]
async fn a_dropped_stream_gives_its_slot_back_and_is_closed_upstream() {
    let limiter = limiter(1);
    let first = Reply::ok().header("content-type", "text/event-stream").data(format!("data: {CHUNK}\n\n"));
    let server = Server::in_turn([first.step(Step::Hang), answer()]).await;
    let client = client(&server, &limiter);
    let mut stream = client.chat().create_stream(chat()).await.expect("a stream");
    assert!(within(stream.next()).await.expect("more").is_ok());
    let next = tokio::spawn(async move { client.chat().create(chat()).await });
    eventually("the next call waits", || queued(&limiter) == 1).await;
    drop(stream);
    within(next).await.expect("no panic").expect("an answer");
    server.until("the abort is noticed", |counts| counts.aborted == 1).await;
    assert_eq!(outcomes(&limiter), "cancelled 1, success 1");
    assert_idle(&limiter);
}

/// Case 42.
#[tokio::test]
async fn a_stream_reset_by_the_server_fails_once_and_gives_its_slot_back() {
    let limiter = limiter(1);
    let server = Server::answering(Reply::ok().data(format!("data: {CHUNK}\n\n")).gate().reset()).await;
    let mut stream = client(&server, &limiter).chat().create_stream(chat()).await.expect("a stream");
    assert!(within(stream.next()).await.expect("more").is_ok());
    server.open_gates(1);
    let error = within(stream.next()).await.expect("more").expect_err("reset");
    assert!(matches!(error, OpenAIError::StreamError(_)), "{error:?}");
    eventually("the task lets go", || in_flight(&limiter) == 0).await;
    assert_eq!(outcomes(&limiter), "transport 1");
    assert_idle(&limiter);
}

#[tokio::test]
async fn a_call_dropped_before_its_head_gives_its_slot_back() {
    let limiter = limiter(1);
    let server = Server::answering(Reply::never()).await;
    let client = retrying(&server, &limiter);
    let call = tokio::spawn(async move { client.chat().create(chat()).await });
    server.until("the call is there", |counts| counts.open == 1).await;
    call.abort();
    assert!(call.await.expect_err("aborted").is_cancelled());
    assert_eq!((in_flight(&limiter), outcomes(&limiter).as_str()), (0, "cancelled 1"));
    server.until("the abort is noticed", |counts| counts.aborted == 1).await;
    assert_idle(&limiter);
}

#[tokio::test]
async fn a_scope_says_whose_call_it_is_also_in_spawned_tasks_and_under_retries() {
    let limiter = limiter(1);
    let server = Server::answering(answer()).await;
    let held = lane_of(&limiter, &server).try_acquire(Priority::Default).expect("a slot");
    let client = retrying(&server, &limiter);
    let other = client.clone();
    let spawned = Priority::Interactive.scope(async move {
        tokio::spawn(async move { other.chat().create(chat()).await }.in_current_scope()).await.expect("no panic")
    });
    let bulk = Priority::Bulk.scope(async move { client.chat().create(chat()).await });
    let calls = tokio::spawn(join(spawned, bulk));
    let by_class = || lane(&limiter).queued_by_priority;
    eventually("both wait in their class", || (by_class().interactive, by_class().bulk) == (1, 1)).await;
    drop(held);
    let (spawned, bulk) = within(calls).await.expect("no panic");
    assert!(spawned.is_ok() && bulk.is_ok());
    assert_idle(&limiter);
}

/// Case 138: the model is read from the request that is sent, also where that is none.
#[tokio::test]
async fn a_request_is_built_once_and_arrives_as_built() {
    let limiter = limiter(1);
    let server = Server::answering(answer()).await;
    let layer = InflightLimitLayer::new(limiter.clone()).limit_kinds([Kind::Chat, Kind::Audio]);
    let service = service(plain(), layer);
    let (http, url) = (plain(), server.chat_url());
    let (json, json_builds) = counting(move || http.post(&url).body(r#"{ "model" : "acme/smart" }"#));
    let (http, url) = (plain(), server.url("/v1/audio/transcriptions"));
    let (form, form_builds) = counting(move || {
        http.post(&url).multipart(Form::new().part("file", Part::bytes(&b"\x00\xFF"[..])).text("model", "whisper-1"))
    });
    let mut lanes = Vec::new();
    for factory in [json, form] {
        let response = service.clone().oneshot(factory).await.expect("an answer");
        lanes.push(response.extensions().get::<Admitted>().expect("admitted").lane().to_string());
        assert_eq!(response.url().host_str(), Some("127.0.0.1"));
    }
    let endpoint = server.url("/v1");
    assert_eq!(lanes, [format!("{endpoint}|acme/smart"), format!("{endpoint}|*|audio")]);
    assert_eq!((json_builds.load(Ordering::Relaxed), form_builds.load(Ordering::Relaxed)), (1, 1));
    let seen = server.requests();
    assert_eq!(seen[0].body, r#"{ "model" : "acme/smart" }"#);
    assert!(seen[1].headers["content-type"].to_str().expect("text").starts_with("multipart/form-data"));
    assert!(seen[1].body.windows(2).any(|bytes| bytes == b"\x00\xFF"));
}

#[tokio::test]
async fn the_time_that_remains_goes_to_the_server() {
    let server = Server::answering(answer()).await;
    let name = http::HeaderName::from_static("x-time-left-ms");
    let layer = InflightLimitLayer::new(limiter(1)).deadline_header(name.clone());
    let client = async_openai::Client::with_config(
        async_openai::config::OpenAIConfig::new().with_api_base(server.url("/v1")).with_api_key("k"),
    )
    .with_http_service(service(plain(), layer));
    let scope = tower_inflight::Scope::new().with_timeout(std::time::Duration::from_secs(60));
    scope.run(client.chat().create(chat())).await.expect("an answer");
    let left: u64 = server.requests()[0].headers[&name].to_str().expect("text").parse().expect("a number");
    assert!((1..=60_000).contains(&left), "{left}");
}
