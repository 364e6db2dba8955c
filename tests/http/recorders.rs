//! Recorders that look closely, call back, or panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};
use tower_inflight::{LaneKey, Limiter, Outcome, Priority};

use crate::support::*;

type Hook = Arc<dyn Fn(&str, f64) + Send + Sync>;

/// Calls a hook at every registration and every value.
struct Hooked(Hook);

struct Handle(String, Hook);

impl Hooked {
    fn handle(&self, key: &Key) -> Arc<Handle> {
        self.0(key.name(), 0.0);
        Arc::new(Handle(key.name().to_owned(), self.0.clone()))
    }
}

impl CounterFn for Handle {
    fn increment(&self, value: u64) {
        self.1(&self.0, value as f64);
    }

    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Handle {
    fn increment(&self, _: f64) {
        panic!("gauges are set");
    }

    fn decrement(&self, _: f64) {
        panic!("gauges are set");
    }

    fn set(&self, value: f64) {
        self.1(&self.0, value);
    }
}

impl HistogramFn for Handle {
    fn record(&self, value: f64) {
        self.1(&self.0, value);
    }
}

impl Recorder for Hooked {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.handle(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.handle(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.handle(key))
    }
}

fn hooked<T>(hook: impl Fn(&str, f64) + Send + Sync + 'static, test: impl AsyncFnOnce() -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    with_local_recorder(&Hooked(Arc::new(hook)), || runtime.block_on(test()))
}

// Case 141.
#[test]
fn no_gauge_is_ever_negative_and_all_end_at_zero() {
    let last: Arc<Mutex<std::collections::BTreeMap<String, f64>>> = Arc::default();
    let seen = last.clone();
    let look = move |name: &str, value: f64| {
        assert!(value >= 0.0, "{name} {value}");
        seen.lock().unwrap().insert(name.to_owned(), value);
    };
    hooked(look, async || {
        let limiter = slots(2).max_lanes(1).build().unwrap();
        let frames = || (0..20).map(|_| data("x"));
        let whole = answering(&limiter, move |_| ok(Script::new(frames())));
        let broken = answering(&limiter, move |_| ok(Script::new(frames().chain([Step::Fail(reset(1))]))));
        for _ in 0..3 {
            fetch(&whole).await.unwrap();
            assert!(fetch(&broken).await.is_err());
            let mut reply = send(&whole).await.unwrap();
            for _ in 0..5 {
                http_body_util::BodyExt::frame(reply.body_mut()).await.unwrap().unwrap();
            }
            drop(reply);
            // Another name: the lane is evicted, and made again next time.
            read(send_query(&whole, asking("other")).await.unwrap()).await.unwrap();
        }
    });
    let last = last.lock().unwrap();
    assert_eq!((last["llm_inflight"], last["llm_queue_depth"]), (0.0, 0.0));
}

/// In a thread of its own, so that a deadlock is a failure and not a test that never ends.
fn within_reason(test: impl FnOnce() + Send + 'static) {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    is_done.recv_timeout(std::time::Duration::from_secs(20)).expect("no deadlock and no panic");
}

// Case 145.
#[test]
fn a_recorder_may_ask_the_limiter() {
    within_reason(|| {
        let cell: Arc<OnceLock<Limiter>> = Arc::default();
        let looks = Arc::new(AtomicUsize::new(0));
        let (asked, counted) = (cell.clone(), looks.clone());
        let hook = move |_: &str, _: f64| {
            if let Some(limiter) = asked.get() {
                let _ = limiter.snapshot();
                counted.fetch_add(1, Ordering::Relaxed);
            }
        };
        hooked(hook, async || {
            let limiter = limiter(1);
            cell.set(limiter.clone()).unwrap();
            let client = answering(&limiter, |_| ok(Script::new([wait(1)])));
            let calls = futures_util::future::join_all((0..5).map(|_| fetch(&client))).await;
            assert!(calls.iter().all(Result::is_ok));
            let mut config = limiter.config();
            config.max_inflight = 2;
            limiter.reconfigure(config).unwrap();
            assert_idle(&limiter);
        });
        assert!(looks.load(Ordering::Relaxed) > 10);
    });
}

// Case 145.
#[test]
fn a_recorder_may_start_a_call_of_its_own() {
    within_reason(|| {
        let cell: Arc<OnceLock<Limiter>> = Arc::default();
        let (asked, is_inside) = (cell.clone(), AtomicBool::new(false));
        let hook = move |_: &str, _: f64| {
            let Some(limiter) = asked.get() else { return };
            if !is_inside.swap(true, Ordering::Relaxed) {
                let lane = LaneKey::new("https://gw.example/v1", "m");
                drop(limiter.try_acquire(&lane, Priority::Default));
                is_inside.store(false, Ordering::Relaxed);
            }
        };
        hooked(hook, async || {
            let limiter = limiter(2);
            cell.set(limiter.clone()).unwrap();
            fetch(&answering(&limiter, |_| ok(Script::new([data("a")])))).await.unwrap();
            assert_idle(&limiter);
        });
    });
}

/// The one metric whose recording panics, once it is armed.
fn panicking_on(name: &'static str) -> (Arc<AtomicBool>, impl Fn(&str, f64) + Send + Sync + 'static) {
    let is_armed = Arc::new(AtomicBool::new(false));
    let armed = is_armed.clone();
    let hook = move |recorded: &str, _: f64| {
        assert!(!(recorded == name && armed.swap(false, Ordering::Relaxed)), "the recorder panics on {name}");
    };
    (is_armed, hook)
}

const RECORDED: [&str; 6] = [
    "llm_inflight",
    "llm_queue_depth",
    "llm_queue_wait_seconds",
    "llm_outcomes_total",
    "llm_first_byte_seconds",
    "llm_hold_seconds",
];

// Case 145.
#[test]
fn a_recorder_that_panics_loses_no_slot() {
    for name in RECORDED {
        for is_known in [false, true] {
            let (armed, hook) = panicking_on(name);
            hooked(hook, async || {
                let limiter = limiter(1);
                let client = answering(&limiter, |_| ok(Script::new([data("a")])));
                if is_known {
                    fetch(&client).await.unwrap();
                }
                armed.store(true, Ordering::Relaxed);
                let hit = tokio::spawn({
                    let client = client.clone();
                    async move { fetch(&client).await.map(drop) }
                });
                let _ = hit.await;
                armed.store(false, Ordering::Relaxed);
                assert_eq!(in_flight(&limiter), 0, "{name}, known: {is_known}");
                assert_eq!(fetch(&client).await.unwrap(), "a", "{name}");
                assert_idle(&limiter);
            });
        }
    }
}

// Case 145.
#[test]
fn a_recorder_that_panics_loses_no_waiter() {
    for name in ["llm_inflight", "llm_queue_depth", "llm_queue_wait_seconds", "llm_outcomes_total"] {
        let (armed, hook) = panicking_on(name);
        hooked(hook, async || {
            let limiter = limiter(1);
            let client = answering(&limiter, |_| ok(Script::new([data("a")])));
            let held = send(&client).await.unwrap();
            let hit = spawned(&client, chat()).await;
            let waiting = spawned(&client, chat()).await;
            armed.store(true, Ordering::Relaxed);
            let _ = catch_unwind(AssertUnwindSafe(|| drop(held)));
            let _ = hit.await;
            let start = now();
            let reply = waiting.await.unwrap().unwrap();
            assert!(since(start) <= 1.0, "{name}");
            drop(reply);
            armed.store(false, Ordering::Relaxed);
            assert_idle(&limiter);
        });
    }
}

// Case 145.
#[test]
fn a_recorder_that_panics_leaves_no_orphan_in_line() {
    let (armed, hook) = panicking_on("llm_queue_depth");
    hooked(hook, async || {
        let limiter = limiter(1);
        let client = answering(&limiter, |_| ok(endless()));
        let held = send(&client).await.unwrap();
        armed.store(true, Ordering::Relaxed);
        let hit = spawned(&client, chat()).await;
        assert!(!armed.load(Ordering::Relaxed), "it has panicked");
        hit.abort();
        settled().await;
        assert_eq!(figures(&limiter), (1, 0));
        drop(held);
        assert_idle(&limiter);
    });
}

// Case 145.
#[tokio::test(start_paused = true)]
async fn a_listener_may_ask_the_limiter_and_may_panic() {
    use tower_inflight::{Call, CallEvent};

    let limiter = limiter(1);
    let client = answering(&limiter, |_| ok(Script::new([data("a")])));
    for is_queued in [false, true] {
        let held = is_queued.then_some(send(&client).await.unwrap());
        let inside = limiter.clone();
        let call = Call::new(Priority::Default).with_listener(move |event| {
            let _ = inside.snapshot();
            let is_queued_event = matches!(event, CallEvent::Queued { .. });
            assert!(is_queued != is_queued_event, "the listener panics");
        });
        let hit = spawned(&client, with(chat(), call)).await;
        assert!(hit.await.unwrap_err().is_panic());
        drop(held);
        assert_idle(&limiter);
    }
    assert_eq!(fetch(&client).await.unwrap(), "a");
    assert_eq!(outcomes(&limiter)[Outcome::Success.as_str()], 1);
}
