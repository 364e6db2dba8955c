//! reqwest-middleware clients with the limiter, and without.

use std::time::Duration;

use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, RequestBuilder};
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;
use tower_inflight::reqwest_middleware::InflightLimitMiddleware;
use tower_inflight::{InflightLimitLayer, Limiter};

use super::server::Server;
use super::support::JSON;

pub(crate) fn plain() -> reqwest::Client {
    plain_with(reqwest::Client::builder())
}

pub(crate) fn plain_h2() -> reqwest::Client {
    plain_with(reqwest::Client::builder().http2_prior_knowledge())
}

pub(crate) fn plain_with(builder: reqwest::ClientBuilder) -> reqwest::Client {
    builder.no_proxy().build().expect("a client")
}

pub(crate) fn chain(client: reqwest::Client, layer: impl Into<InflightLimitLayer>) -> ClientWithMiddleware {
    ClientBuilder::new(client).with(InflightLimitMiddleware::new(layer)).build()
}

/// With the retry layer outside, as it should be.
pub(crate) fn retrying(retries: u32, layer: impl Into<InflightLimitLayer>) -> ClientWithMiddleware {
    ClientBuilder::new(plain())
        .with(RetryTransientMiddleware::new_with_policy(backoff(retries)))
        .with(InflightLimitMiddleware::new(layer))
        .build()
}

pub(crate) fn backoff(retries: u32) -> ExponentialBackoff {
    let bounds = (Duration::from_millis(1), Duration::from_millis(2));
    ExponentialBackoff::builder().retry_bounds(bounds.0, bounds.1).build_with_max_retries(retries)
}

pub(crate) fn chat(client: &ClientWithMiddleware, server: &Server) -> RequestBuilder {
    client.post(server.chat_url()).body(JSON)
}

pub(crate) fn lane_of(limiter: &Limiter, server: &Server) -> tower_inflight::Lane {
    let key = tower_inflight::LaneKey::new(format!("http://{}/v1", server.addr()), "acme/smart");
    limiter.lane(&key).expect("the limiter is on")
}
