use std::error::Error;
use std::fmt;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::Response;
use http::response::Parts;
use proptest::prelude::*;

use super::error_json::ErrorJson;
use super::{BodyHints, Classify, ProviderClassify};
use crate::engine::outcome::{Outcome, OutcomeKind, Pause, Verdict};

const QUOTA: &[u8] = br#"{"error":{"message":"...","type":"insufficient_quota","code":"insufficient_quota"}}"#;
const RETRY_INFO: &[u8] = br#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[
    {"@type":"type.googleapis.com/google.rpc.Help","links":[{"url":"https://x.example"}]},
    {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.07s"}]}}"#;

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_893_456_000)
}

fn head(status: u16, headers: &[(&str, &str)]) -> Parts {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(()).unwrap().into_parts().0
}

fn verdict(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Verdict {
    ProviderClassify::new().response(&head(status, headers), body, now())
}

fn outcome(status: u16, body: &[u8]) -> Outcome {
    verdict(status, &[], body).outcome()
}

fn seconds(seconds: f64) -> Option<Pause> {
    Some(Pause::For(Duration::from_secs_f64(seconds)))
}

#[test]
fn an_answer_is_classified_by_its_status() {
    // cases 78 and 80, D1, D3, D4, D13, D15, D16
    for (statuses, expected) in [
        (&[101, 200, 204, 206, 301, 304][..], Outcome::Success),
        (&[429, 529], Outcome::Overload),
        (&[402], Outcome::Quota),
        (&[400, 401, 403, 404, 408, 409, 413, 422, 499], Outcome::ClientError),
        (&[502, 503, 504], Outcome::Unavailable),
        (&[500, 501, 505, 599, 600, 999], Outcome::ServerError),
    ] {
        for status in statuses {
            assert_eq!(outcome(*status, b""), expected, "{status}");
        }
    }
    assert_eq!(outcome(429, br#"{"error":{"type":"tokens","code":"rate_limit_exceeded"}}"#), Outcome::Overload);
    assert_eq!(outcome(429, br#"{"type":"error","error":{"type":"rate_limit_error"}}"#), Outcome::Overload);
    assert_eq!(outcome(529, br#"{"type":"error","error":{"type":"overloaded_error"}}"#), Outcome::Overload);
    assert_eq!(outcome(503, br#"{"error":"server busy, please try again."}"#), Outcome::Unavailable);
}

#[test]
fn an_empty_account_is_not_load() {
    // case 75, D2: neither outcome nor pause of an overload
    let answer = verdict(429, &[("retry-after", "20"), ("x-ratelimit-reset-tokens", "6m0s")], QUOTA);
    assert_eq!(answer, Verdict::new(Outcome::Quota));
    assert_eq!(answer.outcome().kind(), OutcomeKind::Neutral);
}

#[test]
fn a_quota_code_is_found_where_providers_put_it() {
    for body in [
        r#"{"error":{"type":"insufficient_quota","code":null}}"#,
        r#"{"error":{"param":{"a":[1,{}]},"code":"billing_hard_limit_reached"}}"#,
        r#"{"error":{"type":"exceeded_current_quota_error"}}"#,
        r#"{"code":"insufficient_quota","message":"x"}"#,
        r#"{"error":"insufficient_quota"}"#,
        r#"[{"error":{"code":"insufficient_quota"}}]"#,
        "\u{feff}{\"error\":{\"code\":\"insufficient_quota\"}}",
        r#" { "error" : { "c\u006fde" : "insufficient\u005fquota" } } "#,
        r#"{"error":{"code":"other","code":"insufficient_quota"}}"#,
    ] {
        assert_eq!(outcome(429, body.as_bytes()), Outcome::Quota, "{body}");
        assert_eq!(outcome(403, body.as_bytes()), Outcome::Quota, "{body}");
    }
}

#[test]
fn a_quota_code_that_is_only_quoted_does_not_count() {
    for body in [
        r#"{"error":{"message":"insufficient_quota","type":"rate_limit_error"}}"#,
        r#"{"error":{"message":"{\"code\":\"insufficient_quota\"}","code":"rate_limit_exceeded"}}"#,
        r#"{"request":{"error":{"code":"insufficient_quota"}}}"#,
        r#"{"error":{"metadata":{"code":"insufficient_quota"}}}"#,
        r#"{"error":{"code":"insufficient_quota_soon"}}"#,
        r#"{"error":{"code":["insufficient_quota"]}}"#,
        "insufficient_quota",
        "",
    ] {
        assert_eq!(outcome(429, body.as_bytes()), Outcome::Overload, "{body}");
    }
}

#[test]
fn a_code_before_the_cut_is_found() {
    // case 77
    let mut body = br#"{"error":{"code":"insufficient_quota","message":""#.to_vec();
    body.resize(8 * 1024, b'x');
    assert_eq!(outcome(429, &body), Outcome::Quota);

    let code_ends = QUOTA.len() - r#","code":"insufficient_quota"}}"#.len();
    for cut in 0..QUOTA.len() {
        let expected = if cut < code_ends { Outcome::Overload } else { Outcome::Quota };
        assert_eq!(outcome(429, &QUOTA[..cut]), expected, "cut at {cut}");
    }
}

#[test]
fn a_hostile_body_leaves_the_verdict_to_the_status() {
    // case 77, D11
    let deep = |opening: &str| opening.repeat(8 * 1024).into_bytes();
    for body in [
        b"<!doctype html><title>429</title>".to_vec(),
        b"\xff\xfe{\"error\"".to_vec(),
        b"{\"error\":{\"message\":\"\xff\xc0\",\"code\":\"x\xff\"}}".to_vec(),
        b"{\"\xff\":1}".to_vec(),
        b"{\"error\":{\"code\":1e999}}".to_vec(),
        b"{\"error\":{\"code\":-18446744073709551616}}".to_vec(),
        vec![0; 8 * 1024],
        deep("["),
        deep("{\"error\":"),
        deep("{\"a\":["),
        deep("{\"error\":{\"details\":["),
    ] {
        assert_eq!(outcome(429, &body), Outcome::Overload);
        assert_eq!(outcome(404, &body), Outcome::ClientError);
    }
}

#[test]
fn a_message_that_is_not_utf8_does_not_hide_the_code_behind_it() {
    assert_eq!(outcome(429, b"{\"error\":{\"message\":\"\xff\xc0\",\"code\":\"insufficient_quota\"}}"), Outcome::Quota);
}

#[test]
fn a_pause_comes_with_overload_and_with_an_unavailable_upstream() {
    // C26, C27, D8
    let retry_after = [("retry-after", "7")];
    assert_eq!(verdict(429, &retry_after, br#"{"error":{"code":"429"}}"#).pause(), seconds(7.0));
    assert_eq!(verdict(503, &retry_after, b"").pause(), seconds(7.0));
    assert_eq!(verdict(503, &retry_after, b"").outcome(), Outcome::Unavailable);
    assert_eq!(verdict(529, &[("retry-after", "3")], b"").pause(), seconds(3.0));
    for status in [200, 206, 301, 400, 402, 404, 500] {
        assert_eq!(verdict(status, &retry_after, b"").pause(), None, "{status}");
    }
    assert_eq!(verdict(429, &[], b"").pause(), None);
}

#[test]
fn reset_headers_pause_only_where_the_answer_is_about_a_budget() {
    // case 74
    let exhausted = [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "6m0s")];
    assert_eq!(verdict(429, &exhausted, b"").pause(), seconds(360.0));
    for status in [200, 500, 503] {
        assert_eq!(verdict(status, &exhausted, b"").pause(), None, "{status}");
    }
}

#[test]
fn a_delay_in_the_body_counts_only_when_asked_for() {
    // D5
    assert_eq!(verdict(429, &[], RETRY_INFO), Verdict::new(Outcome::Overload));
    let hinted = ProviderClassify::new().body_hints(BodyHints::Honour);
    let pause = |headers: &[(&str, &str)]| hinted.response(&head(429, headers), RETRY_INFO, now()).pause();
    assert_eq!(pause(&[]), seconds(34.07));
    assert_eq!(pause(&[("retry-after", "0")]), seconds(34.07));
    assert_eq!(pause(&[("retry-after", "20")]), seconds(34.07));
    assert_eq!(pause(&[("retry-after", "60")]), seconds(60.0));
    assert_eq!(hinted.response(&head(400, &[]), RETRY_INFO, now()).pause(), None);
}

#[test]
fn statuses_and_codes_can_be_added() {
    // D13
    let classify = ProviderClassify::new().overload_on(http::StatusCode::SERVICE_UNAVAILABLE).quota_code("1113");
    let busy = classify.response(&head(503, &[("retry-after", "7")]), b"", now());
    assert_eq!((busy.outcome(), busy.pause()), (Outcome::Overload, seconds(7.0)));
    for body in [r#"{"error":{"code":"1113"}}"#, r#"{"code":1113}"#] {
        assert_eq!(classify.response(&head(429, &[]), body.as_bytes(), now()).outcome(), Outcome::Quota, "{body}");
    }
}

#[test]
fn only_bodies_that_can_change_the_verdict_are_looked_at() {
    let plain = ProviderClassify::new();
    let hinted = ProviderClassify::new().body_hints(BodyHints::Honour);
    for (status, by_plain, by_hinted) in [
        (101, false, false),
        (200, false, false),
        (302, false, false),
        (429, true, true),
        (400, true, true),
        (503, false, true),
    ] {
        assert_eq!(plain.wants_body(&head(status, &[])), by_plain, "{status}");
        assert_eq!(hinted.wants_body(&head(status, &[])), by_hinted, "{status}");
    }
}

#[derive(Debug)]
struct Wrapper(Box<dyn Error>);

impl fmt::Display for Wrapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("wrapped")
    }
}

impl Error for Wrapper {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

#[test]
fn errors_without_an_answer_are_the_way_to_the_upstream() {
    // case 42
    let reset = Wrapper(Box::new(io::Error::from(io::ErrorKind::ConnectionReset)));
    assert_eq!(ProviderClassify::new().error(&reset), Verdict::new(Outcome::Transport));
}

proptest! {
    #[test]
    fn no_body_panics(body in prop::collection::vec(any::<u8>(), 0..200), cut in 0_usize..300) {
        let _ = ErrorJson::read(&body);
        let json = [&RETRY_INFO[..cut.min(RETRY_INFO.len())], &body[..]].concat();
        let _ = ErrorJson::read(&json);
    }
}
