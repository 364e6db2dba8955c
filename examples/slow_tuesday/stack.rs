//! The client: everything on.

use tower::retry::RetryLayer;
use tower::util::BoxCloneService;
use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};
use tower_inflight::controller::{AimdConfig, LatencyTarget};
use tower_inflight::{
    Admitted, Aging, BreakerConfig, Call, CallLayer, InflightLimitLayer, Limit, LimitConfig, Limiter, Quota,
    RetryBudget, RetryRatio,
};

use crate::caller::{Retry, Ticket};
use crate::load::RESERVED_TOKENS;
use crate::record::Recorder;
use crate::scale::{CALLS, MINUTE, seconds};
use crate::support::{Answer, HttpRequest, Wire, http_client};

pub(crate) type Client = BoxCloneService<HttpRequest, (), BoxError>;

pub(crate) const QUOTA_PER_MINUTE: u64 = 8_000_000;
pub(crate) const BURST_S: f64 = 10.0;
pub(crate) const MAX_LIMIT: u32 = 80;
pub(crate) const MAX_QUEUE: u32 = 500;
pub(crate) const PROBES: u32 = 4;
pub(crate) const RETRY_RATIO: f64 = 0.1;

/// Every duration here is the default, or what one would set for such a model, on the scale of the day.
fn config() -> LimitConfig {
    let mut config = LimitConfig::default();
    config.limit = Limit::Aimd(AimdConfig {
        initial_limit: 40,
        min_limit: 20,
        max_limit: MAX_LIMIT,
        increase: 2,
        cut_window: seconds(10.0),
        latency: Some(LatencyTarget {
            first_byte: Some(seconds(2.0)),
            window: seconds(10.0),
            ..LatencyTarget::default()
        }),
        ..AimdConfig::default()
    });
    config.interactive_reserve = 4;
    config.quota = Some(Quota {
        tokens_per_minute: Some(quota_per_real_minute()),
        burst: seconds(BURST_S),
        max_output: RESERVED_TOKENS,
        ..Quota::default()
    });
    config.max_queue = MAX_QUEUE;
    config.max_queue_per_class = Some(MAX_QUEUE / 2);
    config.aging_step = Aging::Every(MINUTE);
    config.first_byte_timeout = Some(seconds(20.0));
    config.idle_timeout = Some(seconds(10.0));
    config.breaker = Some(BreakerConfig {
        failure_rate: 0.15,
        min_calls: 20,
        window: MINUTE,
        open_for: seconds(20.0),
        max_open_for: MINUTE,
        probes: PROBES,
        probe_timeout: MINUTE,
        ..BreakerConfig::default()
    });
    config.retry_budget = Some(RetryBudget::Ratio(RetryRatio { ratio: RETRY_RATIO, per_second: 0.0, window: MINUTE }));
    config
}

/// The limiter's clock knows of no other minute than the real one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a quota, far below 2^52")]
fn quota_per_real_minute() -> u64 {
    (QUOTA_PER_MINUTE as f64 / CALLS * 60.0 / MINUTE.as_secs_f64()) as u64
}

pub(crate) fn limiter(recorder: &Recorder) -> Result<Limiter, BoxError> {
    let recorder = recorder.clone();
    Ok(Limiter::builder().config(config()).on_change(move |change| recorder.changed(change)).build()?)
}

pub(crate) fn client(limiter: Limiter, wire: &Wire, recorder: &Recorder) -> Client {
    let sending = recorder.clone();
    let http = ServiceBuilder::new()
        .map_request(move |request: HttpRequest| {
            let attempt = request.extensions().get::<Ticket>().map_or(1, Ticket::sent);
            sending.sent(attempt);
            request
        })
        .service(http_client(wire));
    let limited = ServiceBuilder::new().layer(InflightLimitLayer::new(limiter)).service(http);
    let recorder = recorder.clone();
    let whole = service_fn(move |request: HttpRequest| {
        let (limited, recorder) = (limited.clone(), recorder.clone());
        async move {
            let class = request.extensions().get::<Call>().and_then(Call::priority).unwrap_or_default();
            let asked_at = recorder.now();
            let response = limited.oneshot(request).await?;
            if let Some(admitted) = response.extensions().get::<Admitted>() {
                recorder.waited(class, admitted.waited());
            }
            if !response.status().is_success() {
                return Err(format!("the model said {}", response.status()).into());
            }
            let mut answer = Answer::new(response.into_body());
            answer.next().await?;
            recorder.first_token(class, recorder.now() - asked_at);
            while answer.next().await?.is_some() {}
            Ok::<(), BoxError>(())
        }
    });
    let retry = RetryLayer::new(Retry::new());
    BoxCloneService::new(ServiceBuilder::new().layer(CallLayer::new()).layer(retry).service(whole))
}
