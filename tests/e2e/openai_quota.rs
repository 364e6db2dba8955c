//! async-openai over a budget per minute.

use std::time::Duration;

use async_openai::types::chat::ChatCompletionStreamOptions;
use futures_util::StreamExt;
use tower_inflight::{Limiter, Quota};

use super::openai_support::{CHUNK, answer, chat, client};
use super::reply::{Reply, Step};
use super::server::Server;
use super::support::{assert_idle, eventually, in_flight, lane, outcomes, within};

const USAGE: &str = r#"{"id":"1","object":"chat.completion.chunk","created":1,"model":"acme/smart","choices":[],"usage":{"prompt_tokens":800,"completion_tokens":300,"total_tokens":1100}}"#;

/// What a month brings, of one token a minute: however slow the machine is, not a token comes in meanwhile.
const FULL: i64 = 30 * 24 * 60;

fn metered() -> Limiter {
    let burst = Duration::from_secs(60 * u64::try_from(FULL).expect("positive"));
    let quota = Quota { tokens_per_minute: Some(1), burst, ..Quota::default() };
    Limiter::builder().max_inflight(4).interactive_reserve(0).quota(quota).build().expect("valid")
}

fn left(limiter: &Limiter) -> i64 {
    lane(limiter).quota.and_then(|quota| quota.tokens_left).expect("a budget in tokens")
}

#[tokio::test]
async fn a_stream_costs_what_it_reports_and_is_charged_what_it_asks_for_meanwhile() {
    let limiter = metered();
    let events = Reply::ok().header("content-type", "text/event-stream").data(format!("data: {CHUNK}\n\n"));
    let events = events.gate().data(format!("data: {USAGE}\n\n")).data("data: [DONE]\n\n");
    let server = Server::answering(events.step(Step::Hang)).await;
    let mut request = chat();
    request.max_completion_tokens = Some(4_000);
    request.stream_options = Some(ChatCompletionStreamOptions { include_usage: Some(true), include_obfuscation: None });
    let mut stream = client(&server, &limiter).chat().create_stream(request).await.expect("a stream");
    within(stream.next()).await.expect("more").expect("no error");
    // "hello", as it is called where it stands: two tokens.
    assert_eq!(left(&limiter), FULL - 4_002);
    server.open_gates(1);
    let mut reported = 0;
    while let Some(event) = within(stream.next()).await {
        reported = event.expect("no error").usage.map_or(reported, |usage| i64::from(usage.total_tokens));
    }
    eventually("the task lets go", || in_flight(&limiter) == 0).await;
    assert_eq!((reported, left(&limiter)), (1_100, FULL - 1_100));
    assert_eq!(outcomes(&limiter), "success 1");
    assert_idle(&limiter);
}

#[tokio::test]
async fn a_stream_dropped_in_mid_answer_costs_its_prompt_and_what_came() {
    let limiter = metered();
    let events = Reply::ok().header("content-type", "text/event-stream");
    let server = Server::answering(events.data(format!("data: {CHUNK}\n\n")).step(Step::Hang)).await;
    let mut request = chat();
    request.max_completion_tokens = Some(4_000);
    let mut stream = client(&server, &limiter).chat().create_stream(request).await.expect("a stream");
    within(stream.next()).await.expect("more").expect("no error");
    drop(stream);
    eventually("the task lets go", || in_flight(&limiter) == 0).await;
    assert_eq!((left(&limiter), outcomes(&limiter).as_str()), (FULL - 3, "cancelled 1"));
}

#[tokio::test]
async fn a_call_whose_connection_is_refused_costs_nothing() {
    let limiter = metered();
    let server = Server::answering(answer()).await;
    let client = client(&server, &limiter);
    drop(server);
    eventually("the port is closed", || true).await;
    client.chat().create(chat()).await.expect_err("nobody is there");
    assert_eq!(left(&limiter), FULL);
    assert_idle(&limiter);
}
