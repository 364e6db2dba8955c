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
use tower_inflight::{Candidate, InflightLimitLayer, LaneOverride, Limiter, QueueAwareRouter, ResponseBody, Routing};

use crate::support::{Answer, ChatRequest, Gateway, GatewayConfig};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Model {
    Local,
    Cloud,
}

type Http = BoxCloneSyncService<http::Request<Full<Bytes>>, Response<ResponseBody<hyper::body::Incoming>>, BoxError>;

/// Each model by a router of its own. The local one may be stood in for by the cloud, not the other way round.
#[derive(Clone)]
pub(crate) struct Models {
    local: Http,
    cloud: Http,
    pub(crate) limiter: Limiter,
}

impl Models {
    pub(crate) async fn start(routing: Routing) -> Result<(Self, [Gateway; 2]), BoxError> {
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
        let candidates =
            [Candidate::new(local.url())?.with_model("gemma"), Candidate::new(cloud.url())?.with_model("big")];
        let router = |candidates: &[Candidate]| {
            let router = QueueAwareRouter::new(http.clone(), limiter.clone(), candidates.iter().cloned())?;
            Ok::<_, BoxError>(BoxCloneSyncService::new(router.with_routing(routing)))
        };
        let models = Self { local: router(&candidates)?, cloud: router(&candidates[1..])?, limiter: limiter.clone() };
        Ok((models, [local, cloud]))
    }

    /// One turn of an agent.
    pub(crate) async fn ask(&self, model: Model, prompt: &str) -> Result<String, BoxError> {
        let http = match model {
            Model::Local => self.local.clone(),
            Model::Cloud => self.cloud.clone(),
        };
        // The router puts the base URL before it, and the model in.
        let request = ChatRequest { model: "any", prompt, max_tokens: 50 }.to("");
        Answer::new(http.oneshot(request).await?.into_body()).text().await
    }
}
