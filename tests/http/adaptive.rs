//! What controllers are told of calls over HTTP, and which answers move a limit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Response;
use http_body_util::BodyExt;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_inflight::controller::{AimdConfig, Controller, Mark, Sample, Sent};
use tower_inflight::{InflightLimitLayer, LaneKey, Limit, Limiter, Outcome, ResponseBody};

use crate::support::*;

/// Keeps what it is told.
#[derive(Clone, Debug, Default)]
struct Recorder(Arc<Mutex<Record>>);

#[derive(Debug, Default)]
struct Record {
    first_bytes: Vec<Duration>,
    samples: Vec<Sample>,
}

impl Controller for Recorder {
    fn limit(&self) -> u32 {
        8
    }

    fn on_first_byte(&mut self, at: Duration, _: &Sent, _: Mark) {
        self.0.lock().unwrap().first_bytes.push(at);
    }

    fn on_end(&mut self, sample: &Sample) {
        self.0.lock().unwrap().samples.push(*sample);
    }
}

impl Recorder {
    fn limiter(&self) -> Limiter {
        let recorder = self.clone();
        let controller = move |_: &LaneKey| Some(Box::new(recorder.clone()) as Box<dyn Controller>);
        Limiter::builder().interactive_reserve(0).lane_controller(controller).build().unwrap()
    }

    /// The only call there was.
    fn sample(&self) -> Sample {
        let record = self.0.lock().unwrap();
        let [sample] = record.samples[..] else { panic!("{record:?}") };
        assert_eq!(Vec::from_iter(sample.first_byte_at), record.first_bytes);
        sample
    }
}

fn aimd(initial_limit: u32) -> Limiter {
    let config = AimdConfig { initial_limit, ..AimdConfig::default() };
    Limiter::builder().limit(Limit::Aimd(config)).interactive_reserve(0).build().unwrap()
}

fn limit(limiter: &Limiter) -> u32 {
    lane(limiter).limit
}

#[tokio::test(start_paused = true)]
async fn a_streamed_answer_is_told_with_its_first_byte_its_pieces_and_its_size() {
    let recorder = Recorder::default();
    let limiter = recorder.limiter();
    let client = client(&limiter, |_| async {
        sleep(1.0).await;
        Ok(ok(Script::new([wait(2), data("one"), wait(3), data("two"), wait(4), data("three"), wait(5)])))
    });
    let body = r#"{"model":"m","stream":true}"#;
    read(send_query(&client, post("/v1/chat/completions", body)).await.unwrap()).await.unwrap();
    let sample = recorder.sample();
    let since_sent = |at: Duration| (at - sample.sent.at).as_secs();
    assert_eq!((sample.first_byte_at.map(since_sent), since_sent(sample.ended_at)), (Some(3), 15));
    assert_eq!((sample.further_chunks, sample.answer_bytes), (2, 11));
    assert_eq!((sample.outcome, sample.retry_after), (Outcome::Success, None));
    assert_eq!(sample.sent.request_bytes, Some(27));
    assert_eq!((sample.sent.in_flight, sample.in_flight, sample.sent.is_saturated), (1, 1, false));
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_one_piece_has_no_further_ones() {
    for (script, bytes) in [
        (Script::new([data("fine")]).sized().telling_end(), 4),
        (Script::new([data("fine")]), 4),
        (Script::new([]).telling_end(), 0),
    ] {
        let recorder = Recorder::default();
        let limiter = recorder.limiter();
        let script = Arc::new(Mutex::new(Some(script)));
        fetch(&answering(&limiter, move |_| ok(script.lock().unwrap().take().unwrap()))).await.unwrap();
        let sample = recorder.sample();
        assert_eq!((sample.further_chunks, sample.answer_bytes), (0, bytes));
        assert_eq!((sample.first_byte_at, sample.outcome), (Some(sample.sent.at), Outcome::Success));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_an_error_has_no_first_byte() {
    for (code, outcome) in [
        (400, Outcome::ClientError),
        (402, Outcome::Quota),
        (429, Outcome::Overload),
        (500, Outcome::ServerError),
        (503, Outcome::Unavailable),
        (529, Outcome::Overload),
    ] {
        let recorder = Recorder::default();
        let limiter = recorder.limiter();
        let client = answering(&limiter, move |_| {
            let mut response = status(code, Script::new([data("no")]).sized().telling_end());
            response.headers_mut().insert("retry-after", "7".parse().unwrap());
            response
        });
        fetch(&client).await.unwrap();
        let sample = recorder.sample();
        let is_busy = matches!(code, 429 | 503 | 529);
        assert_eq!((sample.outcome, sample.first_byte_at), (outcome, None));
        assert_eq!(sample.retry_after, is_busy.then_some(Duration::from_secs(7)), "{code}");
        assert_eq!((sample.further_chunks, sample.answer_bytes), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_breaks_off_stalls_or_is_dropped_is_told_as_that_and_once() {
    let steps = || vec![data("one"), wait(1), data("two")];
    let ends: [(Outcome, Step); 2] = [(Outcome::Transport, Step::Fail(reset(1))), (Outcome::Stalled, Step::Silence)];
    for (outcome, end) in ends {
        let recorder = Recorder::default();
        let (hook, end) = (recorder.clone(), Arc::new(Mutex::new(Some(end))));
        let limiter = Limiter::builder()
            .idle_timeout(Duration::from_secs(30))
            .lane_controller(move |_| Some(Box::new(hook.clone())))
            .build()
            .unwrap();
        let client =
            answering(&limiter, move |_| ok(Script::new(steps().into_iter().chain(end.lock().unwrap().take()))));
        fetch(&client).await.unwrap_err();
        let sample = recorder.sample();
        assert_eq!((sample.outcome, sample.further_chunks, sample.answer_bytes), (outcome, 1, 6));
        assert_eq!(sample.first_byte_at, Some(sample.sent.at));
    }

    let recorder = Recorder::default();
    let limiter = recorder.limiter();
    let mut body = send(&answering(&limiter, |_| ok(endless()))).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    drop(body);
    assert_eq!((recorder.sample().outcome, recorder.sample().further_chunks), (Outcome::Cancelled, 0));

    let recorder = Recorder::default();
    let limiter = recorder.limiter();
    let call = spawned(&client(&limiter, |_| std::future::pending()), chat()).await;
    call.abort();
    assert!(call.await.is_err());
    assert_eq!((recorder.sample().outcome, recorder.sample().first_byte_at), (Outcome::Cancelled, None));
    assert_idle(&limiter);
}

#[tokio::test(start_paused = true)]
async fn calls_that_had_to_wait_are_told_as_saturated_with_those_in_flight() {
    let recorder = Recorder::default();
    let limiter = recorder.limiter();
    let client = client(&limiter, |_| async {
        sleep(1.0).await;
        Ok(ok(Script::new([data("fine")])))
    });
    let calls: Vec<_> = (0..20)
        .map(|_| {
            tokio::spawn({
                let client = client.clone();
                async move { fetch(&client).await }
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let record = recorder.0.lock().unwrap();
    let sent: Vec<_> = record.samples.iter().map(|sample| (sample.sent.in_flight, sample.sent.is_saturated)).collect();
    assert_eq!(sent.len(), 20);
    assert_eq!(sent[..8], [1, 2, 3, 4, 5, 6, 7, 8].map(|n| (n, false)), "nobody waited yet");
    let second = &sent[8..16];
    assert!(second.iter().all(|(in_flight, is_saturated)| *is_saturated && *in_flight <= 8), "{second:?}");
    assert_eq!(sent[16..], [1, 2, 3, 4].map(|n| (n, false)), "they had waited, and left slots free");
    assert!(record.samples.iter().all(|sample| (1..=8).contains(&sample.in_flight)));
    drop(record);
    assert_idle(&limiter);
}

// Case 87, and case 78 with the same meaning.
#[tokio::test(start_paused = true)]
async fn the_refusals_of_one_wave_halve_the_limit_once() {
    for code in [429, 529] {
        let limiter = aimd(64);
        let client = client(&limiter, move |_| async move {
            sleep(0.05).await;
            Ok(status(code, Script::new([data("busy")]).sized().telling_end()))
        });
        let calls: Vec<_> = (0..64).map(|_| tokio::spawn(client.clone().oneshot(chat()))).collect();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!(limit(&limiter), 32);
        sleep(0.001).await;
        fetch(&client).await.unwrap();
        assert_eq!(limit(&limiter), 16, "sent under the lower limit");
    }
}

/// A full lane whose answers are all alike.
async fn answered_alike(limiter: &Limiter, answer: impl Fn() -> Response<Script> + Clone + Send + Sync + 'static) {
    let client = client(limiter, move |_| {
        let answer = answer();
        async move {
            sleep(0.002).await;
            Ok(answer)
        }
    });
    let calls: Vec<_> = (0..100)
        .map(|_| {
            tokio::spawn({
                let client = client.clone();
                async move { fetch(&client).await }
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

fn assert_left_alone(limiter: &Limiter) {
    let lane = lane(limiter);
    assert_eq!((lane.limit, lane.last_change, lane.paused_until_s), (16, None, None));
    assert_idle(limiter);
}

// Case 80.
#[tokio::test(start_paused = true)]
async fn answers_that_blame_the_request_leave_the_limit_alone() {
    for code in [400, 401, 403, 404, 409, 413, 422] {
        let limiter = aimd(16);
        answered_alike(&limiter, move || status(code, Script::new([data("{}")]))).await;
        assert_left_alone(&limiter);
    }
}

// Case 75.
#[tokio::test(start_paused = true)]
async fn an_empty_account_leaves_the_limit_alone() {
    let limiter = aimd(16);
    answered_alike(&limiter, || {
        let body = r#"{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}"#;
        let mut response = status(429, Script::new([data(body)]));
        response.headers_mut().insert("retry-after", "60".parse().unwrap());
        response
    })
    .await;
    assert_left_alone(&limiter);
}

// Case 85.
#[tokio::test(start_paused = true)]
async fn refusals_of_a_limiter_further_in_leave_the_limit_alone() {
    let (outer, inner) = (aimd(16), slots(1).max_queue(0).build().unwrap());
    let _held = send(&answering(&inner, |_| ok(endless()))).await.unwrap();
    let upstream = service_fn(|_: Query| std::future::ready(Ok::<_, Reset>(ok(endless()))));
    let stack = ServiceBuilder::new()
        .layer(InflightLimitLayer::new(outer.clone()))
        .layer(InflightLimitLayer::new(inner.clone()))
        .service(upstream);
    for _ in 0..100 {
        let refused: Result<Response<ResponseBody<_>>, _> = stack.clone().oneshot(chat()).await;
        assert!(refused.is_err());
    }
    assert_eq!(outcomes(&outer), only(Outcome::Refused, 100));
    assert_left_alone(&outer);
}

// Case 85: its own refusals.
#[tokio::test(start_paused = true)]
async fn refusals_of_its_own_leave_the_limit_alone() {
    let config = AimdConfig { initial_limit: 16, ..AimdConfig::default() };
    let limiter = Limiter::builder().limit(Limit::Aimd(config)).max_queue(0).build().unwrap();
    let client = answering(&limiter, |_| ok(endless()));
    let mut held = Vec::new();
    for _ in 0..15 {
        held.push(send(&client).await.unwrap());
    }
    for _ in 0..100 {
        rejected(send(&client).await);
    }
    drop(held);
    assert_left_alone(&limiter);
}

#[tokio::test(start_paused = true)]
async fn cancelled_calls_leave_the_limit_alone() {
    let limiter = aimd(16);
    let client = answering(&limiter, |_| ok(endless()));
    for _ in 0..50 {
        let mut body = send(&client).await.unwrap().into_body();
        body.frame().await.unwrap().unwrap();
        drop(body);
        drop(send(&client).await.unwrap());
    }
    assert_eq!(outcomes(&limiter), only(Outcome::Cancelled, 100));
    assert_left_alone(&limiter);
}

/// An upstream that closes the connection under some of the calls.
fn breaking(limiter: &Limiter, breaks: impl Fn(usize) -> bool + Clone + Send + Sync + 'static) -> Client {
    let calls = Arc::new(AtomicUsize::new(0));
    client(limiter, move |_| {
        let breaks = breaks(calls.fetch_add(1, Ordering::Relaxed));
        async move { if breaks { Err(reset(1).into()) } else { Ok(ok(Script::new([data("fine")]))) } }
    })
}

#[tokio::test(start_paused = true)]
async fn a_keep_alive_race_costs_nothing_and_a_broken_upstream_half() {
    let limiter = aimd(16);
    let client = breaking(&limiter, |call| call == 40);
    let mut broken = 0;
    for _ in 0..80 {
        sleep(0.001).await;
        broken += u32::from(fetch(&client).await.is_err());
    }
    assert_eq!((broken, limit(&limiter), lane(&limiter).last_change), (1, 16, None));

    let client = breaking(&limiter, |call| call < 2);
    for _ in 0..2 {
        sleep(0.001).await;
        fetch(&client).await.unwrap_err();
    }
    assert_eq!(limit(&limiter), 8, "the second in a row is no race");
}

#[tokio::test(start_paused = true)]
async fn a_stall_counts_at_the_head_and_in_the_body() {
    let stalling = |answers: bool| {
        let config = AimdConfig { initial_limit: 16, ..AimdConfig::default() };
        let timeout = Duration::from_secs(10);
        let limiter = Limiter::builder()
            .limit(Limit::Aimd(config))
            .first_byte_timeout(timeout)
            .idle_timeout(timeout)
            .build()
            .unwrap();
        let client = client(&limiter, move |_| async move {
            if !answers {
                std::future::pending::<()>().await;
            }
            Ok(ok(endless()))
        });
        (limiter, client)
    };
    for answers in [false, true] {
        let (limiter, client) = stalling(answers);
        fetch(&client).await.unwrap_err();
        assert_eq!(outcomes(&limiter), only(Outcome::Stalled, 1));
        assert_eq!((limit(&limiter), lane(&limiter).last_change.unwrap().cause), (8, "stalled"));
    }
}

// Case 89, with a pause.
#[tokio::test(start_paused = true)]
async fn a_refusal_pauses_and_lowers_before_the_next_is_sent() {
    let limiter = aimd(4);
    let called = Arc::new(AtomicUsize::new(0));
    let count = called.clone();
    let client = client(&limiter, move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        async {
            sleep(1.0).await;
            Ok(busy("30"))
        }
    });
    let calls: Vec<_> = (0..40).map(|_| tokio::spawn(client.clone().oneshot(chat()))).collect();
    sleep(29.0).await;
    assert_eq!((called.load(Ordering::Relaxed), figures(&limiter), limit(&limiter)), (4, (0, 36), 2));
    assert_paused(&limiter, 2.0);
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    for call in calls {
        let _ = call.await;
    }
    assert_idle(&limiter);
}

// Case 82.
#[tokio::test(start_paused = true)]
async fn an_overload_inside_of_a_200_lowers_the_limit_once_and_passes_unchanged() {
    const EVENTS: [&str; 3] = [
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"Hi\"}}\n\n",
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n",
    ];
    let limiter = aimd(16);
    let client = client(&limiter, |_| async {
        sleep(0.001).await;
        let mut response = ok(Script::new(EVENTS.map(data)));
        response.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
        Ok(response)
    });
    assert_eq!(fetch(&client).await.unwrap(), EVENTS.concat());
    assert_eq!(outcomes(&limiter), only(Outcome::Overload, 1));
    let lane = lane(&limiter);
    assert_eq!((lane.limit, lane.tokens_input, lane.tokens_output), (8, 25, 1));
    assert_idle(&limiter);
}
