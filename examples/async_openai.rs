//! A streaming chat through `async-openai`, with its own retry layer outside the limiter.
//!
//! `with_http_service` takes the built-in retries away, so they are added again; each attempt then takes a slot of its own.

#[path = "support/mod.rs"]
mod support;

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::middleware::retry::OpenAIRetryLayer;
use async_openai::types::chat::{ChatCompletionRequestUserMessage, CreateChatCompletionRequestArgs};
use futures_util::StreamExt;
use http::StatusCode;
use support::{Gateway, GatewayConfig, Refusal};
use tower::{BoxError, ServiceBuilder};
use tower_inflight::async_openai::{OneCallLayer, service};
use tower_inflight::{Limiter, Priority};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let busy = Refusal { status: StatusCode::SERVICE_UNAVAILABLE, retry_after: None };
    let gateway = Gateway::start(GatewayConfig { slots: 1, refusals: vec![busy], ..Default::default() }).await;

    let limiter = Limiter::builder().max_inflight(1).build()?;
    let stack = ServiceBuilder::new()
        // Its attempts are one call, with one arrival.
        .layer(OneCallLayer::new())
        .layer(OpenAIRetryLayer::default())
        .service(service(reqwest::Client::new(), limiter));
    let config = OpenAIConfig::new().with_api_base(gateway.url()).with_api_key("unused");
    let client = Client::with_config(config).with_http_service(stack);

    let request = CreateChatCompletionRequestArgs::default()
        .model("acme/smart")
        .messages([ChatCompletionRequestUserMessage::from("Why wait?").into()])
        .max_completion_tokens(24_u32)
        .build()?;
    // The client has no place for a class of the call; the task has.
    let mut answer = Priority::Interactive.scope(client.chat().create_stream(request)).await?;
    while let Some(chunk) = answer.next().await {
        if let Some(text) = chunk?.choices.first().and_then(|choice| choice.delta.content.as_deref()) {
            print!("{text}");
        }
    }
    println!("\ncalls that reached the gateway: {}", gateway.stats().calls);
    Ok(())
}
