//! Starts a burst of runs over HTTP and follows their events.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::task::JoinSet;
use tower::BoxError;

use crate::models::Model;
use crate::server::{NewRun, Server};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Burst {
    pub(crate) local: usize,
    pub(crate) cloud: usize,
}

pub(crate) struct Outcome {
    runs: Vec<(Model, Duration)>,
    pub(crate) took: Duration,
}

/// Sorted.
pub(crate) struct Waits(Vec<Duration>);

type Http = Client<HttpConnector, Full<Bytes>>;

/// The local ones come first, in twos and twos of each tenant: the worst case for those behind them.
pub(crate) async fn run(server: &Server, burst: Burst) -> Result<Outcome, BoxError> {
    let http: Http = Client::builder(TokioExecutor::new()).build_http();
    #[expect(clippy::disallowed_methods, reason = "an example measures")]
    let began = Instant::now();
    let mut runs = JoinSet::new();
    let models = std::iter::repeat_n(Model::Local, burst.local).chain(std::iter::repeat_n(Model::Cloud, burst.cloud));
    for (n, model) in models.enumerate() {
        let tenant = if n % 4 < 2 { "acme" } else { "umbrella" };
        let new = NewRun { tenant: tenant.to_owned(), user: format!("user-{}", n % 4), model };
        let request = Request::post(format!("{}/runs", server.url()))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(serde_json::to_vec(&new)?))?;
        let http = http.clone();
        runs.spawn(async move { Ok::<_, BoxError>((model, follow(&http, request).await?)) });
        // In this order, over connections of their own.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut outcome = Outcome { runs: Vec::new(), took: Duration::ZERO };
    while let Some(run) = runs.join_next().await {
        outcome.runs.push(run??);
    }
    outcome.took = began.elapsed();
    Ok(outcome)
}

/// How long a run waited in all, by its events.
async fn follow(http: &Http, request: Request<Full<Bytes>>) -> Result<Duration, BoxError> {
    let mut response = http.request(request).await?;
    let mut text = Vec::new();
    let mut waited = 0;
    while let Some(frame) = response.body_mut().frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        text.extend_from_slice(&data);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            let Some(json) = line.strip_prefix(b"data: ") else { continue };
            let event: Value = serde_json::from_slice(json)?;
            match event["event"].as_str() {
                Some("admitted" | "call_admitted") => waited += event["wait_ms"].as_u64().unwrap_or(0),
                Some("cancelled" | "refused") => return Err(format!("a run ended as {event}").into()),
                _ => {}
            }
        }
    }
    Ok(Duration::from_millis(waited))
}

impl Outcome {
    pub(crate) fn waits(&self, model: Model) -> Waits {
        let of_model = self.runs.iter().filter(|(of, _)| *of == model);
        let mut waits: Vec<Duration> = of_model.map(|(_, waited)| *waited).collect();
        waits.sort();
        Waits(waits)
    }
}

impl Waits {
    pub(crate) fn median(&self) -> Option<Duration> {
        self.0.get(self.0.len() / 2).copied()
    }

    pub(crate) fn longest(&self) -> Option<Duration> {
        self.0.last().copied()
    }
}
