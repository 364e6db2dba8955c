use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::{explicit_pause, parse_pause, pause};
use crate::engine::outcome::Pause;

/// Tue, 01 Jan 2030 00:00:00 GMT
fn new_year() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_893_456_000)
}

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let line = |(name, value): &(&str, &str)| -> (HeaderName, HeaderValue) {
        (name.parse().unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap())
    };
    let mut headers = HeaderMap::new();
    for (name, value) in lines.iter().map(line) {
        headers.append(name, value);
    }
    headers
}

fn pause_of(lines: &[(&str, &str)]) -> Option<Pause> {
    pause(&headers(lines), new_year())
}

fn retry_after(value: &str) -> Option<Pause> {
    pause_of(&[("retry-after", value)])
}

fn seconds(seconds: f64) -> Option<Pause> {
    Some(Pause::For(Duration::from_secs_f64(seconds)))
}

fn at_least_a_year(pause: Option<Pause>) -> bool {
    matches!(pause, Some(Pause::For(wait)) if wait >= Duration::from_secs(365 * 86_400))
}

#[test]
fn seconds_and_fractions_are_read_as_they_are() {
    // case 68, C1 to C4
    assert_eq!(retry_after("20"), seconds(20.0));
    assert_eq!(retry_after(" 20 "), seconds(20.0));
    assert_eq!(retry_after("61"), seconds(61.0));
    assert_eq!(retry_after("1.5"), seconds(1.5));
    assert_eq!(retry_after("0.01"), seconds(0.01));
}

#[test]
fn dates_are_read_in_all_three_forms() {
    // C11
    assert_eq!(retry_after("Tue, 01 Jan 2030 00:00:20 GMT"), seconds(20.0));
    assert_eq!(retry_after("Tuesday, 01-Jan-30 00:00:20 GMT"), seconds(20.0));
    assert_eq!(retry_after("Tue Jan  1 00:00:20 2030"), seconds(20.0));
}

#[test]
fn zero_and_the_past_mean_our_own_minimum() {
    // case 70, C5, C14
    for value in ["0", "0.0", "Mon, 31 Dec 2029 23:59:50 GMT", "Tue, 01 Jan 2030 00:00:00 GMT"] {
        assert_eq!(retry_after(value), Some(Pause::Minimum), "{value}");
    }
}

#[test]
fn values_without_meaning_count_as_absent() {
    // C6, C9, C15, C19
    let values = [
        "-10",
        "-0",
        "-1.5",
        "NaN",
        "nan",
        "inf",
        "+inf",
        "Infinity",
        "infinity",
        "Zun, 01 Jan 2030 00:00:20 GMT",
        "Mon, 01 Jan 2030 00:00:20 GMT",
        "Tue, 32 Jan 2030 00:00:20 GMT",
        "",
        "   ",
        "soon",
        "1.2.3",
        "0x10",
        "1,5",
        ".",
        "20 seconds",
        "2\u{e9}",
    ];
    for value in values {
        assert_eq!(retry_after(value), None, "{value}");
    }
    assert_eq!(pause_of(&[]), None);
}

#[test]
fn an_absurdly_long_delay_stays_long() {
    // case 71, C10, C17
    let values = [
        "18446744073709551615",
        "18446744073709551616",
        "1e400",
        "99999999999999999999999999999999999",
        "Fri, 31 Dec 9999 23:59:59 GMT",
    ];
    for value in values {
        assert!(at_least_a_year(retry_after(value)), "{value}");
        assert!(at_least_a_year(pause_of(&[("x-ratelimit-reset-tokens", value)])) || value.contains("GMT"), "{value}");
    }
    assert!(at_least_a_year(pause_of(&[("retry-after-ms", "1e400")])));
    assert!(at_least_a_year(pause_of(&[("x-ratelimit-reset-tokens", "99999999999999999999h1m")])));
    assert!(at_least_a_year(pause_of(&[("anthropic-ratelimit-tokens-reset", "9999-12-31T23:59:59Z")])));
}

#[test]
fn milliseconds_win_and_fall_back_when_broken() {
    // case 69, C23, C24
    assert_eq!(pause_of(&[("retry-after-ms", "1500"), ("retry-after", "10")]), seconds(1.5));
    assert_eq!(pause_of(&[("retry-after-ms", "soon"), ("retry-after", "10")]), seconds(10.0));
    assert_eq!(pause_of(&[("retry-after-ms", "-5")]), None);
    assert_eq!(pause_of(&[("retry-after-ms", "0")]), Some(Pause::Minimum));
    assert_eq!(pause_of(&[("retry-after-ms", "0.5")]), seconds(0.0005));
}

#[test]
fn of_several_lines_the_longest_usable_one_counts() {
    assert_eq!(pause_of(&[("retry-after", "2"), ("retry-after", "30"), ("retry-after", "-1")]), seconds(30.0));
    assert_eq!(pause_of(&[("retry-after", "0"), ("retry-after", "Tue, 01 Jan 2030 00:00:09 GMT")]), seconds(9.0));
    assert_eq!(pause_of(&[("retry-after-ms", "10"), ("retry-after-ms", "2000")]), seconds(2.0));
}

#[test]
fn reset_headers_are_read_in_their_dialects() {
    // case 74, C29
    for (value, expected) in [("6m0s", 360.0), ("120ms", 0.12), ("1h2m3.5s", 3723.5), ("17", 17.0), ("1d", 86_400.0)] {
        assert_eq!(pause_of(&[("x-ratelimit-reset-tokens", value)]), seconds(expected), "{value}");
        let named = [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", value)];
        assert_eq!(pause_of(&named), seconds(expected), "{value}");
    }
    for value in ["2030-01-01T00:00:10Z", "2030-01-01T02:00:10+02:00", "2029-12-31T18:30:10.000-05:30"] {
        assert_eq!(pause_of(&[("anthropic-ratelimit-tokens-reset", value)]), seconds(10.0), "{value}");
    }
    assert_eq!(pause_of(&[("anthropic-ratelimit-tokens-reset", "2029-12-31T23:59:00Z")]), Some(Pause::Minimum));
}

#[test]
fn the_last_exhausted_budget_decides() {
    // case 74
    let both = [
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "6m0s"),
    ];
    assert_eq!(pause_of(&both), seconds(360.0));
    let anthropic = [
        ("anthropic-ratelimit-requests-remaining", "0"),
        ("anthropic-ratelimit-requests-reset", "2030-01-01T00:00:05Z"),
        ("anthropic-ratelimit-input-tokens-remaining", "0"),
        ("anthropic-ratelimit-input-tokens-reset", "2029-12-31T23:59:00Z"),
    ];
    assert_eq!(pause_of(&anthropic), seconds(5.0));
}

#[test]
fn a_budget_with_something_left_does_not_pause() {
    // case 74
    let left = [
        ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "120ms"),
        ("anthropic-ratelimit-tokens-remaining", "1000"),
        ("anthropic-ratelimit-tokens-reset", "2030-01-01T00:10:00Z"),
    ];
    assert_eq!(pause_of(&left), seconds(0.12));
    assert_eq!(pause_of(&left[..2]), None);
}

#[test]
fn placeholders_and_garbage_in_reset_headers_count_as_absent() {
    // case 74, C30
    let azure =
        [("x-ratelimit-limit-tokens", "-1"), ("x-ratelimit-remaining-tokens", "-1"), ("x-ratelimit-reset-tokens", "0")];
    assert_eq!(pause_of(&azure), None);
    for value in
        ["", "soon", "-1", "-6m0s", "6m0", "6x", "s", "NaN", "1m-2s", "2030-13-01T00:00:00Z", "+00:00", "00:00"]
    {
        assert_eq!(pause_of(&[("x-ratelimit-reset-tokens", value)]), None, "{value}");
    }
    assert_eq!(pause_of(&[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-limit-tokens", "9")]), None);
    assert_eq!(pause_of(&[("x-reset-tokens", "9"), ("x-ratelimit-resetting", "9")]), None);
}

#[test]
fn header_names_of_gateways_are_understood() {
    for (remaining, reset) in [
        ("x-ratelimit-api_key-remaining-requests", "x-ratelimit-api_key-reset-requests"),
        ("llm_provider-x-ratelimit-remaining-tokens", "llm_provider-x-ratelimit-reset-tokens"),
        ("x-ratelimit-remaining-tokens-minute", "x-ratelimit-reset-tokens-minute"),
        ("ratelimit-remaining", "ratelimit-reset"),
    ] {
        assert_eq!(pause_of(&[(remaining, "0"), (reset, "7.66s")]), seconds(7.66), "{reset}");
        assert_eq!(pause_of(&[(remaining, "3"), (reset, "7.66s")]), None, "{reset}");
    }
}

#[test]
fn a_bare_moment_in_a_reset_header_is_not_taken_for_a_duration() {
    assert_eq!(pause_of(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1893456030")]), seconds(30.0));
    assert_eq!(pause_of(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1893456000250")]), seconds(0.25));
}

#[test]
fn retry_after_goes_before_reset_headers() {
    let both = [("retry-after", "2"), ("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "6m0s")];
    assert_eq!(pause_of(&both), seconds(2.0));
    assert_eq!(explicit_pause(&headers(&both), new_year()), seconds(2.0));
    assert_eq!(explicit_pause(&headers(&both[1..]), new_year()), None);
}

#[test]
fn a_delay_in_a_text_is_read_with_its_unit() {
    // D5
    assert_eq!(parse_pause("34.07s"), seconds(34.07));
    assert_eq!(parse_pause("0s"), Some(Pause::Minimum));
    assert_eq!(parse_pause("-3s"), None);
}

proptest! {
    #[test]
    fn no_value_panics(value in "[ -~]{0,40}", days in 0_u64..4_000_000) {
        let now = UNIX_EPOCH + Duration::from_secs(days * 86_400);
        for name in ["retry-after", "retry-after-ms", "x-ratelimit-reset-tokens", "anthropic-ratelimit-tokens-reset"] {
            let _ = pause(&headers(&[(name, &value)]), now);
        }
        let _ = parse_pause(&value);
    }

    #[test]
    fn no_value_made_of_the_right_pieces_panics(value in "([0-9]{1,22}|[.:TZhmsd+-]|e9|ms|-05:30|2030-01-01T){0,9}") {
        let _ = pause(&headers(&[("x-ratelimit-reset-tokens", &value)]), new_year());
        let _ = retry_after(&value);
    }

    #[test]
    fn a_wait_of_whole_milliseconds_is_exact(millis in 1_u64..1_000_000_000) {
        let expected = Some(Pause::For(Duration::from_millis(millis)));
        prop_assert_eq!(pause_of(&[("retry-after-ms", &millis.to_string())]), expected);
        prop_assert_eq!(pause_of(&[("x-ratelimit-reset-tokens", &format!("{millis}ms"))]), expected);
    }
}
