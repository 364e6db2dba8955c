//! What no provider sends.

use proptest::prelude::*;

use super::{SAMPLES, counts, read};
use crate::usage::UsageTap;

// SPEC T4: what is no count of tokens is unknown.
#[test]
fn a_figure_that_is_no_count_is_unknown() {
    for figure in [
        "-8",
        "\"8\"",
        "1e30",
        "8.5",
        "8.0",
        "null",
        "true",
        "{}",
        "[8]",
        "99999999999999999999999",
        "4294967296",
        "+8",
        "0x8",
    ] {
        let body = format!(r#"{{"usage":{{"prompt_tokens":{figure},"completion_tokens":3}}}}"#);
        assert_eq!(counts(read(&body)), (None, Some(3)), "{figure}");
        let before = r#"data: {"usage":{"prompt_tokens":7}}"#;
        assert_eq!(counts(read(format!("{before}\n\ndata: {body}\n\n"))), (Some(7), Some(3)), "{figure}");
    }
}

#[test]
fn depth_costs_nothing_and_hides_nothing() {
    for (open, close) in [("[", "]"), ("{\"usage\":", "}"), ("{\"a\":[", "]}"), ("{\"usage\":{\"tokens\":", "}}")] {
        let deep = format!("{}1{}", open.repeat(10_000), close.repeat(10_000));
        let body = format!(r#"{{"deep":{deep},"usage":{{"prompt_tokens":8,"completion_tokens":3}}}}"#);
        assert_eq!(counts(read(&body)), (Some(8), Some(3)), "{open}");
        assert_eq!(counts(read(format!("data: {body}\n\n"))), (Some(8), Some(3)), "{open}");
        assert!(read(open.repeat(10_000)).usage.is_unknown());
        let _ = read(close.repeat(10_000));
        let _ = read(deep);
    }
}

#[test]
fn a_broken_line_spoils_no_other() {
    for broken in ["{\"usage\":{\"prompt_tokens\":", "{\"text\":\"", "[[[[", "\\\"", "{\"text\":\"\\"] {
        let good = r#"{"usage":{"prompt_tokens":8,"completion_tokens":3}}"#;
        assert_eq!(counts(read(format!("data: {broken}\n\ndata: {good}\n\n"))), (Some(8), Some(3)), "{broken}");
        let mut tap = UsageTap::new();
        tap.header("content-type", b"application/x-ndjson; charset=utf-8");
        tap.feed(format!("{{}}\n{broken}\n{good}\n").as_bytes());
        assert_eq!(counts(tap.finish()), (Some(8), Some(3)), "{broken}");
    }
}

/// What a tap has taken, on the heap and off it.
fn taken(tap: &UsageTap) -> usize {
    size_of_val(tap) + tap.on_heap()
}

#[test]
fn no_stream_takes_more_than_two_kilobytes() {
    let starts: [&[u8]; 9] = [
        b"data: ",
        b"data: {\"text\":\"",
        b"data: {\"usage\":{\"prompt_tokens\":",
        b"event: ",
        b": ",
        b"{\"text\":\"",
        b"{\"usage\":{\"prompt_tokens\":1",
        b"[",
        b"data",
    ];
    for start in starts {
        for filling in
            [&b"x"[..], b"1", b"{\"a\":", b"[", b"\\", b"data: {\"text\":\"word\"}\n\n", b"\n", b"\r", b"\xff\x00"]
        {
            let mut tap = UsageTap::new();
            tap.feed(start);
            for _ in 0..100 {
                tap.feed(&filling.repeat(4096 / filling.len()));
                assert!(taken(&tap) < 2048, "{}", taken(&tap));
            }
            assert_eq!(tap.finish().usage.output_tokens, None);
        }
    }
}

#[test]
fn one_long_event_is_not_kept() {
    let mut tap = UsageTap::new();
    let long = format!("data: {{\"text\":\"{}\",\"choices\":[]}}\n\n", "x".repeat(1 << 20));
    tap.feed(long.as_bytes());
    assert!(taken(&tap) < 2048);
    tap.feed(b"data: {\"usage\":{\"prompt_tokens\":8}}\n\n");
    assert_eq!(tap.finish().usage.input_tokens, Some(8));
}

proptest! {
    #[test]
    fn no_bytes_panic_or_pile_up(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..20)) {
        let mut tap = UsageTap::new();
        for chunk in &chunks {
            tap.feed(chunk);
            prop_assert!(taken(&tap) < 2048);
        }
        let _ = tap.finish();
    }

    /// Fragments of what is looked for, in any order.
    #[test]
    fn no_order_of_fragments_panics(words in prop::collection::vec(prop::sample::select(&WORDS[..]), 0..60), size in 1_usize..20) {
        let body = words.concat();
        let mut tap = UsageTap::new();
        body.as_bytes().chunks(size).for_each(|chunk| tap.feed(chunk));
        let _ = tap.finish();
        let mut whole = UsageTap::new();
        whole.feed(body.as_bytes());
        prop_assert_eq!(whole.finish().usage, tap.finish().usage);
    }

    /// Random bytes after any part of a good stream.
    #[test]
    fn a_stream_that_turns_into_garbage_is_harmless(
        which in 0..SAMPLES.len(),
        cut in any::<prop::sample::Index>(),
        garbage in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let sample = &SAMPLES[which];
        let mut tap = sample.tap();
        tap.feed(&sample.body[..cut.index(sample.body.len())]);
        tap.feed(&garbage);
        let _ = tap.finish();
        prop_assert!(taken(&tap) < 2048);
    }
}

const WORDS: [&str; 24] = [
    "data: ",
    "data:",
    "event: ",
    "error",
    "\n",
    "\r\n",
    "\r",
    "\n\n",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    ",",
    ":",
    "\"usage\":{",
    "\"prompt_tokens\":",
    "12",
    "null",
    "[DONE]",
    "\"choices\":[{",
    "\"type\":\"message_stop\"",
    "x",
];
