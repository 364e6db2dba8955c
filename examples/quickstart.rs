//! The least it takes: one limiter around a hyper client.
//!
//! The gateway serves four calls at a time. Six reviews and a chat meet there. At most four calls are open at any moment,
//! the others wait here; one slot is reserved for interactive calls, so the chat goes at once.

#[path = "support/mod.rs"]
mod support;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use support::{Answer, ChatRequest, Gateway, GatewayConfig};
use tokio::task::JoinSet;
use tower::{BoxError, ServiceBuilder, ServiceExt};
use tower_inflight::{Admitted, Call, InflightLimit, InflightLimitLayer, Limiter, Priority};

type LimitedClient = InflightLimit<Client<HttpConnector, Full<Bytes>>>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let gateway = Gateway::start(GatewayConfig { slots: 4, ..Default::default() }).await;

    // One limiter per process: all clients that are built with it wait in the same line.
    let limiter = Limiter::builder().max_inflight(4).build()?;
    let client = ServiceBuilder::new()
        .layer(InflightLimitLayer::new(limiter.clone()))
        .service(Client::builder(TokioExecutor::new()).build_http());

    let mut calls = JoinSet::new();
    for n in 1..=6 {
        calls.spawn(ask(client.clone(), gateway.url().to_owned(), format!("review {n}"), Priority::Bulk));
    }
    calls.spawn(ask(client, gateway.url().to_owned(), "chat".to_owned(), Priority::Interactive));
    while let Some(line) = calls.join_next().await {
        println!("{}", line??);
    }
    println!("most calls open at the gateway: {}", gateway.stats().peak_open);
    Ok(())
}

async fn ask(client: LimitedClient, url: String, prompt: String, priority: Priority) -> Result<String, BoxError> {
    let mut request = ChatRequest { model: "acme/smart", prompt: &prompt, max_tokens: 40 }.to(&url);
    request.extensions_mut().insert(Call::new(priority));
    let response = client.oneshot(request).await?;
    let waited = response.extensions().get::<Admitted>().map(Admitted::waited).unwrap_or_default();
    // The slot is free again when the body has ended, not when the head is here.
    let text = Answer::new(response.into_body()).text().await?;
    Ok(format!("{prompt:8}  waited {:3} ms  \"{:.28}...\"", waited.as_millis(), text))
}
