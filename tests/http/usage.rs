//! What is read from passing answers: their tokens, their end, and the errors inside of them.

use http_body_util::BodyExt;
use tower_inflight::{
    CachedInput, Call, CallEvent, InflightLimitLayer, Limiter, Outcome, Priority, ReadUsage, ReleaseOn, Usage,
};
use tower_layer::Layer;

use crate::support::*;

const CHUNK: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n";
const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":3}}\n\n";
const DONE: &str = "data: [DONE]\n\n";
const OVERLOADED: &str = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n";

fn events(events: &[&'static str]) -> Script {
    Script::new(events.iter().copied().map(data))
}

/// The same, and then the transport has no more to say.
fn silent(events: &[&'static str]) -> Script {
    Script::new(events.iter().copied().map(data).chain([Step::Silence]))
}

fn layered(
    limiter: &Limiter,
    set: impl Fn(InflightLimitLayer) -> InflightLimitLayer,
    answer: impl Fn() -> Script + Clone + Send + Sync + 'static,
) -> Client {
    let upstream =
        tower::service_fn(move |_: Query| std::future::ready(Ok::<_, tower_inflight::BoxError>(ok(answer()))));
    Client::new(set(InflightLimitLayer::new(limiter.clone())).layer(upstream))
}

fn plain(layer: InflightLimitLayer) -> InflightLimitLayer {
    layer
}

/// Tokens in, tokens out, answers without a report.
fn tokens(limiter: &Limiter) -> (u64, u64, u64) {
    let lane = lane(limiter);
    (lane.tokens_input, lane.tokens_output, lane.usage_unknown)
}

async fn read_frames(reply: &mut Reply, count: usize) {
    for _ in 0..count {
        reply.body_mut().frame().await.unwrap().unwrap();
    }
}

async fn ended(answer: impl Fn() -> Script + Clone + Send + Sync + 'static) -> Limiter {
    let limiter = limiter(1);
    let _ = fetch(&layered(&limiter, plain, answer)).await;
    assert_idle(&limiter);
    limiter
}

#[tokio::test]
async fn tokens_are_summed_over_the_calls_of_a_lane() {
    let limiter = limiter(1);
    let client = layered(&limiter, plain, || events(&[CHUNK, USAGE, DONE]));
    fetch(&client).await.unwrap();
    fetch(&client).await.unwrap();
    assert_eq!(tokens(&limiter), (16, 6, 0));
    assert_eq!(outcomes(&limiter), only(Outcome::Success, 2));
}

#[tokio::test]
async fn an_answer_that_reports_nothing_counts_as_unknown() {
    assert_eq!(tokens(&ended(|| Script::new([data("{\"choices\":[]}")])).await), (0, 0, 1));
    assert_eq!(tokens(&ended(|| Script::new([data("\x00\x01binary")])).await), (0, 0, 1));
    assert_eq!(tokens(&ended(|| events(&[CHUNK, DONE])).await), (0, 0, 1));
}

// Case 117.
#[tokio::test]
async fn a_compressed_answer_passes_untouched_and_counts_as_unknown() {
    let limiter = limiter(1);
    let bytes = b"\x1f\x8b\x08data: {\"usage\":{\"prompt_tokens\":8}}\n\n";
    let client = answering(&limiter, |_| {
        let mut response = ok(Script::new([data(&bytes[..])]));
        response.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
        response.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
        response
    });
    assert_eq!(fetch(&client).await.unwrap(), &bytes[..]);
    assert_eq!((tokens(&limiter), outcomes(&limiter)), ((0, 0, 1), only(Outcome::Success, 1)));
}

#[tokio::test]
async fn an_answer_that_is_no_success_is_not_read() {
    let limiter = limiter(1);
    let client = answering(&limiter, |_| status(400, Script::new([data("{\"usage\":{\"prompt_tokens\":8}}")])));
    fetch(&client).await.unwrap();
    assert_eq!(tokens(&limiter), (0, 0, 0));
}

// Case 101.
#[tokio::test]
async fn a_stream_dropped_after_its_report_is_cancelled_and_counted() {
    let limiter = limiter(1);
    let client = layered(&limiter, plain, || silent(&[CHUNK, USAGE]));
    let mut reply = send(&client).await.unwrap();
    read_frames(&mut reply, 2).await;
    drop(reply);
    assert_eq!((tokens(&limiter), outcomes(&limiter)), ((8, 3, 0), only(Outcome::Cancelled, 1)));
    assert_idle(&limiter);
}

// Case 103.
#[tokio::test]
async fn usage_is_counted_once_whatever_looks_like_the_end() {
    let report = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\n";
    let limiter = ended(move || events(&[USAGE, report, DONE])).await;
    assert_eq!(tokens(&limiter), (9, 4, 0));
    let limiter = ended(|| Script::new([data(USAGE), Step::Fail(reset(1))])).await;
    assert_eq!((tokens(&limiter), outcomes(&limiter)), ((8, 3, 0), only(Outcome::Transport, 1)));
}

#[tokio::test]
async fn the_calls_listener_hears_how_it_ended_and_what_it_used() {
    let limiter = limiter(1);
    let heard = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = heard.clone();
    let call = Call::new(Priority::Default).with_listener(move |event| {
        if let CallEvent::Ended { outcome, usage } = event {
            told.lock().unwrap().push((outcome, usage.copied()));
            panic!("costs nothing");
        }
    });
    let client = layered(&limiter, plain, || events(&[CHUNK, USAGE, DONE]));
    read(send_query(&client, with(chat(), call.clone())).await.unwrap()).await.unwrap();
    let failing = answering(&limiter, |_| status(503, Script::new([])));
    read(send_query(&failing, with(chat(), call)).await.unwrap()).await.unwrap();
    let expected = [(Outcome::Success, Some(Usage::new(8, 3))), (Outcome::Unavailable, None)];
    assert_eq!(*heard.lock().unwrap(), expected);
    assert_idle(&limiter);
}

#[tokio::test]
async fn cached_input_counts_as_the_layer_is_told() {
    let body = "{\"usage\":{\"input_tokens\":25,\"cache_read_input_tokens\":1000,\"output_tokens\":5}}";
    let limiter = limiter(1);
    fetch(&layered(&limiter, |layer| layer.cached_input(CachedInput::Included), move || Script::new([data(body)])))
        .await
        .unwrap();
    assert_eq!(tokens(&limiter), (1025, 5, 0));
}

/// However the transport cuts the last event.
#[tokio::test]
async fn a_stream_dropped_after_a_last_event_that_came_in_two_is_a_success() {
    let stream = format!("{CHUNK}{DONE}");
    for cut in CHUNK.len()..stream.len() {
        let (head, tail) = stream.split_at(cut);
        let (head, tail) = (bytes::Bytes::from(head.to_owned()), bytes::Bytes::from(tail.to_owned()));
        let limiter = limiter(1);
        let client =
            layered(&limiter, plain, move || Script::new([data(head.clone()), data(tail.clone()), Step::Silence]));
        let mut reply = send(&client).await.unwrap();
        read_frames(&mut reply, 2).await;
        assert_eq!(in_flight(&limiter), 1, "held until the body ends or is dropped");
        drop(reply);
        assert_eq!(outcomes(&limiter), only(Outcome::Success, 1), "cut at {cut}");
        assert_idle(&limiter);
    }
}

#[tokio::test]
async fn words_that_look_like_the_end_are_none() {
    for frame in ["data: {\"text\":\"say [DONE]\"}\n\n", "data: {\"text\":\"\\\"message_stop\\\"}", ": [DONE]"] {
        let limiter = limiter(1);
        let client = layered(&limiter, plain, move || silent(&[CHUNK, frame]));
        let mut reply = send(&client).await.unwrap();
        read_frames(&mut reply, 2).await;
        drop(reply);
        assert_eq!(outcomes(&limiter), only(Outcome::Cancelled, 1), "{frame}");
    }
}

// Case D19.
#[tokio::test]
async fn an_overload_inside_of_a_200_is_an_overload_however_the_body_ends() {
    let bodies: [fn() -> Script; 4] = [
        || events(&[CHUNK, OVERLOADED]),
        || events(&[CHUNK, OVERLOADED, DONE]),
        || events(&[CHUNK, OVERLOADED]).sized().telling_end(),
        || Script::new([data(CHUNK), data(OVERLOADED), Step::Fail(reset(1))]),
    ];
    for body in bodies {
        assert_eq!(outcomes(&ended(body).await), only(Outcome::Overload, 1));
    }
    let limiter = limiter(1);
    let mut reply = send(&layered(&limiter, plain, || silent(&[CHUNK, OVERLOADED]))).await.unwrap();
    read_frames(&mut reply, 2).await;
    drop(reply);
    assert_eq!(outcomes(&limiter), only(Outcome::Overload, 1), "dropped after the error");
    assert_idle(&limiter);
}

#[tokio::test]
async fn any_other_error_inside_of_a_200_is_a_failure() {
    let error = "data: {\"error\":{\"message\":\"x\",\"type\":\"server_error\"}}\n\n";
    assert_eq!(outcomes(&ended(move || events(&[CHUNK, error])).await), only(Outcome::ServerError, 1));
    let ollama = "{\"message\":{},\"done\":false}\n{\"error\":\"runner stopped\"}";
    assert_eq!(outcomes(&ended(move || events(&[ollama])).await), only(Outcome::ServerError, 1));
}

// Case 115.
#[tokio::test]
async fn a_stream_that_ends_in_mid_answer_is_no_success() {
    let finish = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    let last = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":3}}";
    for (body, outcome) in [
        (vec![CHUNK, USAGE], Outcome::Success),
        (vec![CHUNK, finish], Outcome::Success),
        (vec![CHUNK, CHUNK], Outcome::Transport),
        (vec![CHUNK, last], Outcome::Success),
    ] {
        let frames = body.clone();
        let limiter = ended(move || events(&frames)).await;
        assert_eq!(outcomes(&limiter), only(outcome, 1), "{body:?}");
        let known = if body.len() == 2 && body[1].contains("usage") { (8, 3, 0) } else { (0, 0, 1) };
        assert_eq!(tokens(&limiter), known, "{body:?}");
    }
    // All the bytes that were announced have come.
    assert_eq!(outcomes(&ended(|| events(&[CHUNK, CHUNK]).sized()).await), only(Outcome::Success, 1));
}

// SPEC S5.
#[tokio::test]
async fn a_slot_is_free_at_the_last_event_where_the_layer_is_told_so() {
    let streams: [&[&str]; 6] = [
        &[CHUNK, "data: [DO", "NE]\n\n"],
        &["event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"],
        &["data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":1}}}\n\n"],
        &["{\"message\":{},\"done\":false}\n", "{\"done\":true,\"eval_count\":5}\n"],
        &["event: message-end\ndata: {\"type\":\"message-end\",\"delta\":{}}\n\n"],
        &[CHUNK, OVERLOADED],
    ];
    for stream in streams {
        let limiter = limiter(1);
        let client = layered(&limiter, |layer| layer.release_on(ReleaseOn::TerminalEvent), move || silent(stream));
        let mut reply = send(&client).await.unwrap();
        for left in (0..stream.len()).rev() {
            read_frames(&mut reply, 1).await;
            assert_eq!(in_flight(&limiter), u32::from(left > 0), "{stream:?}");
        }
        let next = send(&client).await.unwrap();
        drop((reply, next));
        assert_idle(&limiter);
    }
}

#[tokio::test]
async fn what_comes_after_the_slot_is_free_passes_and_is_judged_no_more() {
    let limiter = limiter(1);
    let client = layered(
        &limiter,
        |layer| layer.release_on(ReleaseOn::TerminalEvent),
        || Script::new([data(USAGE), data(DONE), data("more"), trailers(), Step::Fail(reset(1))]),
    );
    let mut reply = send(&client).await.unwrap();
    read_frames(&mut reply, 4).await;
    assert!(reply.body_mut().frame().await.unwrap().is_err());
    assert_eq!((outcomes(&limiter), tokens(&limiter)), (only(Outcome::Success, 1), (8, 3, 0)));
    assert_idle(&limiter);
}

#[tokio::test]
async fn geminis_finish_reason_frees_no_slot() {
    let limiter = limiter(1);
    let client = layered(
        &limiter,
        |layer| layer.release_on(ReleaseOn::TerminalEvent),
        || {
            silent(&[
                "data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":2}}\n\n",
            ])
        },
    );
    let mut reply = send(&client).await.unwrap();
    read_frames(&mut reply, 1).await;
    assert_eq!(in_flight(&limiter), 1);
}

#[tokio::test]
async fn a_layer_that_does_not_read_still_knows_a_last_event_in_one_piece() {
    let limiter = limiter(1);
    let set = |layer: InflightLimitLayer| layer.read_usage(ReadUsage::Off).release_on(ReleaseOn::TerminalEvent);
    let mut reply = send(&layered(&limiter, set, || silent(&[USAGE, DONE]))).await.unwrap();
    read_frames(&mut reply, 2).await;
    assert_eq!((in_flight(&limiter), tokens(&limiter)), (0, (0, 0, 0)));
    let overload = limiter.clone();
    fetch(&layered(&overload, set, || events(&[OVERLOADED]))).await.unwrap();
    assert_eq!(outcomes(&limiter), only(Outcome::Success, 2));
}

/// Hostile and good bytes alike, frame by frame.
#[tokio::test]
async fn bytes_pass_unchanged_whether_they_are_read_or_not() {
    let never_ending = "x".repeat(100_000);
    let deep = "[".repeat(10_000);
    let bodies = [
        vec![CHUNK.to_owned(), USAGE.to_owned(), DONE.to_owned()],
        vec!["data: {\"text\":\"".to_owned(), never_ending.clone(), never_ending],
        vec![deep.clone(), format!("data: {deep}\n\n")],
        vec!["data: {\"usage\":{\"prompt_tokens\":-1}}\r\n\r\n".to_owned(), String::new(), "\u{feff}\r\r".to_owned()],
    ];
    for frames in bodies {
        for read in [ReadUsage::On, ReadUsage::Off] {
            let limiter = limiter(1);
            let sent = frames.clone();
            let client = layered(
                &limiter,
                move |layer| layer.read_usage(read),
                move || Script::new(sent.iter().cloned().map(data)),
            );
            let mut reply = send(&client).await.unwrap();
            for frame in &frames {
                let passed = reply.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
                assert_eq!(passed, frame.as_bytes());
            }
            assert!(reply.body_mut().frame().await.is_none());
            assert_idle(&limiter);
        }
    }
}
