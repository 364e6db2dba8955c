//! A `reqwest-middleware` chain: retries outside, the limiter inside.
//!
//! The first `.with()` is the outermost. Each attempt then takes a slot of its own, and the pause between two attempts
//! holds none.

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use http::StatusCode;
use reqwest_middleware::ClientBuilder;
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;
use serde_json::{Value, json};
use support::{Gateway, GatewayConfig, Refusal, completions_url};
use tower::BoxError;
use tower_inflight::reqwest_middleware::InflightLimitMiddleware;
use tower_inflight::{Admitted, Call, Limiter, Priority};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let busy = Refusal { status: StatusCode::SERVICE_UNAVAILABLE, retry_after: None };
    let gateway = Gateway::start(GatewayConfig { slots: 1, refusals: vec![busy], ..Default::default() }).await;

    let limiter = Limiter::builder().max_inflight(1).build()?;
    let backoff = ExponentialBackoff::builder()
        .retry_bounds(Duration::from_millis(20), Duration::from_secs(1))
        .build_with_max_retries(3);
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(RetryTransientMiddleware::new_with_policy(backoff))
        .with(InflightLimitMiddleware::new(limiter))
        .build();

    let body = json!({"model": "acme/smart", "messages": [{"role": "user", "content": "Why wait?"}]});
    let response = client
        .post(completions_url(gateway.url()))
        // Carried by the chain, not by the request: `client.execute(request)` would start without it. For code that
        // builds its requests elsewhere there is `Priority::Interactive.scope(future)`.
        .with_extension(Call::new(Priority::Interactive))
        .json(&body)
        .send()
        .await?;
    let attempt = response.extensions().get::<Admitted>().map(Admitted::attempt).unwrap_or_default();
    let answer: Value = response.json().await?;
    println!("attempt {attempt}: {}", answer["choices"][0]["message"]["content"]);
    println!("calls that reached the gateway: {}", gateway.stats().calls);
    Ok(())
}
