//! The facts of O1 on the `metrics` facade, one by one.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use metrics::with_local_recorder;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tower_inflight::{Admission, Call, LaneKey, Limit, Limiter, PoolLimit, Priority, Quota};

use crate::support::*;

/// By name and labels: `llm_inflight{lane=…}`.
type Series = BTreeMap<String, DebugValue>;

fn paused<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(future)
}

fn recorded<F: Future>(test: impl FnOnce(Snapshotter) -> F) -> F::Output {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    with_local_recorder(&recorder, || paused(test(snapshotter)))
}

/// What was recorded since the last look; a look resets gauges too.
fn series(snapshotter: &Snapshotter) -> Series {
    let named = |key: &metrics::Key| {
        let labels: Vec<_> = key
            .labels()
            .filter(|label| !(label.key() == "lane" && label.value() == LANE))
            .map(|label| format!("{}={}", label.key(), label.value()))
            .collect();
        format!("{}{{{}}}", key.name(), labels.join(","))
    };
    let all = snapshotter.snapshot().into_vec();
    let names_its_subject = |label: &metrics::Label| ["lane", "pool"].contains(&label.key());
    assert!(all.iter().all(|(key, ..)| key.key().labels().any(names_its_subject)));
    all.into_iter().map(|(key, _, _, value)| (named(key.key()), value)).collect()
}

fn gauge(value: f64) -> DebugValue {
    DebugValue::Gauge(value.into())
}

fn histogram(values: &[f64]) -> DebugValue {
    DebugValue::Histogram(values.iter().map(|&value| value.into()).collect())
}

/// The counters of calls that were raised since the last look, and by how much. No answer here reports its usage.
fn raised(snapshotter: &Snapshotter) -> BTreeMap<String, u64> {
    let count = |value| if let DebugValue::Counter(count) = value { Some(count) } else { None };
    let counters = series(snapshotter).into_iter().filter_map(|(name, value)| Some((name, count(value)?)));
    let is_of_calls = |name: &str| name != "llm_usage_unknown_total{}" && !name.starts_with("llm_wait_seconds_total");
    counters.filter(|(name, count)| *count > 0 && is_of_calls(name)).collect()
}

#[test]
fn one_call_tells_its_whole_story() {
    recorded(|snapshotter| async move {
        let limiter = limiter(2);
        let client = client(&limiter, |_| async {
            sleep(1.0).await;
            Ok(ok(Script::new([
                wait(2),
                data("{\"usage\":{\"prompt_tokens\":8,"),
                wait(3),
                data("\"completion_tokens\":3}}"),
            ])))
        });
        fetch(&client).await.unwrap();
        let series = series(&snapshotter);
        let expected = [
            ("llm_inflight{}", gauge(0.0)),
            ("llm_queue_depth{priority=interactive}", gauge(0.0)),
            ("llm_queue_depth{priority=default}", gauge(0.0)),
            ("llm_queue_depth{priority=bulk}", gauge(0.0)),
            ("llm_queue_wait_seconds{priority=default}", histogram(&[0.0])),
            ("llm_queue_timeouts_total{}", DebugValue::Counter(0)),
            ("llm_limit{}", gauge(2.0)),
            ("llm_outcomes_total{outcome=success}", DebugValue::Counter(1)),
            ("llm_tokens_input_total{}", DebugValue::Counter(8)),
            ("llm_tokens_after_hangup_total{}", DebugValue::Counter(0)),
            ("llm_tokens_output_total{}", DebugValue::Counter(3)),
            ("llm_usage_unknown_total{}", DebugValue::Counter(0)),
        ];
        for (name, value) in &expected {
            assert_eq!(series.get(*name), Some(value), "{name}");
        }
        assert_eq!(series.len(), expected.len() + 2, "and two histograms: {series:?}");
        let only_value = |name: &str| match &series[name] {
            DebugValue::Histogram(values) if values.len() == 1 => values[0].into_inner(),
            other => panic!("{name}: {other:?}"),
        };
        assert!((2.99..3.01).contains(&only_value("llm_first_byte_seconds{}")));
        assert!((5.99..6.01).contains(&only_value("llm_hold_seconds{}")));
    });
}

#[test]
fn gauges_and_waits_are_told_by_class() {
    recorded(|snapshotter| async move {
        let limiter = limiter(1);
        let client = answering(&limiter, |_| ok(endless()));
        let held = send(&client).await.unwrap();
        let mut queued = Vec::new();
        for priority in [Priority::Interactive, Priority::Bulk, Priority::Bulk] {
            queued.push(spawned(&client, with(chat(), Call::new(priority))).await);
        }
        let series = series(&snapshotter);
        assert_eq!(series["llm_inflight{}"], gauge(1.0));
        assert_eq!(series["llm_queue_depth{priority=interactive}"], gauge(1.0));
        assert_eq!(series["llm_queue_depth{priority=bulk}"], gauge(2.0));
        sleep(5.0).await;
        drop(held);
        drop(queued.remove(0).await);
        settled().await;
        let series = self::series(&snapshotter);
        assert_eq!(series["llm_queue_wait_seconds{priority=interactive}"], histogram(&[5.0]));
        queued.iter().for_each(tokio::task::JoinHandle::abort);
        settled().await;
        let series = self::series(&snapshotter);
        assert_eq!(series["llm_inflight{}"], gauge(0.0));
        assert_eq!(series["llm_queue_depth{priority=bulk}"], gauge(0.0));
    });
}

#[test]
fn seconds_of_waiting_are_told_by_what_was_waited_for() {
    recorded(|snapshotter| async move {
        let limiter = limiter(1);
        let is_first = Arc::new(AtomicBool::new(true));
        let client = client(&limiter, move |_| {
            let is_first = is_first.swap(false, Ordering::Relaxed);
            async move {
                sleep(3.0).await;
                Ok(if is_first { busy("10") } else { ok(Script::new([])) })
            }
        });
        let calls = [spawned(&client, chat()).await, spawned(&client, chat()).await, spawned(&client, chat()).await];
        sleep(2.0).await;
        assert_eq!(lane(&limiter).waited_s, BTreeMap::from([("slot", 4.0)]), "those who wait now");
        for call in calls {
            call.await.unwrap().unwrap();
        }
        // Two for the first, which is refused; then both for the pause, which is up to a second longer; then one for the other.
        let waited = lane(&limiter).waited_s;
        assert!((9.0..10.1).contains(&waited["slot"]) && (20.0..22.1).contains(&waited["pause"]), "{waited:?}");
        let series = series(&snapshotter);
        for (cause, seconds) in waited {
            let name = format!("llm_wait_seconds_total{{cause={cause}}}");
            let DebugValue::Counter(told) = series[&name] else { panic!("{name} is a counter") };
            assert!((seconds - 1.0..=seconds).contains(&f64::from(u32::try_from(told).unwrap())), "{name}: {told}");
        }
    });
}

#[test]
fn a_refusal_is_no_first_byte() {
    recorded(|snapshotter| async move {
        let limiter = limiter(1);
        for code in [404, 429, 503] {
            fetch(&answering(&limiter, move |_| status(code, Script::new([data("no")])))).await.unwrap();
        }
        let series = series(&snapshotter);
        assert_eq!(series["llm_first_byte_seconds{}"], histogram(&[]));
        assert_eq!(series["llm_hold_seconds{}"], histogram(&[0.0; 3]));
    });
}

#[test]
fn the_prefix_can_be_chosen() {
    recorded(|snapshotter| async move {
        let limiter = slots(1).metrics_prefix("gateway").build().unwrap();
        fetch(&answering(&limiter, |_| ok(Script::new([])))).await.unwrap();
        assert!(series(&snapshotter).keys().all(|name| name.starts_with("gateway_")));
    });
}

#[test]
fn a_limiter_that_is_off_records_nothing() {
    recorded(|snapshotter| async move {
        fetch(&answering(&limiter(0), |_| ok(Script::new([])))).await.unwrap();
        assert_eq!(series(&snapshotter), Series::new());
    });
}

#[test]
fn a_changed_limit_shows() {
    recorded(|snapshotter| async move {
        let limiter = limiter(1);
        fetch(&answering(&limiter, |_| ok(Script::new([])))).await.unwrap();
        let mut config = limiter.config();
        config.max_inflight = 5;
        limiter.reconfigure(config).unwrap();
        assert_eq!(series(&snapshotter)["llm_limit{}"], gauge(5.0));
    });
}

type Answer = fn() -> http::Response<Script>;

/// Case 144: one call of each kind raises the one counter, and at every look the books are balanced.
struct Ledger {
    limiter: Limiter,
    snapshotter: Snapshotter,
}

impl Ledger {
    fn expect(&self, counters: &[&str]) {
        let raised = raised(&self.snapshotter);
        let expected: BTreeMap<_, _> = counters.iter().map(|&name| (name.to_owned(), 1)).collect();
        assert_eq!(raised, expected);
        assert_balanced(&lane(&self.limiter));
    }
}

fn hurried() -> Query {
    with(chat(), Call::new(Priority::Default).with_timeout(Duration::from_secs(1)))
}

// Case 144.
#[test]
fn every_call_that_was_never_sent_is_counted_once_and_with_its_reason() {
    recorded(|snapshotter| async move {
        let limiter = slots(1).queue_timeout(Duration::from_secs(5)).max_queue(1).build().unwrap();
        let ledger = Ledger { limiter: limiter.clone(), snapshotter };
        let client = answering(&limiter, |_| ok(endless()));
        let held = send(&client).await.unwrap();
        ledger.expect(&[]);

        let waiting = spawned(&client, chat()).await;
        ledger.expect(&[]);
        assert!(send(&client).await.is_err());
        ledger.expect(&["llm_refusals_total{reason=queue_full}"]);
        assert!(waiting.await.unwrap().is_err());
        ledger.expect(&["llm_queue_timeouts_total{}", "llm_refusals_total{reason=queue_timeout}"]);
        assert!(send_query(&client, hurried()).await.is_err());
        ledger.expect(&["llm_refusals_total{reason=deadline}"]);
        let late = hurried();
        sleep(2.0).await;
        assert!(send_query(&client, late).await.is_err());
        ledger.expect(&["llm_refusals_total{reason=deadline}"]);
        let impatient = with(chat(), Call::new(Priority::Default).with_admission(Admission::Reject));
        assert!(send_query(&client, impatient).await.is_err());
        ledger.expect(&["llm_refusals_total{reason=busy}"]);

        let given_up = spawned(&client, chat()).await;
        given_up.abort();
        settled().await;
        ledger.expect(&["llm_outcomes_total{outcome=abandoned}"]);
        drop(held);
        ledger.expect(&["llm_outcomes_total{outcome=cancelled}"]);

        send(&answering(&limiter, |_| busy("30"))).await.unwrap();
        ledger.expect(&["llm_outcomes_total{outcome=overload}", "llm_pauses_total{}"]);
        assert!(send(&client).await.is_err());
        ledger.expect(&["llm_refusals_total{reason=paused}"]);
        limiter.close();
        assert!(send(&client).await.is_err());
        ledger.expect(&["llm_refusals_total{reason=closed}"]);
        assert_idle(&limiter);
        assert_eq!(lane(&limiter).offered, 10);
    });
}

// Case 144.
#[test]
fn every_call_that_was_sent_is_counted_once_and_with_its_outcome() {
    recorded(|snapshotter| async move {
        let limiter = slots(1).first_byte_timeout(Duration::from_secs(5)).build().unwrap();
        let ledger = Ledger { limiter: limiter.clone(), snapshotter };
        let answers: [(&str, Answer); 9] = [
            ("success", || ok(Script::new([data("a")]))),
            ("overload", || status(429, Script::new([]))),
            ("quota", || status(402, Script::new([]))),
            ("client_error", || status(404, Script::new([]))),
            ("server_error", || status(500, Script::new([]))),
            ("unavailable", || status(503, Script::new([]))),
            ("transport", || ok(Script::new([data("a"), Step::Fail(reset(1))]))),
            ("stalled", || ok(Script::new([Step::Silence]))),
            ("success", || ok(Script::new([]).telling_end())),
        ];
        for (outcome, answer) in answers {
            let _ = fetch(&answering(&limiter, move |_| answer())).await;
            ledger.expect(&[&format!("llm_outcomes_total{{outcome={outcome}}}")]);
        }

        let failing = client(&limiter, |_| async { Err(reset(1).into()) });
        assert!(send(&failing).await.is_err());
        ledger.expect(&["llm_outcomes_total{outcome=transport}"]);

        let inner = self::limiter(1);
        inner.close();
        let refusing = answering(&inner, |_| ok(endless()));
        let nested = client(&limiter, move |query| {
            let refusing = refusing.clone();
            async move { Err(send_query(&refusing, query).await.err().unwrap()) }
        });
        assert!(send(&nested).await.is_err());
        // The inner limiter's lane has the same name.
        ledger.expect(&["llm_outcomes_total{outcome=refused}", "llm_refusals_total{reason=closed}"]);

        let call = spawned(&client(&limiter, |_| std::future::pending()), chat()).await;
        call.abort();
        settled().await;
        ledger.expect(&["llm_outcomes_total{outcome=cancelled}"]);
        drop(send(&answering(&limiter, |_| ok(endless()))).await.unwrap());
        ledger.expect(&["llm_outcomes_total{outcome=cancelled}"]);
        assert_idle(&limiter);
    });
}

// Case 61.
#[test]
fn lanes_that_are_shown_alike_do_not_fight_over_a_gauge() {
    recorded(|snapshotter| async move {
        let limiter = limiter(1);
        let client = answering(&limiter, |_| ok(endless()));
        let long = "h".repeat(500);
        let open = |end: &str| send_query(&client, asking(&format!("{long}{end}")));
        let first = open("a").await.unwrap();
        let second = open("b").await.unwrap();
        let in_flight = |series: Series| {
            let all = series.into_iter().filter(|(name, _)| name.starts_with("llm_inflight"));
            all.map(|(name, value)| (name.contains("lane=other"), value)).collect::<Vec<_>>()
        };
        assert_eq!(in_flight(series(&snapshotter)), [(false, gauge(1.0)), (true, gauge(1.0))]);
        drop(second);
        drop(first);
        assert_eq!(in_flight(series(&snapshotter)), [(false, gauge(0.0)), (true, gauge(0.0))]);
    });
}

// Case 64.
#[test]
fn labels_beyond_the_bound_fold_into_one() {
    recorded(|snapshotter| async move {
        let limiter = slots(1).max_lanes(4).build().unwrap();
        let client = answering(&limiter, |_| ok(Script::new([])));
        let open = answering(&limiter, |_| ok(endless()));
        for n in 0..200 {
            read(send_query(&client, asking(&format!("m{n}"))).await.unwrap()).await.unwrap();
        }
        let folded = send_query(&open, asking("late")).await.unwrap();
        let all = series(&snapshotter);
        let in_flight: Vec<_> = all.iter().filter(|(name, _)| name.starts_with("llm_inflight")).collect();
        assert!(in_flight.len() <= 5, "{in_flight:?}");
        assert_eq!(all["llm_inflight{lane=other}"], gauge(1.0));
        drop(folded);
        assert_eq!(series(&snapshotter)["llm_inflight{lane=other}"], gauge(0.0));
    });
}

#[test]
fn tokens_are_counted_as_admitted_refunded_and_rejected() {
    recorded(|snapshotter| async move {
        let quota = Quota { tokens_per_minute: Some(1_000), max_output: 300, ..Quota::default() };
        let limiter = slots(2).quota(quota).build().unwrap();
        let client = answering(&limiter, |_| {
            ok(Script::new([data("{\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":20}}")]))
        });
        fetch(&client).await.unwrap();
        let call = |input| Call::new(Priority::Default).with_tokens(input, 0).with_admission(Admission::Reject);
        rejected(send_query(&client, with(chat(), call(1_001))).await);
        let held = send_query(&client, with(chat(), call(900))).await.unwrap();
        rejected(send_query(&client, with(chat(), call(500))).await);
        drop(held);
        let raised = raised(&snapshotter);
        let tokens = |what: &str| raised[&format!("llm_tokens_{what}_total{{}}")];
        assert_eq!((tokens("admitted"), tokens("refunded"), tokens("rejected")), (1_200, 272 + 900, 1_501));
    });
}

#[test]
fn a_lane_without_a_budget_has_no_counters_of_one() {
    recorded(|snapshotter| async move {
        let limiter = limiter(2);
        fetch(&answering(&limiter, |_| ok(Script::new([data("a")])))).await.unwrap();
        assert!(!series(&snapshotter).keys().any(|name| name.contains("admitted") || name.contains("rejected")));
    });
}

/// Of pools alone, without the prefix.
fn of_pools(snapshotter: &Snapshotter) -> Series {
    let of_pool = |(name, value): (String, _)| Some((name.strip_prefix("llm_pool_")?.to_owned(), value));
    series(snapshotter).into_iter().filter_map(of_pool).collect()
}

const POOL: &str = "https://gw.example/v1|*";

#[test]
fn a_pool_with_a_limit_shows_what_all_its_lanes_hold_together() {
    recorded(|snapshotter| async move {
        let limiter = slots(2).pool(PoolLimit::new("https://gw.example/*", 3)).build().unwrap();
        let client = answering(&limiter, |_| ok(endless()));
        let (in_flight, limit) = (format!("inflight{{pool={POOL}}}"), format!("limit{{pool={POOL}}}"));
        assert!(limiter.lane(&LaneKey::new("https://gw.example/v1", "a")).is_some());
        let from_the_start = Series::from([(in_flight.clone(), gauge(0.0)), (limit.clone(), gauge(3.0))]);
        assert_eq!(of_pools(&snapshotter), from_the_start);
        let held = [send_query(&client, asking("a")).await.unwrap(), send_query(&client, asking("b")).await.unwrap()];
        assert_eq!(of_pools(&snapshotter)[&in_flight], gauge(2.0));
        let mut config = limiter.config();
        config.pools.clear();
        limiter.reconfigure(config).unwrap();
        let without_a_limit = of_pools(&snapshotter);
        assert_eq!((&without_a_limit[&in_flight], &without_a_limit[&limit]), (&gauge(0.0), &gauge(0.0)));
        drop(held);
    });
}

#[test]
fn a_pool_that_is_steered_shows_its_limit_as_it_moves_and_its_pauses() {
    recorded(|snapshotter| async move {
        let adaptive = Limit::Adaptive(Default::default());
        let limiter = Limiter::builder().pool(PoolLimit::with_limit("https://gw.example/*", adaptive)).build().unwrap();
        fetch(&answering(&limiter, |_| busy("30"))).await.unwrap();
        let pools = of_pools(&snapshotter);
        let limit = f64::from(limiter.snapshot().pools[0].limit);
        assert_eq!(pools[&format!("limit{{pool={POOL}}}")], gauge(limit));
        assert_eq!(pools[&format!("pauses_total{{pool={POOL}}}")], DebugValue::Counter(1));
    });
}

#[test]
fn a_pool_without_a_limit_shows_nothing_that_its_lanes_do_not() {
    recorded(|snapshotter| async move {
        let limiter = limiter(2);
        let held = send(&answering(&limiter, |_| ok(endless()))).await.unwrap();
        fetch(&answering(&limiter, |_| busy("30"))).await.unwrap();
        drop(held);
        assert_eq!(of_pools(&snapshotter), Series::new());
    });
}

// Case 64.
#[test]
fn labels_of_pools_beyond_the_bound_fold_into_one() {
    recorded(|snapshotter| async move {
        let limiter = slots(1).max_lanes(4).pool(PoolLimit::new("*", 1)).build().unwrap();
        let hold = |n| limiter.try_acquire(&LaneKey::new(format!("https://gw{n}.example/v1"), "m"), Priority::Default);
        for n in 0..200 {
            drop(hold(n).unwrap());
        }
        let folded = hold(200).unwrap();
        let all = of_pools(&snapshotter);
        assert!(all.keys().filter(|name| name.starts_with("inflight")).count() <= 5, "{all:?}");
        assert_eq!(all["inflight{pool=other}"], gauge(1.0));
        drop(folded);
        assert_eq!(of_pools(&snapshotter)["inflight{pool=other}"], gauge(0.0));
    });
}
