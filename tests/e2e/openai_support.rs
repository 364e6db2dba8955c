//! async-openai clients with the limiter.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::error::OpenAIError;
use async_openai::middleware::HttpRequestFactory;
use async_openai::middleware::retry::{OpenAIRetry, OpenAIRetryLayer};
use async_openai::types::chat::{
    ChatCompletionRequestUserMessage, CreateChatCompletionRequest, CreateChatCompletionRequestArgs,
};
use tower::ServiceBuilder;
use tower_inflight::async_openai::{InflightLimitService, OneCall, OneCallLayer, service};
use tower_inflight::{Lane, LaneKey, Limiter};

use super::reply::Reply;
use super::server::Server;

pub(crate) const ANSWER: &str = r#"{"id":"1","object":"chat.completion","created":1,"model":"acme/smart","choices":[{"index":0,"message":{"role":"assistant","content":"fine"},"finish_reason":"stop"}]}"#;
pub(crate) const CHUNK: &str = r#"{"id":"1","object":"chat.completion.chunk","created":1,"model":"acme/smart","choices":[{"index":0,"delta":{"content":"fine"},"finish_reason":null}]}"#;

pub(crate) fn answer() -> Reply {
    Reply::whole(200, ANSWER).header("content-type", "application/json")
}

pub(crate) fn plain() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().expect("a client")
}

pub(crate) fn config(server: &Server) -> OpenAIConfig {
    OpenAIConfig::new().with_api_base(server.url("/v1")).with_api_key("key")
}

/// The limiter alone.
pub(crate) fn client(server: &Server, limiter: &Limiter) -> Client<OpenAIConfig> {
    Client::with_config(config(server)).with_http_service(service(plain(), limiter.clone()))
}

/// With the retry layer outside, as it should be.
pub(crate) fn retrying(server: &Server, limiter: &Limiter) -> Client<OpenAIConfig> {
    Client::with_config(config(server)).with_http_service(retrying_service(2, limiter))
}

pub(crate) type Retrying = OneCall<OpenAIRetry<InflightLimitService>>;

pub(crate) fn retrying_service(retries: usize, limiter: &Limiter) -> Retrying {
    ServiceBuilder::new()
        .layer(OneCallLayer::new())
        .layer(OpenAIRetryLayer::new(retries))
        .service(service(plain(), limiter.clone()))
}

pub(crate) fn chat() -> CreateChatCompletionRequest {
    CreateChatCompletionRequestArgs::default()
        .model("acme/smart")
        .messages([ChatCompletionRequestUserMessage::from("hello").into()])
        .build()
        .expect("a request")
}

/// A factory, and how often it was asked to build.
pub(crate) fn counting(
    build: impl Fn() -> reqwest::RequestBuilder + Send + Sync + 'static,
) -> (HttpRequestFactory, Arc<AtomicUsize>) {
    let builds = Arc::new(AtomicUsize::new(0));
    let counted = builds.clone();
    let factory = HttpRequestFactory::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let request = build().build().map_err(OpenAIError::Reqwest);
        async move { request }
    });
    (factory, builds)
}

pub(crate) fn lane_of(limiter: &Limiter, server: &Server) -> Lane {
    let key = LaneKey::new(format!("http://{}/v1", server.addr()), "acme/smart");
    limiter.lane(&key).expect("the limiter is on")
}
