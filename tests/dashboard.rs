//! The dashboard and the alert rules ask for what is exported, and the README lists all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::poll;
use metrics_exporter_prometheus::PrometheusBuilder;
use saphyr::{LoadableYamlNode, Yaml};
use serde_json::Value;
use tower_inflight::{
    Admission, BreakerConfig, Call, GrpcThrottling, LaneKey, Limit, Limiter, Outcome, Pause, Permit, PoolLimit,
    Priority, Quota, RetryBudget, RunQueue, StartRun, Usage, Verdict, prometheus,
};

const DASHBOARD: &str = include_str!("../docs/grafana.json");
const ALERTS: &str = include_str!("../docs/alerts.yml");
const README: &str = include_str!("../README.md");

/// By label, its values.
type Labels = BTreeMap<String, BTreeSet<String>>;

/// What a scrape shows.
#[derive(Debug, Default)]
struct Scrape {
    described: BTreeSet<String>,
    kinds: BTreeMap<String, String>,
    labels: BTreeMap<String, Labels>,
}

impl Scrape {
    fn read(text: &str) -> Self {
        let mut scrape = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            match words[..] {
                ["#", "HELP", name, _] => drop(scrape.described.insert(name.to_owned())),
                ["#", "TYPE", name, kind] => drop(scrape.kinds.insert(name.to_owned(), kind.to_owned())),
                ["" | "#", ..] => {}
                _ => {
                    let [selector] = &selectors(line)[..] else { panic!("no sample: {line}") };
                    let family = scrape.family(&selector.name).unwrap_or_else(|| panic!("no type: {line}")).to_owned();
                    let labels = scrape.labels.entry(family).or_default();
                    for Matcher { label, value, .. } in &selector.matchers {
                        labels.entry(label.clone()).or_default().insert(value.clone());
                    }
                }
            }
        }
        scrape
    }

    /// The metric that a sample by this name belongs to.
    fn family<'n>(&self, sample: &'n str) -> Option<&'n str> {
        let parts = ["_bucket", "_sum", "_count"];
        match parts.iter().find_map(|part| sample.strip_suffix(part)) {
            Some(name) if self.kinds.get(name).is_some_and(|kind| kind == "histogram") => Some(name),
            _ => self.kinds.get(sample).filter(|kind| *kind != "histogram").map(|_| sample),
        }
    }
}

/// A metric that is asked for, with what is asked of its labels.
#[derive(Debug)]
struct Selector {
    name: String,
    matchers: Vec<Matcher>,
}

#[derive(Debug)]
struct Matcher {
    label: String,
    is_pattern: bool,
    value: String,
}

impl Matcher {
    /// The values that it means. A pattern here is a list of words, or a variable, which may be anything.
    fn values(&self) -> Vec<&str> {
        match self.value.as_str() {
            value if value.starts_with('$') => Vec::new(),
            value if self.is_pattern => value.split('|').collect(),
            value => vec![value],
        }
    }
}

/// All metrics of ours in an expression.
fn selectors(expression: &str) -> Vec<Selector> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut selectors = Vec::new();
    let mut rest = expression;
    while let Some(at) = rest.find("llm_") {
        let end = rest[at..].find(|c| !is_of_name(c)).map_or(rest.len(), |length| at + length);
        let name = rest[at..end].to_owned();
        rest = &rest[end..];
        let inside = rest.strip_prefix('{').and_then(|inside| inside.split_once('}'));
        let matchers = inside.map(|(inside, after)| {
            rest = after;
            matchers(inside)
        });
        selectors.push(Selector { name, matchers: matchers.unwrap_or_default() });
    }
    selectors
}

/// No value here has a quote in it.
fn matchers(inside: &str) -> Vec<Matcher> {
    let words: Vec<&str> = inside.split('"').collect();
    let matcher = |pair: &[&str]| {
        let [label, value] = pair else { return None };
        let is_pattern = label.ends_with('~');
        let label = label.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_').to_owned();
        Some(Matcher { label, is_pattern, value: (*value).to_owned() })
    };
    words.chunks(2).filter_map(matcher).collect()
}

/// The labels that an expression groups by.
fn groupings(expression: &str) -> impl Iterator<Item = &str> {
    let lists = expression.split(" by (").skip(1).filter_map(|rest| rest.split_once(')'));
    lists.flat_map(|(list, _)| list.split(',').map(str::trim))
}

/// One of everything that can happen, as a scrape shows it.
fn scrape() -> Scrape {
    let builder = prometheus::buckets(PrometheusBuilder::new(), "llm").expect("buckets that are not empty");
    let recorder = builder.build_recorder();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        prometheus::describe("llm");
        runtime.block_on(async {
            calls().await;
            charges();
            a_pool_pauses();
            a_breaker_opens();
            runs().await;
        });
    });
    Scrape::read(&recorder.handle().render())
}

fn lane() -> LaneKey {
    LaneKey::new("https://gw.example/v1", "acme/smart")
}

async fn calls() {
    let limiter =
        Limiter::builder().max_inflight(1).max_queue(1).queue_timeout(Duration::from_secs(5)).build().unwrap();
    let hold = || limiter.try_acquire(&lane(), Priority::Default).expect("a free slot");
    let outcomes = [
        Outcome::Overload,
        Outcome::Unavailable,
        Outcome::ServerError,
        Outcome::Transport,
        Outcome::Stalled,
        Outcome::ClientError,
        Outcome::Quota,
        Outcome::Refused,
        Outcome::Cancelled,
    ];
    outcomes.into_iter().for_each(|outcome| hold().settle(outcome));
    for usage in [Usage::new(3_000, 400), Usage::default()] {
        let mut permit = hold();
        permit.note_first_byte();
        permit.settle_with_usage(Outcome::Success, usage);
    }

    let permit = hold();
    let mut waiting = Box::pin(limiter.acquire(&lane(), Priority::Bulk));
    assert!(poll!(&mut waiting).is_pending());
    limiter.acquire(&lane(), Priority::Bulk).await.expect_err("the queue is full");
    limiter.try_acquire(&lane(), Call::new(Priority::Bulk).with_admission(Admission::Reject)).expect_err("busy");
    drop(waiting);
    limiter.acquire(&lane(), Priority::Bulk).await.expect_err("it waits in vain");

    let mut waiting = Box::pin(limiter.acquire(&lane(), Priority::Interactive));
    assert!(poll!(&mut waiting).is_pending());
    permit.settle(Outcome::Success);
    let pause = Pause::For(Duration::from_secs(60));
    waiting.await.expect("its turn").settle(Verdict::new(Outcome::Overload).with_pause(pause));
    limiter.acquire(&lane(), Priority::Default).await.expect_err("the pause is longer than anybody waits");
}

fn charges() {
    let quota = Quota { tokens_per_minute: Some(10_000), ..Quota::default() };
    let limiter = Limiter::builder().quota(quota).build().unwrap();
    let call = |tokens| Call::new(Priority::Default).with_tokens(tokens, 0).with_admission(Admission::Reject);
    let take = |tokens| -> Result<Permit, _> { limiter.try_acquire(&lane(), call(tokens)) };
    take(20_000).expect_err("too large");
    let permit = take(9_000).expect("enough is left");
    take(9_000).expect_err("short");
    permit.settle(Outcome::Success);
}

fn a_pool_pauses() {
    let pool = PoolLimit::with_limit("https://gw.example/*", Limit::Adaptive(Default::default()));
    let limiter = Limiter::builder().pool(pool).build().unwrap();
    let pause = Pause::For(Duration::from_secs(60));
    let permit = limiter.try_acquire(&lane(), Priority::Default).expect("a free slot");
    permit.settle(Verdict::new(Outcome::Overload).with_pause(pause));
}

fn a_breaker_opens() {
    let breaker = BreakerConfig { min_calls: 1, ..BreakerConfig::default() };
    // As gRPC has it, one failure uses up half of two tokens.
    let retries = RetryBudget::Grpc(GrpcThrottling { max_tokens: 2, ..GrpcThrottling::default() });
    let limiter = Limiter::builder().breaker(breaker).retry_budget(retries).build().unwrap();
    let [refusing, failing] =
        ["acme/refusing", "acme/failing"].map(|model| LaneKey::new("https://gw.example/v1", model));
    let call = Call::new(Priority::Default);
    limiter.try_acquire(&refusing, call.clone()).expect("a free slot").settle(Outcome::Overload);
    limiter.try_acquire(&refusing, call).expect_err("one retry too many");
    limiter.try_acquire(&failing, Priority::Default).expect("a free slot").settle(Outcome::ServerError);
    limiter.try_acquire(&failing, Priority::Default).expect_err("the breaker is open");
}

async fn runs() {
    let limiter = Limiter::builder().max_inflight(1).build().unwrap();
    let queue = RunQueue::builder().max_concurrent_runs(1).max_queue_depth(1).build().unwrap();
    let start = || queue.start(StartRun::new("acme", "ann"));
    let permit = limiter.try_acquire(&lane(), Priority::Default).expect("a free slot");
    let mut lender = start().expect("a free slot");
    lender.admitted().await.expect("it has its slot");
    let mut turn = Box::pin(limiter.acquire(&lane(), Call::new(Priority::Default).own_turn(&lender)));
    assert!(poll!(&mut turn).is_pending());
    let next = start().expect("the slot that is lent");
    start().expect_err("as many are lent as may");
    next.finish().expect("it ran");
    permit.settle(Outcome::Success);
    turn.await.expect("both slots").settle(Outcome::Success);
    lender.finish().expect("it ran");
    drop(start().expect("a free slot"));
}

fn assert_is_exported(expression: &str, scrape: &Scrape) {
    let selectors = selectors(expression);
    assert!(!selectors.is_empty(), "asks for nothing of ours: {expression}");
    let mut known = BTreeSet::new();
    for Selector { name, matchers } in &selectors {
        let family = scrape.family(name).unwrap_or_else(|| panic!("`{name}` is not exported: {expression}"));
        let labels = &scrape.labels[family];
        known.extend(labels.keys().map(String::as_str));
        for matcher in matchers {
            let Matcher { label, .. } = matcher;
            let values = labels.get(label).unwrap_or_else(|| panic!("`{name}` has no label `{label}`: {expression}"));
            for value in matcher.values() {
                assert!(values.contains(value), "`{label}` of `{name}` is never `{value}`: {expression}");
            }
        }
    }
    for label in groupings(expression) {
        assert!(known.contains(label), "nothing here has the label `{label}`: {expression}");
    }
}

/// Everything under a key of this name, at any depth.
fn under<'v>(value: &'v Value, key: &str, found: &mut Vec<&'v str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get(key).and_then(Value::as_str));
            fields.values().for_each(|value| under(value, key, found));
        }
        Value::Array(values) => values.iter().for_each(|value| under(value, key, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_asks_for_what_is_exported() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let mut asked = Vec::new();
    ["expr", "definition"].into_iter().for_each(|key| under(&dashboard, key, &mut asked));
    let scrape = scrape();
    asked.iter().for_each(|expression| assert_is_exported(expression, &scrape));

    let names = asked.iter().flat_map(|expression| selectors(expression)).map(|selector| selector.name);
    let shown: BTreeSet<String> = names.filter_map(|name| scrape.family(&name).map(str::to_owned)).collect();
    assert_eq!(shown, scrape.kinds.into_keys().collect(), "and leaves nothing out");
}

#[test]
fn the_alert_rules_ask_for_what_is_exported() {
    let documents = Yaml::load_from_str(ALERTS).expect("YAML");
    let groups = documents[0]["groups"].as_sequence().expect("a list of groups");
    let rules: Vec<&Yaml<'_>> =
        groups.iter().flat_map(|group| group["rules"].as_sequence().expect("a list of rules")).collect();
    assert!(!rules.is_empty());
    let scrape = scrape();
    for rule in rules {
        assert!(rule["alert"].as_str().is_some(), "{rule:?}");
        assert!(rule["annotations"]["summary"].as_str().is_some(), "{rule:?}");
        assert_is_exported(rule["expr"].as_str().expect("an expression"), &scrape);
    }
}

#[test]
fn every_metric_is_described_and_stands_in_the_readme() {
    let scrape = scrape();
    for name in scrape.kinds.keys() {
        assert!(scrape.described.contains(name), "`{name}` has no description");
        assert!(README.contains(&format!("`{name}`")), "`{name}` is not in the README");
    }
}

#[test]
#[should_panic(expected = "`llm_inflght` is not exported")]
fn a_name_that_nobody_exports_is_found_out() {
    assert_is_exported("sum by (lane) (llm_inflght)", &scrape());
}

#[test]
#[should_panic(expected = "`llm_hold_seconds` is not exported")]
fn a_histogram_without_its_suffix_is_found_out() {
    assert_is_exported("sum by (lane) (rate(llm_hold_seconds[5m]))", &scrape());
}

#[test]
#[should_panic(expected = "`outcome` of `llm_outcomes_total` is never `stalld`")]
fn a_value_that_no_label_has_is_found_out() {
    assert_is_exported(r#"rate(llm_outcomes_total{lane=~"$lane",outcome=~"success|stalld"}[5m])"#, &scrape());
}
