//! What is told on the `tracing` facade. The subscriber is the process's own, so this is a process of its own.

use std::fmt::{Debug, Write as _};
use std::sync::Mutex;

use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use tower::{Service, ServiceExt, service_fn};
use tower_inflight::{BoxError, InflightLimitLayer, Limiter, Quota};
use tower_layer::Layer;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps the warnings of this crate.
struct Warnings;

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tower_inflight" && *metadata.level() == Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        WARNINGS.lock().unwrap().push(text.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

/// Calls that all end well.
async fn call(limiter: &Limiter, model: &str, rest: &str, times: usize) {
    let upstream =
        service_fn(|_: Request<String>| std::future::ready(Ok::<_, BoxError>(Response::new(Empty::<&[u8]>::new()))));
    let mut client = InflightLimitLayer::new(limiter.clone()).layer(upstream);
    for _ in 0..times {
        let body = format!(r#"{{"model":"{model}","messages":[]{rest}}}"#);
        let request = Request::post("https://gw.example/v1/chat/completions").body(body).unwrap();
        let response = client.ready().await.unwrap().call(request).await.expect("it never fails the call");
        response.into_body().collect().await.expect("an answer");
    }
}

// T2.
#[tokio::test(start_paused = true)]
async fn that_calls_do_not_say_how_long_their_answers_may_be_is_told_once_in_each_lane() {
    tracing::subscriber::set_global_default(Warnings).expect("nobody else listens");
    let quota = Quota { tokens_per_minute: Some(1_000_000), max_output: 700, ..Quota::default() };
    let limiter = Limiter::builder().quota(quota).build().unwrap();

    call(&limiter, "acme/says", r#","max_tokens":9"#, 20).await;
    assert_eq!(*WARNINGS.lock().unwrap(), [""; 0]);

    call(&limiter, "acme/silent", "", 20).await;
    call(&limiter, "acme/other", "", 20).await;
    call(&limiter, "acme/silent", "", 20).await;
    let told = WARNINGS.lock().unwrap();
    let lanes = ["lane=https://gw.example/v1|acme/silent ", "lane=https://gw.example/v1|acme/other "];
    assert_eq!(told.len(), lanes.len(), "{told:?}");
    for (told, lane) in told.iter().zip(lanes) {
        assert!(told.contains(lane) && told.contains("max_output=700 "), "{told}");
    }

    let snapshot = limiter.snapshot();
    let admitted: Vec<u64> = snapshot.lanes.iter().map(|lane| lane.quota.unwrap().tokens_admitted).collect();
    assert_eq!(admitted, [20 * 700, 20 * 9, 40 * 700]);
}
