//! Budgets per minute.

use super::*;
use crate::engine::quota::{FollowHeaders, WhenShort};

#[test]
fn defaults_of_a_quota_are_the_documented_ones_and_limit_nothing() {
    let documented = "burst = '60s'\nmax_output = 4096\nwhen_short = 'queue'\nfollow_headers = 'off'";
    assert_eq!(toml::from_str::<Quota>(documented).unwrap(), Quota::default());
    assert_eq!(toml::from_str::<Quota>("").unwrap(), Quota::default());
    assert_eq!(Quota::default().per_minute(), [None; 4]);
    assert_eq!(LimitConfig::default().quota, None);
}

#[test]
fn text_of_every_setting_of_a_quota_reads_back_the_same() {
    let quota = Quota {
        requests_per_minute: Some(600),
        tokens_per_minute: Some(2_000_000),
        input_tokens_per_minute: Some(1_500_000),
        output_tokens_per_minute: Some(500_000),
        burst: 10 * SECOND,
        max_output: 1_000,
        when_short: WhenShort::Refuse,
        follow_headers: FollowHeaders::Limits,
    };
    let small = Quota { requests_per_minute: Some(1), ..Quota::default() };
    let config = LimitConfig {
        quota: Some(quota.clone()),
        overrides: vec![LaneOverride::new("*|m").quota(small.clone()), LaneOverride::new("*")],
        pools: vec![PoolLimit::new("e", 0).quota(quota), PoolLimit::new("f", 3).quota(small)],
        ..LimitConfig::default()
    };
    let text = toml::to_string(&config).unwrap();
    assert_eq!(config, toml(&text), "{text}");
    assert_eq!(Policy::compile(toml(&text)).unwrap().config(), &config);
    let text = serde_json::to_string(&config).unwrap();
    assert_eq!(config, serde_json::from_str(&text).unwrap());
    let null = r#"{"quota": null, "overrides": [{"lane": "*", "quota": null}]}"#;
    let config: LimitConfig = serde_json::from_str(null).unwrap();
    assert_eq!((config.quota, &config.overrides[0]), (None, &LaneOverride::new("*")));
}

#[test]
fn unknown_key_or_word_of_a_quota_is_named_together_with_the_known_ones() {
    for (text, told) in [
        ("quota = { tokens_per_minut = 1 }", &["unknown field `tokens_per_minut`", "`tokens_per_minute`"][..]),
        ("quota = { when_short = 'drop' }", &["unknown variant `drop`", "`queue`", "`refuse`"]),
        ("quota = { follow_headers = 'yes' }", &["unknown variant `yes`", "`off`", "`on`", "`limits`"]),
        ("quota = { burst = 60 }", &["expected a duration with units"]),
        ("quota = { tokens_per_minute = -1 }", &["invalid value", "-1"]),
        ("quota = { max_output = 1e3 }", &["expected u32"]),
    ] {
        let error = parse_error(text);
        assert!(told.iter().all(|told| error.contains(told)), "{text}: {error}");
    }
}

#[test]
fn impossible_quota_is_refused_with_its_place_wherever_it_stands() {
    let cases = [
        ("", "quota", "{}", "at least one dimension, such as `tokens_per_minute`"),
        ("max_output = 5", "quota", "{}", "at least one dimension"),
        ("burst = '0s', tokens_per_minute = 9000", "quota.burst", "0s", "more than 0s"),
        ("burst = '31d', tokens_per_minute = 9000", "quota.burst", "1month 13h 26m 24s", "at most 30days"),
        ("max_output = 0, tokens_per_minute = 9000", "quota.max_output", "0", "1 to 1000000"),
        ("max_output = 1000001, tokens_per_minute = 9000", "quota.max_output", "1000001", "1 to 1000000"),
        ("requests_per_minute = 0", "quota.requests_per_minute", "0", "for no such bound leave it out"),
        ("tokens_per_minute = 0", "quota.tokens_per_minute", "0", "1 to 1000000000000"),
        ("input_tokens_per_minute = 0", "quota.input_tokens_per_minute", "0", "1 to 1000000000000"),
        ("output_tokens_per_minute = 0", "quota.output_tokens_per_minute", "0", "1 to 1000000000000"),
        ("tokens_per_minute = 1000000000001", "quota.tokens_per_minute", "1000000000001", "1 to 1000000000000"),
        ("tokens_per_minute = 4095", "quota.tokens_per_minute", "4095", "one call of `max_output` (4096)"),
        ("output_tokens_per_minute = 99, max_output = 100", "quota.output_tokens_per_minute", "99", "(100)"),
        ("tokens_per_minute = 9000, burst = '1s'", "quota.tokens_per_minute", "9000", "`burst`"),
        ("requests_per_minute = 60, burst = '900ms'", "quota.requests_per_minute", "60", "one call"),
    ];
    for (quota, key, value, allowed) in cases {
        let quota = format!("quota = {{ {quota} }}");
        assert_refused(&quota, key, value, allowed);
        let text = format!("[[overrides]]\nlane = '*'\n[[overrides]]\nlane = '*'\n{quota}");
        assert_refused(&text, &format!("overrides[1].{key}"), value, allowed);
        let text = format!("[[pools]]\nendpoint = '*'\n{quota}");
        assert_refused(&text, &format!("pools[0].{key}"), value, allowed);
    }
}

#[test]
fn bounds_of_a_quota_themselves_are_accepted() {
    for quota in [
        "requests_per_minute = 1",
        "requests_per_minute = 60, burst = '1s'",
        "tokens_per_minute = 4096",
        "tokens_per_minute = 1000000000000, burst = '30days', max_output = 1000000",
        "input_tokens_per_minute = 1, max_output = 1000000",
        "output_tokens_per_minute = 100, max_output = 100",
    ] {
        assert!(compiled(&format!("quota = {{ {quota} }}")).is_enabled(), "{quota}");
    }
}

#[test]
fn a_quota_anywhere_enables_and_needs_no_number_of_calls() {
    let quota = "quota = { tokens_per_minute = 9000 }";
    assert!(compiled(quota).is_enabled());
    assert!(compiled(&format!("[[overrides]]\nlane = '*'\n{quota}")).is_enabled());
    assert!(compiled(&format!("[[pools]]\nendpoint = '*'\n{quota}")).is_enabled());
}

#[test]
fn the_last_override_and_pool_that_match_decide_what_is_charged() {
    let policy = compiled(
        "quota = { tokens_per_minute = 9000 }\n
         [[overrides]]\nlane = '*|acme/*'\nquota = { tokens_per_minute = 50000, max_output = 300 }\n
         [[overrides]]\nlane = '*|acme/smart'\nquota = { requests_per_minute = 5, when_short = 'refuse' }\n
         [[overrides]]\nlane = '*|acme/smart'\nmax_inflight = 5\n
         [[pools]]\nendpoint = 'f'\nquota = { tokens_per_minute = 90000, follow_headers = 'on', when_short = 'refuse' }",
    );
    let tokens = |lane: &LaneKey| policy.lane_quota(lane).and_then(|quota| quota.tokens_per_minute);
    let short = |lane: &LaneKey| policy.lane(lane).admission.when_short;
    let [other, fast, smart] = ["m", "acme/fast", "acme/smart"].map(|model| LaneKey::new("e", model));
    assert_eq!([&other, &fast, &smart].map(tokens), [Some(9_000), Some(50_000), None]);
    assert_eq!([&other, &fast, &smart].map(short), [WhenShort::Queue, WhenShort::Queue, WhenShort::Refuse]);
    let unsaid = [&other, &fast, &smart].map(|lane| policy.charging(lane).unsaid_output);
    assert_eq!(unsaid, [4_096, 300, 4_096]);
    assert_eq!(policy.charging(&other).follow_headers, FollowHeaders::Off);
    assert_eq!(policy.charging(&LaneKey::new("f", "m")).follow_headers, FollowHeaders::On);
    assert_eq!(short(&LaneKey::new("f", "m")), WhenShort::Queue, "the lane's own word goes before the pool's");
}

#[test]
fn a_lane_without_a_quota_of_its_own_goes_by_that_of_its_pool() {
    let policy = compiled(
        "[[pools]]\nendpoint = 'e'\nquota = { requests_per_minute = 9, max_output = 50, when_short = 'refuse' }",
    );
    let lane = LaneKey::new("e", "m");
    assert_eq!(policy.lane(&lane).admission.when_short, WhenShort::Refuse);
    assert_eq!(policy.charging(&lane).unsaid_output, 50);
    assert_eq!(policy.charging(&LaneKey::new("f", "m")), Charging::default());
}

/// A pool of `https://gw/*` that holds 3,000 tokens of answers, and the rest of a configuration.
fn beside_a_small_pool(rest: &str) -> String {
    format!(
        "{rest}\n[[pools]]\nendpoint = 'https://gw/*'\nquota = {{ output_tokens_per_minute = 3000, max_output = 1 }}"
    )
}

const LARGE: &str = "quota = { tokens_per_minute = 90000 }";

#[test]
fn what_a_lane_assumes_of_an_answer_is_refused_where_its_pool_can_never_hold_it() {
    let allowed = "at most 3000, all that `pools[0].quota.output_tokens_per_minute` and its `burst` can hold";
    assert_refused(&beside_a_small_pool(LARGE), "quota.max_output", "4096", allowed);
    let lanes = [
        "https://gw/v1|acme/smart",
        "https://gw/v1|*",
        "https://gw/v1/*",
        "https://gw/*",
        "https://gw/a*b",
        "*",
        "https://*",
    ];
    for lane in lanes {
        let text = beside_a_small_pool(&format!("[[overrides]]\nlane = '{lane}'\n{LARGE}"));
        assert_refused(&text, "overrides[0].quota.max_output", "4096", allowed);
    }
    let text = beside_a_small_pool("quota = { tokens_per_minute = 90000, max_output = 3001, burst = '30s' }");
    assert_refused(&text, "quota.max_output", "3001", allowed);
}

#[test]
fn what_a_lane_assumes_is_let_be_where_the_pool_holds_it_or_need_not_be_its_own() {
    let small = "quota = { tokens_per_minute = 90000, max_output = 3000 }";
    for rest in [
        small.to_owned(),
        // These patterns and the pool's may have no lane in common.
        format!("[[overrides]]\nlane = '*|acme/smart'\n{LARGE}"),
        format!("[[overrides]]\nlane = '*://gw/v1|*'\n{LARGE}"),
        format!("[[overrides]]\nlane = 'https://other/*'\n{LARGE}"),
        // Not charged for an answer, or of other pools.
        format!("[[overrides]]\nlane = 'https://gw/v1|embed|embedding'\n{LARGE}"),
        // A later entry decides.
        format!("{LARGE}\n[[overrides]]\nlane = 'https://gw/*'\n{small}"),
        format!("[[overrides]]\nlane = 'https://gw/v1|m'\n{LARGE}\n[[overrides]]\nlane = '*|m'\n{small}"),
    ] {
        compiled(&beside_a_small_pool(&rest));
    }
    let replaced = format!("{}\n[[pools]]\nendpoint = '*'\nmax_inflight = 9", beside_a_small_pool(LARGE));
    compiled(&replaced);
    let of_another_kind = beside_a_small_pool(LARGE).replace("[[pools]]", "[[pools]]\nkind = 'embedding'");
    compiled(&of_another_kind);
}
