//! The two models, and a client that keeps to their slots.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::{Deserialize, Serialize};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceBuilder, ServiceExt};
use tower_inflight::{InflightLimitLayer, LaneOverride, Limiter, ResponseBody};

use crate::support::{Answer, ChatRequest, Gateway, GatewayConfig};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Model {
    Local,
    Cloud,
}

type Http = BoxCloneSyncService<http::Request<Full<Bytes>>, Response<ResponseBody<hyper::body::Incoming>>, BoxError>;

#[derive(Clone)]
pub(crate) struct Models {
    local: String,
    cloud: String,
    http: Http,
    pub(crate) limiter: Limiter,
}

impl Models {
    pub(crate) async fn start() -> Result<(Self, [Gateway; 2]), BoxError> {
        let model = |slots, time_to_first_token| GatewayConfig {
            slots,
            time_to_first_token: Duration::from_millis(time_to_first_token),
            tokens_per_second: 1_000.0,
            ..Default::default()
        };
        let local = Gateway::start(model(1, 50)).await;
        let cloud = Gateway::start(model(64, 50)).await;
        let limiter = Limiter::builder()
            .max_inflight(64)
            .lane(LaneOverride::new(format!("{}|*", local.url())).max_inflight(1).interactive_reserve(0))
            .build()?;
        let http = ServiceBuilder::new()
            .layer(InflightLimitLayer::new(limiter.clone()))
            .service(Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>());
        let http = BoxCloneSyncService::new(http);
        let (local_url, cloud_url) = (local.url().to_owned(), cloud.url().to_owned());
        Ok((Self { local: local_url, cloud: cloud_url, http, limiter }, [local, cloud]))
    }

    /// One turn of an agent.
    pub(crate) async fn ask(&self, model: Model, prompt: &str) -> Result<String, BoxError> {
        let (base, model) = match model {
            Model::Local => (&self.local, "gemma"),
            Model::Cloud => (&self.cloud, "big"),
        };
        let request = ChatRequest { model, prompt, max_tokens: 50 }.to(base);
        Answer::new(self.http.clone().oneshot(request).await?.into_body()).text().await
    }
}
