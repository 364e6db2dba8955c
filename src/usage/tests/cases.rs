//! The cases that went wrong elsewhere, and the shapes of answers.

use super::{counts, read};
use crate::engine::outcome::Outcome;
use crate::usage::{CachedInput, UsageTap};

fn events(payloads: &[&str]) -> String {
    payloads.iter().map(|payload| format!("data: {payload}\n\n")).collect()
}

// B1.
#[test]
fn usage_of_a_document_is_read() {
    assert_eq!(
        counts(read(r#"{"usage":{"prompt_tokens":8,"completion_tokens":3,"total_tokens":11}}"#)),
        (Some(8), Some(3))
    );
}

// Case 104, B2.
#[test]
fn usage_is_read_after_the_finish_reason_and_null_is_no_usage() {
    let body = events(&[
        r#"{"choices":[{"delta":{"content":"Hi"}}],"usage":null}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":null}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":3,"total_tokens":11}}"#,
        "[DONE]",
    ]);
    assert_eq!(counts(read(body)), (Some(8), Some(3)));
}

// Cases 103 and 105, B3.
#[test]
fn the_last_of_running_totals_stands() {
    let chunk = |out: u32| {
        format!(
            r#"{{"choices":[{{"delta":{{"content":"x"}}}}],"usage":{{"prompt_tokens":8,"completion_tokens":{out}}}}}"#
        )
    };
    let body = events(&[&chunk(1), &chunk(2), &chunk(3), "[DONE]"]);
    assert_eq!(counts(read(&body)), (Some(8), Some(3)));
    let mut tap = UsageTap::new();
    tap.feed(body.trim_end_matches("data: [DONE]\n\n").as_bytes());
    assert!(!tap.has_ended(), "usage is no end");
}

// B4.
#[test]
fn a_first_chunk_without_choices_is_no_usage() {
    let body = events(&[
        r#"{"choices":[],"prompt_filter_results":[{"prompt_index":0}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":3}}"#,
    ]);
    assert_eq!(counts(read(body)), (Some(8), Some(3)));
}

// Case 106, B5.
#[test]
fn anthropics_start_and_running_deltas_are_not_added() {
    let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n";
    let delta = |usage: &str| {
        format!("event: message_delta\ndata: {{\"type\":\"message_delta\",\"delta\":{{}},\"usage\":{usage}}}\n\n")
    };
    for (deltas, expected) in [
        (vec![delta(r#"{"output_tokens":15}"#)], (Some(25), Some(15))),
        (vec![delta(r#"{"output_tokens":7}"#), delta(r#"{"output_tokens":15}"#)], (Some(25), Some(15))),
        (vec![delta(r#"{"input_tokens":120,"output_tokens":15}"#)], (Some(120), Some(15))),
    ] {
        assert_eq!(counts(read(start.to_owned() + &deltas.concat())), expected);
    }
}

// B7.
#[test]
fn usage_of_a_completed_response_is_read() {
    let body = events(&[
        r#"{"type":"response.completed","response":{"error":null,"usage":{"input_tokens":36,"output_tokens":87}}}"#,
    ]);
    let reading = read(body);
    assert_eq!((counts(reading), reading.has_ended, reading.trouble), ((Some(36), Some(87)), true, None));
}

// Case 108, B9.
#[test]
fn geminis_running_totals_count_thoughts_and_their_finish_reason_is_no_end() {
    let usage = |usage: &str| format!(r#"{{"candidates":[{{"finishReason":"STOP"}}],"usageMetadata":{usage}}}"#);
    let body = events(&[
        &usage(r#"{"promptTokenCount":219}"#),
        &usage(r#"{"promptTokenCount":219,"candidatesTokenCount":2}"#),
        &usage(r#"{"promptTokenCount":219,"candidatesTokenCount":4,"thoughtsTokenCount":167,"totalTokenCount":390}"#),
    ]);
    let reading = read(body);
    assert_eq!(counts(reading), (Some(219), Some(171)));
    assert!(!reading.has_ended && !reading.is_cut_short);
}

// Case 109, B11.
#[test]
fn ollamas_last_line_needs_no_prompt_count_and_no_line_end() {
    let body = "{\"message\":{\"content\":\"a\"},\"done\":false}\n{\"done\":true,\"eval_count\":5}";
    let reading = read(body);
    assert_eq!((counts(reading), reading.has_ended, reading.pieces), ((None, Some(5)), true, 1));
    let failed = read("{\"message\":{\"content\":\"a\"},\"done\":false}\n{\"error\":\"runner stopped\"}");
    assert_eq!(failed.trouble, Some(Outcome::ServerError));
}

// B15.
#[test]
fn usage_beside_a_finish_reason_and_timings_is_read() {
    let body = events(&[
        r#"{"choices":[{"finish_reason":"stop","delta":{}}],"usage":{"prompt_tokens":8,"completion_tokens":3},"timings":{"prompt_n":80,"predicted_n":30}}"#,
    ]);
    assert_eq!(counts(read(body)), (Some(8), Some(3)));
}

// B16.
#[test]
fn embeddings_have_no_output() {
    assert_eq!(
        counts(read(r#"{"data":[{"embedding":[0.1,-0.2]}],"usage":{"prompt_tokens":9,"total_tokens":9}}"#)),
        (Some(9), Some(0))
    );
}

// Case 117, B17.
#[test]
fn a_compressed_answer_is_not_read() {
    for encoding in ["gzip", "br", "zstd", "deflate", "something"] {
        let mut tap = UsageTap::new();
        tap.header("content-type", b"text/event-stream");
        tap.header("content-encoding", encoding.as_bytes());
        tap.feed(b"data: {\"usage\":{\"prompt_tokens\":8}}\n\ndata: [DONE]\n\n");
        let reading = tap.finish();
        assert!(reading.usage.is_unknown() && !reading.has_ended && !reading.is_cut_short, "{encoding}");
    }
    let mut tap = UsageTap::new();
    tap.header("content-encoding", b" Identity ");
    tap.feed(br#"{"usage":{"prompt_tokens":8}}"#);
    assert_eq!(tap.finish().usage.input_tokens, Some(8));
}

// Case 113, B20.
#[test]
fn comments_pings_blank_data_and_unknown_fields_are_passed_over() {
    let body = ": OPENROUTER PROCESSING\n\n: ping\n\ndata:\n\ndata: : keepalive\n\nretry: 3000\nid: 7\nfoo: bar\n\n\
        event: ping\ndata: {\"type\":\"ping\"}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n";
    let reading = read(body);
    assert_eq!((counts(reading), reading.has_ended, reading.trouble), ((Some(8), Some(3)), true, None));
    assert_eq!(reading.pieces, 0);
}

// Case 115.
#[test]
fn a_stream_may_end_without_a_mark_but_not_in_mid_answer() {
    let delta = r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}"#;
    let finish = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":3}}"#;
    for (payloads, is_cut_short) in
        [(vec![delta, usage], false), (vec![delta, finish], false), (vec![delta, delta], true), (vec![], false)]
    {
        let reading = read(events(&payloads));
        assert_eq!((reading.is_cut_short, reading.has_ended), (is_cut_short, false), "{payloads:?}");
    }
    let unterminated = format!("{}data: {usage}", events(&[delta]));
    assert_eq!(counts(read(unterminated)), (Some(8), Some(3)));
    let start = r#"{"type":"message_start","message":{"usage":{"input_tokens":25}}}"#;
    assert!(read(events(&[start])).is_cut_short);
    assert!(read("{\"message\":{},\"done\":false}\n").is_cut_short);
    assert!(read(r#"{"choices":[{"message":{"content":"half"#).is_cut_short);
}

// Case 101.
#[test]
fn what_was_produced_before_an_early_end_is_estimated_by_pieces() {
    let delta = |text: &str| format!(r#"{{"choices":[{{"delta":{{"content":"{text}"}}}}]}}"#);
    let tokens = events(&[&delta("a"), &delta("b"), &delta("c")]);
    assert_eq!(read(&tokens).output_seen, 3);
    let words = events(&[&delta(""), &delta(&"four".repeat(50)), &delta(&"four".repeat(20))]);
    assert_eq!(read(words).output_seen, 70);
    let reported = tokens.clone() + &events(&[r#"{"choices":[],"usage":{"completion_tokens":120}}"#]);
    assert_eq!(read(reported).output_seen, 120);
    // Anthropic reports one token at the start.
    let begun =
        events(&[r#"{"type":"message_start","message":{"usage":{"input_tokens":25,"output_tokens":1}}}"#]) + &tokens;
    assert_eq!(read(begun).output_seen, 3);
    let ended = tokens + &events(&[r#"{"choices":[],"usage":{"completion_tokens":2}}"#, "[DONE]"]);
    assert_eq!(read(ended).output_seen, 2);
}

// D19, C7.
#[test]
fn an_error_inside_of_a_stream_says_what_it_is_about() {
    use Outcome::{ClientError, Overload, Quota, ServerError, Unavailable};
    for (body, outcome) in [
        (
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n",
            Overload,
        ),
        ("event: error\ndata: {\"type\":\"overloaded\"}\n\n", Overload),
        ("event: error\ndata: gone\n\n", ServerError),
        ("data: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"x\"}\n\n", ServerError),
        ("data: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"}}\n\n", ServerError),
        (
            "data: {\"error\":{\"message\":\"x\",\"type\":\"server_error\",\"code\":\"rate_limit_exceeded\"}}\n\n",
            Overload,
        ),
        ("data: {\"error\":{\"message\":\"x\",\"type\":\"requests\",\"code\":429}}\n\n", Overload),
        ("data: {\"error\":{\"code\":\"insufficient_quota\",\"type\":\"requests\"}}\n\n", Quota),
        ("data: {\"error\":{\"code\":503,\"status\":\"UNAVAILABLE\"}}\n\n", Unavailable),
        ("data: {\"error\":{\"code\":429,\"status\":\"RESOURCE_EXHAUSTED\"}}\n\n", Overload),
        ("data: {\"error\":{\"type\":\"invalid_request_error\",\"code\":null}}\n\n", ClientError),
        (
            "data: {\"id\":\"1\",\"error\":{\"code\":\"server_error\"},\"choices\":[{\"finish_reason\":\"error\"}]}\n\n",
            ServerError,
        ),
        ("data: {\"object\":\"error\",\"message\":\"x\",\"type\":\"BadRequestError\",\"code\":400}\n\n", ClientError),
        ("data:{\"error\":\"Model is overloaded\",\"error_type\":\"overloaded\"}\n\n", Overload),
        ("{\"error\":\"runner stopped\"}\n", ServerError),
        ("{\"error\":\"the model runner has unexpectedly stopped, see the log of the server\"}\n", ServerError),
        ("{\"error\":\"\\\"quoted\\\"\"}\n", ServerError),
        ("[{\"error\":{\"code\":429}}]", Overload),
    ] {
        let reading = read(body);
        assert_eq!((reading.trouble, reading.has_ended), (Some(outcome), true), "{body}");
        assert!(!reading.is_cut_short, "{body}");
    }
}

#[test]
fn what_is_no_error_is_none() {
    for body in [
        r#"data: {"error":null,"choices":[]}"#,
        r#"data: {"error":"","choices":[]}"#,
        r#"data: {"choices":[{"delta":{"content":"{\"error\":{\"code\":429}}"}}]}"#,
        r#"data: {"choices":[{"delta":{"error":{"code":429}}}]}"#,
        r#"data: {"type":"content_block_delta","delta":{"type":"error"}}"#,
        "event: message\ndata: error",
    ] {
        assert_eq!(read(format!("{body}\n\n")).trouble, None, "{body}");
    }
}

#[test]
fn the_first_error_stands_whatever_comes_behind_it() {
    let reading = read("data: {\"error\":{\"code\":529}}\n\ndata: {\"error\":{\"code\":500}}\n\ndata: [DONE]\n\n");
    assert_eq!(reading.trouble, Some(Outcome::Overload));
}

#[test]
fn what_only_looks_like_an_end_is_none() {
    for body in [
        r#"data: {"choices":[{"delta":{"content":"[DONE]"}}]}"#,
        r#"data: {"choices":[{"delta":{"type":"message_stop"}}]}"#,
        r#"{"message":{"content":"\"done\":true","done":true},"done":false}"#,
        "data: \"[DONE]\"",
        "event: message_stop",
        ": [DONE]",
    ] {
        assert!(!read(format!("{body}\n\n")).has_ended, "{body}");
    }
}

#[test]
fn usage_is_read_where_providers_put_it_and_nowhere_else() {
    for body in [
        r#"{"choices":[{"message":{"usage":{"prompt_tokens":8}}}]}"#,
        r#"{"metadata":{"usage":{"prompt_tokens":8}}}"#,
        r#"{"text":"\"usage\":{\"prompt_tokens\":8}"}"#,
        r#"[[{"usage":{"prompt_tokens":8}}]]"#,
        r#"{"usage":[{"prompt_tokens":8}]}"#,
        r#"{"usage":{"details":{"prompt_tokens":8}}}"#,
        r#"{"usage":"prompt_tokens"}"#,
    ] {
        assert!(read(body).usage.is_unknown(), "{body}");
    }
}

#[test]
fn bedrock_reports_in_its_head() {
    let mut tap = UsageTap::new();
    tap.header("x-amzn-bedrock-input-token-count", b"12");
    tap.header("x-amzn-bedrock-output-token-count", b" 5 ");
    tap.header("content-type", b"application/vnd.amazon.eventstream");
    tap.feed(b"\x00\x00\x01");
    assert_eq!(counts(tap.finish()), (Some(12), Some(5)));
}

#[test]
fn cached_input_counts_as_it_is_told_to() {
    let openai =
        r#"{"usage":{"prompt_tokens":1000,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":900}}}"#;
    let anthropic = r#"{"usage":{"input_tokens":25,"cache_read_input_tokens":900,"cache_creation_input_tokens":50,"output_tokens":3}}"#;
    for (body, cached, input) in [
        (openai, CachedInput::AsReported, 1000),
        (openai, CachedInput::Included, 1000),
        (openai, CachedInput::Excluded, 100),
        (anthropic, CachedInput::AsReported, 25),
        (anthropic, CachedInput::Included, 975),
        (anthropic, CachedInput::Excluded, 25),
    ] {
        let mut tap = UsageTap::new().cached_input(cached);
        tap.feed(body.as_bytes());
        let usage = tap.finish().usage;
        assert_eq!((usage.input_tokens, usage.cached_tokens), (Some(input), Some(900)), "{cached:?} {body}");
    }
}

#[test]
fn a_last_response_without_usage_is_an_end() {
    for kind in ["completed", "incomplete", "failed"] {
        let payload = format!(r#"{{"type":"response.{kind}","response":{{"error":null,"usage":null}}}}"#);
        assert!(read(events(&[&payload])).has_ended, "{kind}");
        assert!(read(format!("event: response.{kind}\ndata: {{}}\n\n")).has_ended, "{kind}");
    }
}

#[test]
fn an_event_of_several_lines_is_one_text() {
    let body = "data: {\"choices\":[]} [],\ndata: {\"usage\":\ndata: {\"prompt_tokens\":8,\ndata: \"completion_tokens\":3}\ndata: }\n\n";
    assert_eq!(counts(read(body)), (Some(8), Some(3)));
}
