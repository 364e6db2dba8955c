//! Against a real model server that speaks OpenAI's API, llama.cpp's for instance:
//!
//! ```text
//! MODEL_SERVER=http://127.0.0.1:8089/v1 MODEL=gemma-3-270m \
//!     cargo test --all-features --test model_server -- --ignored --nocapture --test-threads 1
//! ```
//!
//! These wait in real time, since the server does.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower_inflight::reqwest_middleware::InflightLimitMiddleware;
use tower_inflight::{
    Call, CallEvent, InflightLimitLayer, LaneSnapshot, Limiter, Outcome, Priority, Quota, TokenEstimator, Usage,
};

fn setting(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} says which server and model to call"))
}

/// Calls to one model through the layer.
#[derive(Clone)]
struct Server {
    client: ClientWithMiddleware,
    limiter: Limiter,
}

/// What an answer reported: as this crate read it while it passed, and the text itself.
struct Answer {
    usage: Usage,
    text: String,
}

impl Server {
    fn new(limiter: Limiter, layer: InflightLimitLayer) -> Self {
        // llama.cpp's server closes connections that are kept alive when it likes.
        let client = reqwest::Client::builder().pool_max_idle_per_host(0).build().expect("a client");
        Self { client: ClientBuilder::new(client).with(InflightLimitMiddleware::new(layer)).build(), limiter }
    }

    fn limited(limiter: Limiter) -> Self {
        Self::new(limiter.clone(), InflightLimitLayer::new(limiter))
    }

    async fn ask(&self, prompt: &str, max_tokens: u32, settings: Value) -> Answer {
        let mut body = json!({
            "model": setting("MODEL"),
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "temperature": 0,
        });
        let fields = body.as_object_mut().expect("an object");
        fields.extend(settings.as_object().expect("an object").clone());
        let ended = Arc::new(Mutex::new(None));
        let call = Call::new(Priority::Default).with_listener({
            let ended = ended.clone();
            move |event| {
                if let CallEvent::Ended { outcome, usage } = event {
                    *ended.lock().unwrap() = Some((outcome, usage.copied()));
                }
            }
        });
        let url = format!("{}/chat/completions", setting("MODEL_SERVER").trim_end_matches('/'));
        let response = self.client.post(url).with_extension(call).json(&body).send().await.expect("an answer");
        assert!(response.status().is_success(), "{}", response.status());
        let text = response.text().await.expect("a whole answer");
        let (outcome, usage) = ended.lock().unwrap().take().expect("it has ended");
        assert_eq!(outcome, Outcome::Success);
        Answer { usage: usage.expect("it was read"), text }
    }

    fn lane(&self) -> LaneSnapshot {
        self.limiter.snapshot().lanes.remove(0)
    }
}

#[tokio::test]
#[ignore = "needs MODEL_SERVER and MODEL"]
async fn usage_read_from_a_stream_is_what_the_same_answer_reports_in_one_piece() {
    let server = Server::limited(Limiter::builder().max_inflight(1).build().unwrap());
    let prompts = ["Say hello.", "Name three rivers of Europe, and nothing else.", "What is 2 + 2? Déjà vu, 漢字, 🦀."];
    for prompt in prompts {
        for max_tokens in [1, 16, 60] {
            let whole = server.ask(prompt, max_tokens, json!({})).await;
            let document: Value = serde_json::from_str(&whole.text).expect("JSON");
            let reported = &document["usage"];
            let expected = (reported["prompt_tokens"].as_u64(), reported["completion_tokens"].as_u64());
            assert!(expected.0.is_some() && expected.1.is_some(), "{document}");
            let streamed = server
                .ask(prompt, max_tokens, json!({"stream": true, "stream_options": {"include_usage": true}}))
                .await;
            assert!(streamed.text.starts_with("data: ") && streamed.text.contains("[DONE]"), "{}", streamed.text);
            println!("{prompt:?}, at most {max_tokens}: {expected:?}");
            for answer in [whole, streamed] {
                assert_eq!((answer.usage.input_tokens, answer.usage.output_tokens), expected, "{}", answer.text);
            }
        }
    }
    assert_eq!(server.lane().usage_unknown, 0);
}

/// The prompt is always the same.
struct Known(u32);

impl TokenEstimator for Known {
    fn input_tokens(&self, _: &[u8]) -> u32 {
        self.0
    }
}

const PROMPT: &str = "Count from one to ten in words.";
const OUTPUT: u32 = 8;
/// At once, in the server.
const SLOTS: u32 = 4;
const WATCHED: Duration = Duration::from_secs(120);

/// Every call uses exactly what it is charged, so what is admitted is what the server reports.
async fn ask_in_full(server: &Server) -> Usage {
    server.ask(PROMPT, OUTPUT, json!({"ignore_eos": true})).await.usage
}

#[expect(clippy::disallowed_methods, reason = "a server's time is real")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::cast_precision_loss, reason = "a few thousand tokens")]
fn number(tokens: u64) -> f64 {
    tokens as f64
}

#[tokio::test]
#[ignore = "needs MODEL_SERVER and MODEL, and two and a half minutes"]
async fn a_steady_demand_is_admitted_at_the_rate_that_is_set() {
    let unlimited = Server::limited(Limiter::builder().max_inflight(SLOTS).build().unwrap());
    let Usage { input_tokens, output_tokens, .. } = ask_in_full(&unlimited).await;
    assert_eq!(output_tokens, Some(u64::from(OUTPUT)), "a server that heeds ignore_eos");
    let prompt = u32::try_from(input_tokens.expect("a report")).unwrap();
    let charge = u64::from(prompt + OUTPUT);

    let before = now();
    join_all((0..6 * SLOTS).map(|_| ask_in_full(&unlimited))).await;
    let millis = u64::try_from(before.elapsed().as_millis()).unwrap();
    let unhindered = u64::from(6 * SLOTS) * 60_000 / millis;
    // Far below what the server can do, or its slots would be what calls wait for.
    let calls_per_minute = unhindered / 4;
    let per_minute = calls_per_minute * charge;
    println!("{unhindered} calls per minute; with a quota of {per_minute} tokens per minute, {charge} a call:");

    let quota = Quota {
        tokens_per_minute: Some(per_minute),
        burst: Duration::from_secs_f64(2.5 * 60.0 / number(calls_per_minute)),
        max_output: OUTPUT,
        ..Quota::default()
    };
    let limiter = Limiter::builder().max_inflight(SLOTS).interactive_reserve(0).quota(quota).build().unwrap();
    let layer = InflightLimitLayer::new(limiter.clone()).estimate_tokens(Known(prompt));
    let server = Server::new(limiter, layer);
    let demand: Vec<_> = (0..3 * SLOTS)
        .map(|_| {
            let server = server.clone();
            tokio::spawn(async move {
                loop {
                    ask_in_full(&server).await;
                }
            })
        })
        .collect();

    sleep(Duration::from_secs(10)).await;
    let (first, began_at) = (server.lane(), now());
    sleep(WATCHED).await;
    let (last, seconds) = (server.lane(), began_at.elapsed().as_secs_f64());
    demand.iter().for_each(tokio::task::JoinHandle::abort);

    // What is counted is of calls that are over; those that run are charged as well.
    let in_flight = |lane: &LaneSnapshot| u64::from(lane.inflight) * charge;
    let admitted = |lane: &LaneSnapshot| lane.quota.unwrap().tokens_admitted + in_flight(lane);
    let reported = |lane: &LaneSnapshot| lane.tokens_input + lane.tokens_output + in_flight(lane);
    let expected = number(per_minute) / 60.0 * seconds;
    let hold = [("admitted", admitted(&last) - admitted(&first)), ("reported", reported(&last) - reported(&first))];
    for (what, tokens) in hold {
        let part = number(tokens) / expected;
        println!("{what}: {:.2} % of the rate over {seconds:.1} s", 100.0 * part);
        assert!((0.98..=1.02).contains(&part), "{what}: {part}");
    }
    let waited = |cause| last.waited_s.get(cause).copied().unwrap_or_default();
    println!("waited for tokens {:.0} s, for slots {:.0} s", waited("tokens"), waited("slot"));
}
