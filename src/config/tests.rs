mod quota;

use std::time::Duration;

use super::*;
use crate::engine::policy::SlotPolicy;
use crate::limiter::key::{Kind, LaneKey};

const SECOND: Duration = Duration::from_secs(1);
const MONTH: Duration = Duration::from_secs(30 * 24 * 60 * 60);

fn toml(text: &str) -> LimitConfig {
    toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn compiled(text: &str) -> Policy {
    Policy::compile(toml(text)).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(text: &str) -> ConfigError {
    Policy::compile(toml(text)).expect_err(text)
}

fn parse_error(text: &str) -> String {
    toml::from_str::<LimitConfig>(text).expect_err(text).to_string()
}

#[test]
fn defaults_are_the_documented_ones_and_off() {
    let config = LimitConfig::default();
    let documented = r#"
        max_inflight = 0
        interactive_reserve = 1
        queue_timeout = "300s"
        max_queue = 1000
        max_queue_total = 10000
        aging_step = "60s"
        max_lanes = 1024
        min_pause = "1s"
        max_pause = "600s"
        first_byte_timeout = "off"
        idle_timeout = "off"
        breaker = "off"
        retry_budget = "off"
        overrides = []
        pools = []
    "#;
    assert_eq!(config, toml(documented));
    assert_eq!(config, toml(""));
    assert_eq!(config, serde_json::from_str("{}").unwrap());
    assert_eq!(config.max_queue_per_class, None);
    assert_eq!(config.max_queue_per_tenant, None);

    let policy = Policy::compile(config).unwrap();
    assert!(!policy.is_enabled());
    assert_eq!((policy.max_lanes(), policy.max_queue_total()), (1_024, 10_000));
}

#[test]
fn text_of_every_setting_reads_back_the_same() {
    let config = LimitConfig {
        max_inflight: 6,
        queue_timeout: Duration::from_millis(90_250),
        max_queue_per_class: Some(3),
        max_queue_per_tenant: Some(2),
        aging_step: Aging::Off,
        first_byte_timeout: Some(SECOND),
        idle_timeout: Some(2 * SECOND),
        breaker: Some(BreakerConfig { slow_after: Some(SECOND), ..BreakerConfig::default() }),
        retry_budget: Some(RetryBudget::Grpc(GrpcThrottling::default())),
        overrides: vec![
            LaneOverride::new("*|m")
                .max_inflight(9)
                .interactive_reserve(2)
                .queue_timeout(SECOND)
                .max_queue(7)
                .max_queue_per_class(6)
                .max_queue_per_tenant(5)
                .aging_step(Aging::Every(SECOND))
                .first_byte_timeout(None)
                .idle_timeout(SECOND)
                .breaker(None)
                .retry_budget(RetryBudget::Sre(SreThrottling { k: 1.5, window: SECOND })),
            LaneOverride::new("*").breaker(BreakerConfig::default()).retry_budget(None),
            LaneOverride::new("*"),
        ],
        pools: vec![PoolLimit::new("*", 12), PoolLimit::new("e", 3).kind(Kind::Audio).interactive_reserve(1)],
        ..LimitConfig::default()
    };

    let text = toml::to_string(&config).unwrap();
    assert!(text.contains("queue_timeout = \"1m 30s 250ms\""), "{text}");
    assert_eq!(config, toml(&text));
    let text = serde_json::to_string(&config).unwrap();
    assert_eq!(config, serde_json::from_str(&text).unwrap());
}

#[test]
fn json_null_is_the_same_as_left_out() {
    let text = r#"{"max_queue_per_class": null, "idle_timeout": null,
        "breaker": null, "retry_budget": null,
        "overrides": [{"lane": "*", "max_inflight": null, "queue_timeout": null, "idle_timeout": null, "breaker": null}]}"#;
    let config: LimitConfig = serde_json::from_str(text).unwrap();
    assert_eq!(config.idle_timeout, None);
    assert_eq!(config.overrides, [LaneOverride::new("*")]);
}

#[test]
fn unknown_key_is_named_together_with_the_known_ones() {
    let error = parse_error("max_inflght = 6");
    for expected in ["unknown field `max_inflght`", "`max_inflight`", "`queue_timeout`", "`pools`"] {
        assert!(error.contains(expected), "{error}");
    }
    let error = parse_error("[[overrides]]\nlane = '*'\nmax_lanes = 2");
    assert!(error.contains("unknown field `max_lanes`") && error.contains("`idle_timeout`"), "{error}");
    let error = parse_error("[[pools]]\nendpoint = '*'\ncap = 2");
    assert!(error.contains("unknown field `cap`") && error.contains("`max_inflight`"), "{error}");
}

#[test]
fn override_or_pool_without_its_pattern_is_an_error() {
    assert!(parse_error("[[overrides]]\nmax_inflight = 2").contains("missing field `lane`"));
    assert!(parse_error("[[pools]]\nmax_inflight = 2").contains("missing field `endpoint`"));
}

#[test]
fn duration_without_a_unit_is_refused_with_what_is_allowed() {
    for value in ["300", "300.5", "'300'", "''", "'soon'", "'-1s'", "'off'", "true"] {
        let error = parse_error(&format!("queue_timeout = {value}"));
        assert!(error.contains("expected a duration with units, such as \"300s\", \"1m 30s\" or \"250ms\""), "{error}");
        assert!(error.contains("queue_timeout"), "{error}");
    }
    for key in ["aging_step", "idle_timeout"] {
        let error = parse_error(&format!("{key} = 60"));
        assert!(error.contains("integer `60`") && error.contains("\"250ms\", or \"off\""), "{error}");
    }
}

#[test]
fn unknown_kind_is_refused_with_the_known_ones() {
    let error = parse_error("[[pools]]\nendpoint = '*'\nmax_inflight = 2\nkind = 'video'");
    assert!(error.contains("unknown variant `video`") && error.contains("`embedding`"), "{error}");
}

#[test]
fn impossible_value_is_refused_with_key_value_and_what_is_allowed() {
    let count = "at most 1000000";
    let cases = [
        ("max_inflight = 1000001", "max_inflight", "1000001", count),
        ("interactive_reserve = 1000001", "interactive_reserve", "1000001", count),
        ("max_inflight = 6\ninteractive_reserve = 9", "interactive_reserve", "9", "at most `max_inflight` (6)"),
        ("queue_timeout = '0s'", "queue_timeout", "0s", "set `max_queue` to 0"),
        ("queue_timeout = '31d'", "queue_timeout", "1month 13h 26m 24s", "at most 30days"),
        ("max_queue = 1000001", "max_queue", "1000001", count),
        ("max_queue_per_class = 0", "max_queue_per_class", "0", "set `max_queue` to 0"),
        ("max_queue_per_class = 1000001", "max_queue_per_class", "1000001", "1 to 1000000"),
        ("max_queue_per_tenant = 0", "max_queue_per_tenant", "0", "set `max_queue` to 0"),
        ("max_queue_total = 1000001", "max_queue_total", "1000001", count),
        ("aging_step = '0s'", "aging_step", "0s", "in files \"off\""),
        ("max_lanes = 0", "max_lanes", "0", "1 to 1000000"),
        ("max_lanes = 1000001", "max_lanes", "1000001", "1 to 1000000"),
        ("min_pause = '0s'", "min_pause", "0s", "more than 0s"),
        ("max_pause = '0s'", "max_pause", "0s", "more than 0s"),
        ("min_pause = '20m'", "min_pause", "20m", "at most `max_pause` (10m)"),
        ("first_byte_timeout = '0s'", "first_byte_timeout", "0s", "in files \"off\""),
        ("idle_timeout = '0s'", "idle_timeout", "0s", "in files \"off\""),
    ];
    for (text, key, value, allowed) in cases {
        assert_refused(text, key, value, allowed);
    }
}

#[test]
fn shares_that_cannot_be_given_are_refused_with_the_path_of_the_key() {
    let cases = [
        ("shares = { interactive = 1.5 }", "shares.interactive", "1.5", "0 to 1"),
        ("shares = { default = -0.1 }", "shares.default", "-0.1", "0 to 1"),
        ("shares = { bulk = nan }", "shares.bulk", "NaN", "0 to 1"),
        (
            "shares = { interactive = 0.5, default = 0.4, bulk = 0.2 }",
            "shares",
            "0.5 + 0.4 + 0.2",
            "at most 1 together",
        ),
    ];
    for (text, key, value, allowed) in cases {
        assert_refused(text, key, value, allowed);
        let entry = format!("[[overrides]]\nlane = '*'\n{text}");
        assert_refused(&entry, &format!("overrides[0].{key}"), value, allowed);
    }
    assert!(parse_error("shares = { urgent = 0.5 }").contains("unknown field `urgent`, expected one of `interactive`"));
    assert!(parse_error("shares = 'even'").contains("unknown variant `even`, expected `off`"));
}

#[test]
fn a_lane_may_have_other_shares_or_none() {
    let policy = compiled(
        "shares = { interactive = 0.7, default = 0.2, bulk = 0.1 }\n
         [[overrides]]\nlane = '*|a'\nshares = { bulk = 0.5 }\n
         [[overrides]]\nlane = '*|b'\nshares = 'off'",
    );
    let slots = |model: &str| policy.lane(&LaneKey::new("e", model)).admission.shares.map(|it| it.slots(10));
    assert_eq!(["x", "a", "b"].map(slots), [Some([7, 2, 1]), Some([0, 0, 5]), None]);
}

#[test]
fn predictions_are_on_or_off_by_name_and_by_lane() {
    let policy = compiled("[[overrides]]\nlane = '*|a'\npredict_deadlines = 'off'");
    let of = |model: &str| policy.lane(&LaneKey::new("e", model)).admission.predict_deadlines;
    assert_eq!(["x", "a"].map(of), [PredictDeadlines::On, PredictDeadlines::Off]);
    let error = parse_error("predict_deadlines = true");
    assert!(error.contains("predict_deadlines"), "{error}");
    assert!(parse_error("predict_deadlines = 'maybe'").contains("expected `on` or `off`"));
}

#[test]
fn impossible_override_is_refused_with_its_place() {
    let cases = [
        ("lane = ''", "lane", "\"\"", "`*`"),
        ("lane = 'acme/smart'", "lane", "\"acme/smart\"", "`endpoint|model`"),
        ("lane = '*'\nmax_inflight = 1000001", "max_inflight", "1000001", "at most 1000000"),
        ("lane = '*'\ninteractive_reserve = 7", "interactive_reserve", "7", "at most `max_inflight` (6)"),
        ("lane = '*'\nmax_inflight = 2\ninteractive_reserve = 3", "interactive_reserve", "3", "(2)"),
        ("lane = '*'\nmax_inflight = 0\ninteractive_reserve = 1", "interactive_reserve", "1", "no `max_inflight`"),
        ("lane = '*'\nqueue_timeout = '0s'", "queue_timeout", "0s", "set `max_queue` to 0"),
        ("lane = '*'\nmax_queue = 1000001", "max_queue", "1000001", "at most 1000000"),
        ("lane = '*'\nmax_queue_per_class = 0", "max_queue_per_class", "0", "set `max_queue` to 0"),
        ("lane = '*'\nmax_queue_per_tenant = 0", "max_queue_per_tenant", "0", "set `max_queue` to 0"),
        ("lane = '*'\naging_step = '0s'", "aging_step", "0s", "in files \"off\""),
        ("lane = '*'\nfirst_byte_timeout = '0s'", "first_byte_timeout", "0s", "in files \"off\""),
        ("lane = '*'\nidle_timeout = '60d'", "idle_timeout", "1month 29days 13h 26m 24s", "at most 30days"),
    ];
    for (entry, key, value, allowed) in cases {
        let text = format!("max_inflight = 6\n[[overrides]]\nlane = '*'\n[[overrides]]\n{entry}");
        assert_refused(&text, &format!("overrides[1].{key}"), value, allowed);
    }
}

#[test]
fn impossible_pool_is_refused_with_its_place() {
    let cases = [
        ("endpoint = ''\nmax_inflight = 1", "endpoint", "\"\"", "`*`"),
        ("endpoint = '*'\nmax_inflight = 0", "max_inflight", "0", "leave the entry out"),
        ("endpoint = '*'\nmax_inflight = 1000001", "max_inflight", "1000001", "1 to 1000000"),
        ("endpoint = '*'\nmax_inflight = 2\ninteractive_reserve = 3", "interactive_reserve", "3", "(2)"),
    ];
    for (entry, key, value, allowed) in cases {
        assert_refused(&format!("[[pools]]\n{entry}"), &format!("pools[0].{key}"), value, allowed);
    }
}

fn assert_refused(text: &str, key: &str, value: &str, allowed: &str) {
    let error = refusal(text);
    assert_eq!((error.key(), error.value()), (key, value), "{text}");
    let shown = error.to_string();
    assert!(shown.starts_with(&format!("`{key}` is {value}, allowed: ")) && shown.contains(allowed), "{shown}");
    assert!(!shown.ends_with('.'), "{shown}");
}

#[test]
fn bounds_themselves_are_accepted() {
    let policy = compiled(
        "max_inflight = 1000000\ninteractive_reserve = 1000000\nmax_queue = 0\nmax_queue_total = 0\nmax_lanes = 1
         queue_timeout = '1ns'\naging_step = '30days'\nmin_pause = '30days'\nmax_pause = '30days'",
    );
    let rules = policy.lane(&LaneKey::new("e", "m")).admission;
    assert_eq!(rules.slots, SlotPolicy { limit: 1_000_000, reserve: 1_000_000 });
    assert_eq!((rules.pauses.min, rules.pauses.max, rules.aging_step), (MONTH, MONTH, Some(MONTH)));
}

#[test]
fn later_override_wins_field_by_field() {
    let policy = compiled(
        "max_inflight = 6\nqueue_timeout = '10s'\nidle_timeout = '5s'\n
         [[overrides]]\nlane = '*|acme/*'\nmax_inflight = 20\nmax_queue = 50\nidle_timeout = 'off'\naging_step = 'off'\n
         [[overrides]]\nlane = 'https://gw/v1|acme/smart'\nmax_inflight = 2\nmax_queue_per_class = 4",
    );
    let smart = policy.lane(&LaneKey::new("https://gw/v1", "acme/smart"));
    assert_eq!((smart.admission.slots.limit, smart.admission.max_queue), (2, 50));
    assert_eq!((smart.admission.max_queue_per_class, smart.admission.aging_step), (Some(4), None));
    assert_eq!((smart.admission.queue_timeout, smart.guards.idle), (10 * SECOND, None));

    let fast = policy.lane(&LaneKey::new("https://gw/v1", "acme/fast"));
    assert_eq!((fast.admission.slots.limit, fast.admission.max_queue_per_class), (20, None));

    let other = policy.lane(&LaneKey::new("https://gw/v1", "other"));
    assert_eq!((other.admission.slots.limit, other.admission.max_queue), (6, 1_000));
    assert_eq!(other.guards, Guards { first_byte: None, idle: Some(5 * SECOND) });
}

#[test]
fn pattern_is_compared_with_the_shown_name() {
    let policy = compiled(
        "[[overrides]]\nlane = '*|embedding'\nmax_inflight = 3\n
         [[overrides]]\nlane = 'e|*'\nmax_queue = 7\n",
    );
    let embedding = policy.lane(&LaneKey::new("f", "m").with_kind(Kind::Embedding));
    assert_eq!((embedding.admission.slots.limit, embedding.admission.max_queue), (3, 1_000));
    let nameless = policy.lane(&LaneKey::without_model("e"));
    assert_eq!((nameless.admission.slots.limit, nameless.admission.max_queue), (0, 7));
}

#[test]
fn last_matching_pool_applies() {
    let policy = compiled(
        "[[pools]]\nendpoint = 'https://gw/*'\nmax_inflight = 12\ninteractive_reserve = 4\n
         [[pools]]\nendpoint = 'https://gw/v1'\nkind = 'embedding'\nmax_inflight = 40",
    );
    assert_eq!(policy.pool("https://gw/v1", Kind::Chat), SlotPolicy { limit: 12, reserve: 4 });
    assert_eq!(policy.pool("https://gw/v1", Kind::Embedding), SlotPolicy { limit: 40, reserve: 1 });
    assert_eq!(policy.pool("https://gw/v2", Kind::Embedding), SlotPolicy { limit: 12, reserve: 4 });
    assert_eq!(policy.pool("https://other", Kind::Chat), SlotPolicy::default());
}

#[test]
fn one_limit_anywhere_enables() {
    assert!(!compiled("max_queue = 5\n[[overrides]]\nlane = '*'\nmax_inflight = 0").is_enabled());
    assert!(compiled("max_inflight = 1").is_enabled());
    assert!(compiled("[[overrides]]\nlane = '*'\nmax_inflight = 1").is_enabled());
    assert!(compiled("[[pools]]\nendpoint = '*'\nmax_inflight = 1").is_enabled());
}

#[test]
fn a_limit_is_named_or_a_table_of_one_controllers_settings() {
    use crate::engine::controller::{AimdConfig, GradientConfig, KneeConfig, LatencyTarget};

    assert_eq!(toml("limit = 'fixed'").limit, Limit::Fixed);
    assert_eq!(toml("limit = 'adaptive'").limit, Limit::Adaptive(KneeConfig::default()));
    assert_eq!(toml("limit = { gradient = {} }").limit, Limit::Gradient(GradientConfig::default()));
    let latency = Some(LatencyTarget { first_byte: Some(Duration::from_millis(1_500)), ..LatencyTarget::default() });
    assert_eq!(
        toml("[limit.aimd]\ninitial_limit = 180\nlatency = { first_byte = '1500ms' }").limit,
        Limit::Aimd(AimdConfig { initial_limit: 180, latency, ..AimdConfig::default() })
    );
    for (text, told) in [
        (
            "limit = 'adaptative'",
            "unknown variant `adaptative`, expected one of `fixed`, `adaptive`, `aimd`, `gradient`",
        ),
        ("limit = { knee = {} }", "expected one of `adaptive`, `aimd`, `gradient`"),
        ("limit = { aimd = {}, gradient = {} }", "`aimd` and `gradient` cannot both decide the limit"),
        ("limit = { aimd = { backoff = 0.5 } }", "unknown field `backoff`"),
        ("limit = 8", "one of fixed, adaptive, aimd, gradient"),
        ("limit = {}", "one of fixed, adaptive, aimd, gradient"),
    ] {
        let error = parse_error(text);
        assert!(error.contains(told), "{text}: {error}");
    }
}

// Case 95.
#[test]
fn controllers_that_can_never_work_are_refused_with_the_path_of_the_setting() {
    for (text, told) in [
        ("limit = { adaptive = { min_limit = 0 } }", "`limit.adaptive.min_limit` is 0, allowed: 1 to 1000000"),
        ("limit = { aimd = { decrease = 1.5 } }", "`limit.aimd.decrease` is 1.5, allowed: more than 0 and less than 1"),
        ("limit = { aimd = { decrease = nan } }", "`limit.aimd.decrease` is NaN, allowed: more than 0 and less than 1"),
        ("limit = { aimd = { latency = {} } }", "`limit.aimd.latency` is without a target"),
        (
            "[[overrides]]\nlane = '*'\nlimit = { gradient = { max_limit = 2, initial_limit = 9 } }",
            "`overrides[0].limit.gradient.initial_limit` is 9, allowed: `min_limit` (1) to `max_limit` (2)",
        ),
        (
            "[[pools]]\nendpoint = '*'\nlimit = { adaptive = { max_limit = 0 } }",
            "`pools[0].limit.adaptive.max_limit` is 0",
        ),
    ] {
        let error = refusal(text).to_string();
        assert!(error.starts_with(told), "{text}: {error}");
    }
}

#[test]
fn an_adaptive_limit_anywhere_enables_and_needs_no_number() {
    assert!(compiled("limit = 'adaptive'").is_enabled());
    assert!(compiled("[[overrides]]\nlane = '*|a'\nlimit = 'aimd'\ninteractive_reserve = 3").is_enabled());
    let policy = compiled("[[pools]]\nendpoint = 'e'\nlimit = 'adaptive'\ninteractive_reserve = 3");
    assert!(policy.is_enabled() && !policy.pool_limit("e", Kind::Chat).is_fixed());
    assert_eq!(policy.pool("e", Kind::Chat), SlotPolicy { limit: 0, reserve: 3 });
}

#[test]
fn the_last_matching_override_with_a_limit_decides_the_lanes_controller() {
    let policy = compiled(
        "limit = 'gradient'\n
         [[overrides]]\nlane = '*|a*'\nlimit = 'adaptive'\n
         [[overrides]]\nlane = '*|ab'\nlimit = 'fixed'\nmax_inflight = 4\n
         [[overrides]]\nlane = '*|ab'\nmax_queue = 4",
    );
    let name = |model: &str| policy.lane_limit(&LaneKey::new("e", model)).name();
    assert_eq!(["x", "a", "ab"].map(name), ["gradient", "adaptive", "fixed"]);
}

#[test]
fn breaker_is_on_off_or_a_table_and_its_defaults_are_the_documented_ones() {
    let documented = r#"
        [breaker]
        failure_rate = 0.5
        slow_after = "off"
        slow_rate = 0.5
        min_calls = 10
        window = "60s"
        open_for = "30s"
        max_open_for = "5m"
        probes = 3
        probe_timeout = "60s"
    "#;
    let default = Some(BreakerConfig::default());
    assert_eq!(toml(documented).breaker, default);
    assert_eq!(toml("breaker = 'on'").breaker, default);
    assert_eq!(toml("breaker = {}").breaker, default);
    assert_eq!(toml("breaker = 'off'").breaker, None);
    assert_eq!(serde_json::from_str::<LimitConfig>(r#"{"breaker": "on"}"#).unwrap().breaker, default);
    for (text, told) in [
        ("breaker = 'of'", "unknown variant `of`, expected `off` or `on`"),
        ("breaker = true", "expected one of off, on, or a table of settings"),
        ("breaker = { threshold = 5 }", "unknown field `threshold`, expected one of `failure_rate`"),
        ("breaker = { open_for = 30 }", "expected a duration with units"),
        ("breaker = { failure_rate = '50%' }", "invalid type: string \"50%\""),
    ] {
        let error = parse_error(text);
        assert!(error.contains(told), "{text}: {error}");
    }
}

#[test]
fn retry_budget_is_named_or_a_table_under_the_name_of_one_policy() {
    let documented = [
        ("ratio", "ratio = 0.1\nper_second = 3\nwindow = '10s'", RetryBudget::Ratio(RetryRatio::default())),
        ("grpc", "max_tokens = 10\ntoken_ratio = 0.1", RetryBudget::Grpc(GrpcThrottling::default())),
        ("sre", "k = 2\nwindow = '2m'", RetryBudget::Sre(SreThrottling::default())),
    ];
    for (name, settings, budget) in documented {
        for text in [
            format!("[retry_budget.{name}]\n{settings}"),
            format!("retry_budget = {{ {name} = {{}} }}"),
            format!("retry_budget = '{name}'"),
        ] {
            assert_eq!(toml(&text).retry_budget, Some(budget.clone()), "{text}");
        }
    }
    for (text, told) in [
        ("retry_budget = 'google'", "unknown variant `google`, expected one of `off`, `ratio`, `grpc`, `sre`"),
        ("retry_budget = { google = {} }", "unknown variant `google`, expected one of `ratio`, `grpc`, `sre`"),
        ("retry_budget = { grpc = {}, sre = {} }", "`sre` beside another one: only one may be given"),
        ("retry_budget = { sre = { K = 2.0 } }", "unknown field `K`, expected `k` or `window`"),
        ("retry_budget = 0.1", "expected one of off, ratio, grpc, sre, or a table of settings"),
    ] {
        let error = parse_error(text);
        assert!(error.contains(told), "{text}: {error}");
    }
}

#[test]
fn impossible_breaker_is_refused_with_the_path_of_the_setting() {
    let cases = [
        ("failure_rate = 0.0", "failure_rate", "0", "more than 0, at most 1; for no breaker"),
        ("failure_rate = 50.0", "failure_rate", "50", "at most 1"),
        ("failure_rate = nan", "failure_rate", "NaN", "at most 1"),
        ("slow_rate = -0.5", "slow_rate", "-0.5", "more than 0"),
        ("slow_after = '0s'", "slow_after", "0s", "in files \"off\""),
        ("min_calls = 0", "min_calls", "0", "1 to 1000000"),
        ("window = '500ms'", "window", "500ms", "1s to 30days"),
        ("open_for = '0s'", "open_for", "0s", "more than 0s"),
        ("open_for = '10m'", "open_for", "10m", "at most `max_open_for` (5m)"),
        ("max_open_for = '60d'", "max_open_for", "1month 29days 13h 26m 24s", "at most 30days"),
        ("probes = 0", "probes", "0", "1 to 100"),
        ("probes = 1000", "probes", "1000", "1 to 100"),
        ("probe_timeout = '0s'", "probe_timeout", "0s", "more than 0s"),
    ];
    for (text, key, value, allowed) in cases {
        assert_refused(&format!("[breaker]\n{text}"), &format!("breaker.{key}"), value, allowed);
        let text = format!("[[overrides]]\nlane = '*'\n[overrides.breaker]\n{text}");
        assert_refused(&text, &format!("overrides[0].breaker.{key}"), value, allowed);
    }
}

#[test]
fn impossible_retry_budget_is_refused_with_the_path_of_the_setting() {
    let cases = [
        ("ratio", "ratio = 10.0", "ratio", "10", "0 to 1; 0.1 is one retry for ten first attempts"),
        ("ratio", "ratio = nan", "ratio", "NaN", "0 to 1"),
        ("ratio", "per_second = -1.0", "per_second", "-1", "0 to 1000000"),
        ("ratio", "per_second = inf", "per_second", "inf", "0 to 1000000"),
        ("ratio", "ratio = 0.0\nper_second = 0.09", "per_second", "0.09", "at least one retry within `window`"),
        ("ratio", "window = '0s'", "window", "0s", "1s to 30days"),
        ("grpc", "max_tokens = 0", "max_tokens", "0", "1 to 1000"),
        ("grpc", "max_tokens = 1001", "max_tokens", "1001", "1 to 1000"),
        ("grpc", "token_ratio = 0.0", "token_ratio", "0", "0.001 to 1000"),
        ("sre", "k = 0.9", "k", "0.9", "1 to 1000; below 1, retries are refused while every call succeeds"),
        ("sre", "window = '999ms'", "window", "999ms", "1s to 30days"),
    ];
    for (policy, text, key, value, allowed) in cases {
        assert_refused(
            &format!("[retry_budget.{policy}]\n{text}"),
            &format!("retry_budget.{policy}.{key}"),
            value,
            allowed,
        );
    }
    let text = "[[overrides]]\nlane = '*'\nretry_budget = { sre = { k = 0.0 } }";
    assert_refused(text, "overrides[0].retry_budget.sre.k", "0", "1 to 1000");
}

#[test]
fn the_last_matching_override_decides_the_lanes_breaker_and_its_retry_budget() {
    let policy = compiled(
        "breaker = 'on'
         [[overrides]]\nlane = '*|a*'\nbreaker = { probes = 1 }\nretry_budget = 'ratio'\n
         [[overrides]]\nlane = '*|ab'\nbreaker = 'off'\nretry_budget = 'grpc'\n
         [[overrides]]\nlane = '*|ab'\nmax_queue = 4\n
         [[overrides]]\nlane = '*|abc'\nretry_budget = 'off'",
    );
    let probes = |model: &str| policy.lane_breaker(&LaneKey::new("e", model)).map(|breaker| breaker.probes);
    assert_eq!(["x", "a", "ab", "abc"].map(probes), [Some(3), Some(1), None, Some(1)]);
    let budget = |model: &str| policy.lane_retry_budget(&LaneKey::new("e", model));
    let (ratio, grpc) = (RetryBudget::Ratio(RetryRatio::default()), RetryBudget::Grpc(GrpcThrottling::default()));
    assert_eq!(["x", "a", "ab", "abc"].map(budget), [None, Some(ratio.policy()), Some(grpc.policy()), None]);
}

#[test]
fn a_breaker_or_a_retry_budget_anywhere_enables() {
    for text in ["breaker = 'on'", "retry_budget = 'sre'"] {
        assert!(compiled(text).is_enabled());
        assert!(compiled(&format!("[[overrides]]\nlane = '*'\n{text}")).is_enabled());
    }
    assert!(!compiled("breaker = 'off'\n[[overrides]]\nlane = '*'\nretry_budget = 'off'").is_enabled());
}
