//! The metrics, as Prometheus would scrape them.
//!
//! Without buckets the exporter renders the waits as summaries of each process, which cannot be added up; the crate's
//! bucket list reaches from a tenth of a second to the default `queue_timeout`.

#[path = "support/mod.rs"]
mod support;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use metrics_exporter_prometheus::PrometheusBuilder;
use support::{Answer, ChatRequest, Gateway, GatewayConfig};
use tokio::task::JoinSet;
use tower::{BoxError, ServiceBuilder, ServiceExt};
use tower_inflight::{Call, InflightLimitLayer, Limiter, Priority, prometheus};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // Before the first call: a lane takes its metric handles from the recorder that is installed when it is created.
    let scrape = prometheus::buckets(PrometheusBuilder::new(), "llm")?.install_recorder()?;
    prometheus::describe("llm");

    let gateway = Gateway::start(GatewayConfig { slots: 2, ..Default::default() }).await;
    let limiter = Limiter::builder().max_inflight(2).build()?;
    let http = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let client = ServiceBuilder::new().layer(InflightLimitLayer::new(limiter)).service(http);

    let mut calls = JoinSet::new();
    for priority in [Priority::Bulk, Priority::Bulk, Priority::Bulk, Priority::Default, Priority::Interactive] {
        let mut request = ChatRequest { model: "acme/smart", prompt: "Hello", max_tokens: 40 }.to(gateway.url());
        request.extensions_mut().insert(Call::new(priority));
        let client = client.clone();
        calls.spawn(async move { Answer::new(client.oneshot(request).await?.into_body()).text().await });
    }
    while let Some(answer) = calls.join_next().await {
        answer??;
    }
    println!("{}", scrape.render());
    Ok(())
}
