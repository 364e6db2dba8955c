//! Budgets per minute over the layer: what a request is charged, and what each ending gives back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::StatusCode;
use http_body_util::BodyExt;
use tower_inflight::{
    Admission, BoxError, Call, Dimension, FollowHeaders, InflightLimitLayer, Kind, Limiter, LimiterBuilder, Outcome,
    PoolLimit, Priority, Quota, QuotaSnapshot, ReadUsage, RejectKind, WhenShort,
};
use tower_layer::Layer;

use crate::support::*;

const CHUNK: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":null}],\"usage\":null}\n\n";
const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":20}}\n\n";
const DONE: &str = "data: [DONE]\n\n";
const OVERLOADED: &str = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n";

/// A minute's tokens.
const FULL: i64 = 6_000;

fn tokens() -> Quota {
    Quota { tokens_per_minute: Some(6_000), max_output: 1_000, ..Quota::default() }
}

fn metered(quota: Quota) -> Limiter {
    slots(8).quota(quota).build().unwrap()
}

fn set(build: impl FnOnce(LimiterBuilder) -> LimiterBuilder) -> Limiter {
    build(Limiter::builder().interactive_reserve(0)).build().unwrap()
}

/// A call that is charged 100 tokens for its prompt, and `max_tokens`.
fn asking_for(max_tokens: u32) -> Query {
    let text = "x".repeat(400);
    post(
        "/v1/chat/completions",
        format!(r#"{{"model":"m","max_tokens":{max_tokens},"messages":[{{"role":"user","content":"{text}"}}]}}"#),
    )
}

fn events(events: &[&'static str]) -> Script {
    Script::new(events.iter().copied().map(data))
}

fn silent(events: &[&'static str]) -> Script {
    Script::new(events.iter().copied().map(data).chain([Step::Silence]))
}

fn budget(limiter: &Limiter) -> QuotaSnapshot {
    lane(limiter).quota.expect("the lane has one")
}

fn left(limiter: &Limiter) -> i64 {
    budget(limiter).tokens_left.expect("limited in tokens")
}

async fn read_frames(reply: &mut Reply, count: usize) {
    for _ in 0..count {
        reply.body_mut().frame().await.unwrap().unwrap();
    }
}

/// What a call of 500 tokens costs that is answered like this, and read to its end if it has one.
async fn cost_of(answer: impl Fn() -> Result<http::Response<Script>, BoxError> + Clone + Send + Sync + 'static) -> i64 {
    let limiter = metered(tokens());
    let client = client(&limiter, move |_| std::future::ready(answer()));
    if let Ok(reply) = send_query(&client, asking_for(400)).await {
        let _ = read(reply).await;
    }
    assert_idle(&limiter);
    FULL - left(&limiter)
}

/// The same, and its reader leaves after so many pieces.
async fn cost_of_a_part(body: &'static [&'static str], pieces: usize) -> i64 {
    let limiter = metered(tokens());
    let client = answering(&limiter, move |_| ok(silent(body)));
    let mut reply = send_query(&client, asking_for(400)).await.unwrap();
    assert_eq!(left(&limiter), FULL - 500);
    read_frames(&mut reply, pieces).await;
    drop(reply);
    assert_idle(&limiter);
    FULL - left(&limiter)
}

// Case 101.
#[tokio::test(start_paused = true)]
async fn a_call_that_came_to_nothing_costs_nothing() {
    assert_eq!(cost_of(|| Err(reset(1).into())).await, 0, "no connection");
    assert_eq!(cost_of(|| Ok(busy("1"))).await, 0, "429");
    assert_eq!(cost_of(|| Ok(status(400, Script::new([data("{}")])))).await, 0, "400");
    assert_eq!(cost_of(|| Ok(status(503, Script::new([])))).await, 0, "503");
}

// Cases 101 and 104.
#[tokio::test(start_paused = true)]
async fn an_answer_costs_what_it_reports_and_else_what_it_was_charged() {
    assert_eq!(cost_of(|| Ok(ok(events(&[CHUNK, CHUNK, USAGE, DONE])))).await, 120);
    assert_eq!(cost_of(|| Ok(ok(events(&[CHUNK, CHUNK, DONE])))).await, 500);
    let document = "{\"usage\":{\"prompt_tokens\":90,\"completion_tokens\":3}}";
    assert_eq!(cost_of(move || Ok(ok(Script::new([data(document)])))).await, 93);
    let input_alone = "{\"usage\":{\"prompt_tokens\":90}}";
    assert_eq!(cost_of(move || Ok(ok(Script::new([data(input_alone)])))).await, 490);
    assert_eq!(cost_of(|| Ok(status(204, Script::new([])))).await, 500, "an answer, though an empty one");
}

// Case 101.
#[tokio::test(start_paused = true)]
async fn an_answer_that_breaks_off_costs_its_prompt_and_what_was_seen_of_it() {
    assert_eq!(cost_of_a_part(&[CHUNK, CHUNK, CHUNK], 3).await, 103, "dropped");
    assert_eq!(cost_of_a_part(&[CHUNK, USAGE, CHUNK], 3).await, 120, "dropped after a report");
    let broken = || Ok(ok(Script::new([data(CHUNK), data(CHUNK), Step::Fail(reset(1))])));
    assert_eq!(cost_of(broken).await, 102, "reset");
    assert_eq!(cost_of(|| Ok(ok(events(&[CHUNK, OVERLOADED])))).await, 101, "an error inside");
    let broken = || Ok(ok(Script::new([data(USAGE), Step::Fail(reset(1))])));
    assert_eq!(cost_of(broken).await, 120, "reset after a report");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_leaves_before_the_first_piece_has_used_nothing() {
    assert_eq!(cost_of_a_part(&[CHUNK], 0).await, 0);
    let limiter = metered(tokens());
    let client = client(&limiter, |_| std::future::pending());
    let call = spawned(&client, asking_for(400)).await;
    assert_eq!(left(&limiter), FULL - 500);
    call.abort();
    settled().await;
    assert_eq!(left(&limiter), FULL);
    assert_idle(&limiter);
}

// Case 117.
#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_read_keeps_its_estimate() {
    let compressed = || {
        let mut response = ok(Script::new([data(&b"\x1f\x8b\x08\x00"[..])]));
        response.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
        Ok(response)
    };
    assert_eq!(cost_of(compressed).await, 500);
    let limiter = metered(tokens());
    let layer = InflightLimitLayer::new(limiter.clone()).read_usage(ReadUsage::Off);
    let upstream = tower::service_fn(|_: Query| std::future::ready(Ok::<_, BoxError>(ok(events(&[USAGE, DONE])))));
    let client = Client::new(layer.layer(upstream));
    read(send_query(&client, asking_for(400)).await.unwrap()).await.unwrap();
    assert_eq!(left(&limiter), FULL - 500);
}

// Case 102.
#[tokio::test(start_paused = true)]
async fn what_is_used_beyond_the_estimate_is_owed_and_repaid_first() {
    let limiter = metered(tokens());
    let report = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":6000,\"completion_tokens\":600}}\n\n";
    let client = answering(&limiter, move |_| ok(events(&[CHUNK, report, DONE])));
    read(send_query(&client, asking_for(400)).await.unwrap()).await.unwrap();
    assert_eq!((left(&limiter), budget(&limiter).tokens_beyond), (-600, 6_100));
    let start = now();
    send_query(&client, asking_for(400)).await.unwrap();
    assert!((11.0..11.01).contains(&since(start)), "{}", since(start));
}

// Case 103.
#[tokio::test(start_paused = true)]
async fn a_call_is_settled_once_and_its_last_report_stands() {
    let first = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":5}}\n\n";
    assert_eq!(cost_of(move || Ok(ok(events(&[CHUNK, first, USAGE, DONE])))).await, 120);
    let limiter = metered(tokens());
    let client = answering(&limiter, move |_| {
        ok(Script::new([data(first), data(USAGE), data(DONE), trailers(), Step::Fail(reset(1))]).telling_end())
    });
    let mut reply = send_query(&client, asking_for(400)).await.unwrap();
    while reply.body_mut().frame().await.is_some_and(|frame| frame.is_ok()) {}
    assert!(reply.body_mut().frame().await.is_none());
    drop(reply);
    let budget = budget(&limiter);
    assert_eq!((budget.tokens_left, budget.tokens_admitted, budget.tokens_refunded), (Some(FULL - 120), 500, 380));
}

// Case 99.
#[tokio::test(start_paused = true)]
async fn an_estimate_that_can_never_fit_is_refused_at_once() {
    let limiter = metered(tokens());
    let client = answering(&limiter, |_| ok(events(&[USAGE, DONE])));
    let refusal = rejected(send_query(&client, asking_for(5_901)).await);
    assert_eq!((refusal.kind(), refusal.retry_after()), (RejectKind::TooLarge(Dimension::Tokens), None));
    let shown = refusal.to_string();
    assert!(shown.contains("tokens_per_minute") && shown.contains("6000"), "{shown}");
    assert_eq!(left(&limiter), FULL);
    let reply = send_query(&client, asking_for(5_900)).await.unwrap();
    assert_eq!(left(&limiter), 0);
    drop(reply);
}

// Case 100.
#[tokio::test(start_paused = true)]
async fn a_call_refused_for_slots_spends_nothing() {
    let quota = Quota { requests_per_minute: Some(2), ..Quota::default() };
    let limiter = slots(1).max_queue(0).quota(quota).build().unwrap();
    let client = answering(&limiter, |_| ok(silent(&[CHUNK])));
    let requests = || budget(&limiter).requests_left.unwrap();
    let first = send(&client).await.unwrap();
    assert_eq!(requests(), 1);
    assert!(matches!(reject_kind(send(&client).await), RejectKind::QueueFull(_)));
    assert_eq!(requests(), 1);
    drop(first);
    send(&client).await.expect("the second of this minute");
}

// Case 32.
#[tokio::test(start_paused = true)]
async fn callers_that_gave_up_spend_no_budget_when_their_turn_comes() {
    let quota = Quota { requests_per_minute: Some(60), burst: Duration::from_secs(1), ..Quota::default() };
    let limiter = slots(1).quota(quota).build().unwrap();
    let client = answering(&limiter, |_| ok(events(&[CHUNK, DONE])));
    fetch(&client).await.unwrap();
    let start = now();
    let mut dead = Vec::new();
    for _ in 0..10 {
        dead.push(spawned(&client, chat()).await);
    }
    let live = spawned(&client, chat()).await;
    dead.iter().for_each(tokio::task::JoinHandle::abort);
    live.await.unwrap().expect("an answer");
    assert!((0.9..1.01).contains(&since(start)), "{}", since(start));
    assert_eq!(lane(&limiter).abandoned, 10);
}

// Case 137.
#[tokio::test(start_paused = true)]
async fn a_lone_caller_is_woken_when_the_budget_has_filled() {
    let limiter = metered(Quota { max_output: 1, ..tokens() });
    let client = answering(&limiter, |_| ok(events(&[CHUNK, DONE])));
    read(send_query(&client, asking_for(5_900)).await.unwrap()).await.unwrap();
    assert_eq!(left(&limiter), 0);
    let start = now();
    let body = r#"{"model":"m","max_tokens":40,"messages":[{"content":"twelve bytes and 28 more bytes, sir."}]}"#;
    send_query(&client, post("/v1/chat/completions", body)).await.expect("an answer");
    assert!((0.49..0.501).contains(&since(start)), "{}", since(start));
}

#[tokio::test(start_paused = true)]
async fn where_a_budget_refuses_the_error_says_when_to_come_back() {
    let limiter = metered(Quota { when_short: WhenShort::Refuse, ..tokens() });
    let client = answering(&limiter, |_| ok(events(&[CHUNK, DONE])));
    read(send_query(&client, asking_for(5_900)).await.unwrap()).await.unwrap();
    let refusal = rejected(send_query(&client, asking_for(500)).await);
    assert_eq!(refusal.kind(), RejectKind::Short(Dimension::Tokens));
    let after = refusal.retry_after().expect("it is known").as_secs_f64();
    assert!((6.0..6.001).contains(&after), "{after}");
    sleep(after).await;
    send_query(&client, asking_for(500)).await.expect("an answer");
    assert_eq!(lane(&limiter).refused["short"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_not_wait_is_refused_for_tokens_too() {
    let limiter = metered(tokens());
    let client = answering(&limiter, |_| ok(events(&[CHUNK, DONE])));
    read(send_query(&client, asking_for(5_900)).await.unwrap()).await.unwrap();
    let call = Call::new(Priority::Interactive).with_admission(Admission::Reject);
    let refusal = rejected(send_query(&client, with(asking_for(500), call)).await);
    assert_eq!(refusal.kind(), RejectKind::Short(Dimension::Tokens));
    assert!(refusal.retry_after().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_pools_budget_is_charged_by_every_model() {
    let limiter = set(|limiter| limiter.pool(PoolLimit::new("https://gw.example/*", 0).quota(tokens())));
    let client = answering(&limiter, |_| ok(events(&[CHUNK, USAGE, DONE])));
    for model in ["a", "b", "c"] {
        read(send_query(&client, asking(model)).await.unwrap()).await.unwrap();
    }
    let pools = limiter.snapshot().pools;
    assert_eq!((pools.len(), pools[0].quota.unwrap().tokens_left), (1, Some(FULL - 3 * 120)));
    assert_eq!(pools[0].quota.unwrap().tokens_admitted, 3_000, "each was charged the default");
}

// T2.
#[tokio::test(start_paused = true)]
async fn the_longest_answer_is_read_as_each_provider_spells_it() {
    for (path, body) in [
        ("/v1/chat/completions", r#"{"model":"m","max_tokens":70}"#),
        ("/v1/chat/completions", r#"{"model":"m","max_completion_tokens":70}"#),
        ("/v1/messages", r#"{"model":"m","max_tokens":70,"system":""}"#),
        ("/v1/responses", r#"{"model":"m","max_output_tokens":70}"#),
        ("/v1beta/models/m:generateContent", r#"{"generationConfig":{"maxOutputTokens":70}}"#),
        ("/api/chat", r#"{"model":"m","options":{"num_predict":70}}"#),
    ] {
        let limiter = metered(tokens());
        let client = answering(&limiter, |_| ok(silent(&[CHUNK])));
        let _held = send_query(&client, post(path, body)).await.unwrap();
        assert_eq!(left(&limiter), FULL - 70, "{path} {body}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_say_is_charged_the_default_and_one_that_says_nonsense_too() {
    let bodies =
        [r#"{"model":"m"}"#, r#"{"model":"m","max_tokens":"many"}"#, r#"{"model":"m","options":{"num_predict":-1}}"#];
    for body in bodies {
        let limiter = metered(tokens());
        let client = answering(&limiter, |_| ok(silent(&[CHUNK])));
        let _held = send_query(&client, post("/v1/chat/completions", body)).await.unwrap();
        assert_eq!(left(&limiter), FULL - 1_000, "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_call_says_goes_before_what_its_request_says() {
    let limiter = metered(tokens());
    let client = answering(&limiter, |_| ok(silent(&[CHUNK])));
    let call = Call::new(Priority::Default).with_tokens(2_000, 500);
    let _held = send_query(&client, with(asking_for(400), call)).await.unwrap();
    assert_eq!(left(&limiter), FULL - 2_500);
}

#[tokio::test(start_paused = true)]
async fn an_embedding_is_charged_its_input_alone() {
    let limiter = metered(tokens());
    let layer = InflightLimitLayer::new(limiter.clone()).limit_kinds([Kind::Embedding]);
    let report = "{\"data\":[],\"usage\":{\"prompt_tokens\":80,\"total_tokens\":80}}";
    let upstream =
        tower::service_fn(move |_: Query| std::future::ready(Ok::<_, BoxError>(ok(Script::new([data(report)])))));
    let client = Client::new(layer.layer(upstream));
    let body = format!(r#"{{"model":"m","input":["{}"]}}"#, "x".repeat(400));
    let reply = send_query(&client, post("/v1/embeddings", body)).await.unwrap();
    assert_eq!(left(&limiter), FULL - 100);
    read(reply).await.unwrap();
    assert_eq!(left(&limiter), FULL - 80);
}

/// Calls of one client that ask for 4,000 and use 300, in five minutes.
async fn calls_in_five_minutes(read_usage: ReadUsage) -> u64 {
    let quota = Quota { tokens_per_minute: Some(60_000), ..Quota::default() };
    let limiter = slots(1_000).quota(quota).build().unwrap();
    let layer = InflightLimitLayer::new(limiter.clone()).read_usage(read_usage);
    let report = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":200}}\n\n";
    let upstream = tower::service_fn(move |_: Query| {
        std::future::ready(Ok::<_, BoxError>(ok(Script::new([data(CHUNK), wait(1), data(report), data(DONE)]))))
    });
    let client = Client::new(layer.layer(upstream));
    let call = || async { read(send_query(&client, asking_for(3_900)).await?).await };
    let caller = || async { while call().await.is_ok() {} };
    let callers = futures_util::future::join_all((0..20).map(|_| caller()));
    let _ = tokio::time::timeout(Duration::from_secs(300), callers).await;
    lane(&limiter).outcomes[Outcome::Success.as_str()]
}

#[tokio::test(start_paused = true)]
async fn refunds_are_worth_a_factor_of_ten() {
    let (with, without) = (calls_in_five_minutes(ReadUsage::On).await, calls_in_five_minutes(ReadUsage::Off).await);
    // 60,000 at once and 60,000 a minute: 1,200 calls of 300, or 90 of 4,000.
    assert!((1_100..=1_200).contains(&with), "{with}");
    assert!((80..=90).contains(&without), "{without}");
}

/// An answer with these headers, after which so much is left.
async fn left_after(follow_headers: FollowHeaders, code: u16, headers: &'static [(&'static str, &'static str)]) -> i64 {
    let limiter = metered(Quota { follow_headers, ..tokens() });
    let client = answering(&limiter, move |_| {
        let mut response = ok(events(&[CHUNK, USAGE, DONE]));
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        for (name, value) in headers {
            response.headers_mut().append(*name, value.parse().unwrap());
        }
        response
    });
    read(send_query(&client, asking_for(400)).await.unwrap()).await.unwrap();
    left(&limiter)
}

// T5.
#[tokio::test(start_paused = true)]
async fn headers_lower_a_budget_that_follows_them_and_never_raise_it() {
    use FollowHeaders::{Limits, Off, On};
    let low: &[_] = &[("x-ratelimit-remaining-tokens", "700"), ("x-ratelimit-remaining-requests", "3")];
    assert_eq!(left_after(On, 200, low).await, 700);
    assert_eq!(left_after(On, 400, low).await, 700, "on any answer, and what comes back does not raise it");
    assert_eq!(left_after(On, 429, low).await, 700);
    assert_eq!(left_after(Limits, 200, low).await, 700);
    assert_eq!(left_after(Off, 200, low).await, FULL - 120);
    assert_eq!(left_after(On, 200, &[("anthropic-ratelimit-tokens-remaining", "0")]).await, 0);
    assert_eq!(left_after(On, 200, &[("x-ratelimit-remaining-tokens", "999999")]).await, FULL - 120);
}

#[tokio::test(start_paused = true)]
async fn headers_that_say_nothing_sensible_change_nothing() {
    for headers in [
        &[("x-ratelimit-remaining-tokens", "-1")][..],
        &[("x-ratelimit-remaining-tokens", "lots")],
        &[("x-ratelimit-remaining-tokens", "1e3")],
        &[("x-ratelimit-remaining-tokens", "99999999999999999999999")],
        &[("x-ratelimit-limit-tokens", "1"), ("x-ratelimit-reset-tokens", "1s")],
    ] {
        assert_eq!(left_after(FollowHeaders::On, 200, headers).await, FULL - 120, "{headers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_said_at_the_head_of_a_stream_has_grown_by_its_end() {
    let limiter = metered(Quota { follow_headers: FollowHeaders::On, ..tokens() });
    let client = answering(&limiter, |_| {
        let mut response = ok(Script::new([data(CHUNK), wait(10), data(USAGE), data(DONE)]));
        response.headers_mut().insert("x-ratelimit-remaining-tokens", "700".parse().unwrap());
        response
    });
    read(send_query(&client, asking_for(400)).await.unwrap()).await.unwrap();
    assert_eq!(left(&limiter), 700 + 10 * 100);
}

const NAMED: &str = "x-ratelimit-limit-tokens";

// T5.
#[tokio::test(start_paused = true)]
async fn a_limit_that_answers_name_is_the_size_of_the_budget_and_never_above_what_is_configured() {
    use FollowHeaders::{Limits, On};
    assert_eq!(left_after(Limits, 200, &[(NAMED, "3000")]).await, 3_000);
    assert_eq!(left_after(Limits, 429, &[("anthropic-ratelimit-tokens-limit", "3000")]).await, 3_000);
    assert_eq!(left_after(Limits, 200, &[(NAMED, "3000"), ("x-ratelimit-remaining-tokens", "7")]).await, 7);
    assert_eq!(left_after(Limits, 200, &[(NAMED, "999999")]).await, FULL - 120);
    assert_eq!(left_after(On, 200, &[(NAMED, "3000")]).await, FULL - 120);
}

/// Hostile figures for each answer: the calls go on, at a tenth of the rate at worst, and at the whole once they stop.
#[tokio::test(start_paused = true)]
async fn no_limit_that_answers_name_stops_a_lane() {
    for named in ["0", "1", "-1", "NaN", "five", "1e-9", "18446744073709551615", "99999999999999999999999"] {
        let limiter = metered(Quota { follow_headers: FollowHeaders::Limits, ..tokens() });
        let hostile = Arc::new(AtomicBool::new(true));
        let client = answering(&limiter, {
            let hostile = hostile.clone();
            move |_| {
                let mut response = ok(events(&[CHUNK, USAGE, DONE]));
                if hostile.load(Ordering::Relaxed) {
                    response.headers_mut().insert(NAMED, named.parse().unwrap());
                }
                response
            }
        });
        let start = now();
        for _ in 0..20 {
            read(send_query(&client, asking_for(900)).await.unwrap()).await.unwrap();
        }
        // 20 calls that use 120 of 600 at least; one of 1,000 goes when all of these are there.
        assert!(since(start) < 20.0 * 70.0, "{named}: {} s", since(start));
        assert!(budget(&limiter).size_percent >= 10, "{named}");
        hostile.store(false, Ordering::Relaxed);
        sleep(301.0).await;
        assert_eq!((budget(&limiter).size_percent, left(&limiter) > 600), (100, true), "{named}");
    }
}
