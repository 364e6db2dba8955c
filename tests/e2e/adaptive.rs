//! Limits that find an upstream which admits four calls and refuses the rest.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tower_inflight::controller::{AimdConfig, KneeConfig};
use tower_inflight::{Limit, Limiter};

use super::support::{assert_idle, lane, within};

const SLOTS: usize = 4;
const SERVICE: Duration = Duration::from_millis(10);
const REFUSAL: &str =
    r#"{"error":{"message":"slow down","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#;
const ANSWER: &str = r#"{"id":"1","object":"chat.completion","created":1,"model":"acme/smart","choices":[{"index":0,"message":{"role":"assistant","content":"fine"},"finish_reason":"stop"}]}"#;

/// Admits [`SLOTS`] at a time, and answers 429 to the rest.
struct Gateway {
    addr: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    open: usize,
    arrivals: Vec<Instant>,
    refusals: Vec<Instant>,
}

impl Gateway {
    async fn start(retry_after: Option<&'static str>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let addr = listener.local_addr().expect("bound");
        let seen = Arc::<Mutex<Seen>>::default();
        let accepting = tokio::spawn(accept(listener, seen.clone(), retry_after));
        Self { addr, seen, accepting }
    }

    fn url(&self) -> String {
        format!("http://{}/v1", self.addr)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, seen: Arc<Mutex<Seen>>, retry_after: Option<&'static str>) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let seen = seen.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| serve(request, seen.clone(), retry_after));
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn serve(
    request: Request<Incoming>,
    seen: Arc<Mutex<Seen>>,
    retry_after: Option<&'static str>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_admitted = seen.lock().unwrap().come();
    let _ = request.into_body().collect().await;
    if is_admitted {
        tokio::time::sleep(SERVICE).await;
        seen.lock().unwrap().open -= 1;
    }
    let mut response = Response::new(Full::from(if is_admitted { ANSWER } else { REFUSAL }));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    if !is_admitted {
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        response.headers_mut().extend(retry_after.map(|value| (RETRY_AFTER, HeaderValue::from_static(value))));
    }
    Ok(response)
}

impl Seen {
    #[expect(clippy::disallowed_methods, reason = "the upstream has a clock of its own")]
    fn come(&mut self) -> bool {
        let now = Instant::now();
        self.arrivals.push(now);
        let is_admitted = self.open < SLOTS;
        if is_admitted {
            self.open += 1;
        } else {
            self.refusals.push(now);
        }
        is_admitted
    }
}

fn aimd() -> Limit {
    Limit::Aimd(AimdConfig { initial_limit: 16, ..AimdConfig::default() })
}

fn adaptive() -> Limit {
    Limit::Adaptive(KneeConfig { initial_limit: 16, ..KneeConfig::default() })
}

fn limiter(limit: Limit) -> Limiter {
    Limiter::builder().limit(limit).interactive_reserve(0).build().expect("valid")
}

/// All at once. Returns the limits as they were when each call was done.
async fn run<C>(limiter: &Limiter, calls: usize, call: impl Fn() -> C) -> Vec<u32>
where
    C: Future<Output = ()> + Send + 'static,
{
    let mut running: JoinSet<()> = (0..calls).map(|_| call()).collect();
    let mut limits = Vec::new();
    while let Some(done) = within(running.join_next()).await {
        done.expect("an answer");
        limits.push(lane(limiter).limit);
    }
    limits
}

/// Every call was answered in the end, with few refusals on the way, and the limit has come down to what is admitted.
fn assert_found(gateway: &Gateway, limiter: &Limiter, limits: &[u32]) {
    assert_eq!(limits.len(), 200);
    assert_eq!(lane(limiter).outcomes["success"], 200);
    assert_idle(limiter);
    let seen = gateway.seen.lock().unwrap();
    let late = &limits[100..];
    let mean = f64::from(late.iter().sum::<u32>()) / 100.0;
    assert!((3.0..=6.0).contains(&mean) && (2..=6).contains(&limits[199]), "{late:?}");
    assert!(seen.refusals.len() < 100, "{} refusals", seen.refusals.len());
}

#[cfg(feature = "reqwest-middleware")]
mod reqwest_retry {
    use super::super::reqwest_support::retrying;
    use super::super::support::JSON;
    use super::*;

    async fn call_all(gateway: &Gateway, limiter: &Limiter, calls: usize) -> Vec<u32> {
        let client = retrying(20, limiter.clone());
        run(limiter, calls, || {
            let request = client.post(format!("{}/chat/completions", gateway.url())).body(JSON);
            async move {
                let response = request.send().await.expect("an answer");
                assert_eq!(response.status(), 200);
                assert_eq!(response.text().await.expect("whole"), ANSWER);
            }
        })
        .await
    }

    #[tokio::test]
    async fn aimd_finds_the_four_that_are_admitted() {
        let (gateway, limiter) = (Gateway::start(None).await, limiter(aimd()));
        let limits = call_all(&gateway, &limiter, 200).await;
        assert_found(&gateway, &limiter, &limits);
    }

    #[tokio::test]
    async fn the_default_finds_the_four_that_are_admitted() {
        let (gateway, limiter) = (Gateway::start(None).await, limiter(adaptive()));
        let limits = call_all(&gateway, &limiter, 200).await;
        assert_found(&gateway, &limiter, &limits);
    }

    /// C4, as the upstream sees it: what arrives before a second has passed was sent before its first refusal came back.
    #[tokio::test]
    async fn nobody_is_sent_before_the_pause_is_over() {
        for limit in [aimd(), adaptive()] {
            let (gateway, limiter) = (Gateway::start(Some("1")).await, limiter(limit));
            call_all(&gateway, &limiter, 24).await;
            assert_idle(&limiter);
            let seen = gateway.seen.lock().unwrap();
            let first = *seen.refusals.first().expect("16 are more than 4");
            let early = seen.arrivals.iter().filter(|&&at| at < first + Duration::from_secs(1)).count();
            assert!((5..=16).contains(&early), "{early} of {}", seen.arrivals.len());
            assert!(seen.arrivals.len() > 16);
        }
    }
}

#[cfg(feature = "async-openai")]
mod openai_retry {
    use async_openai::Client;
    use async_openai::config::OpenAIConfig;

    use super::super::openai_support::{chat, retrying_service};
    use super::*;

    async fn call_all(gateway: &Gateway, limiter: &Limiter, calls: usize) -> Vec<u32> {
        let config = OpenAIConfig::new().with_api_base(gateway.url()).with_api_key("key");
        let client = Client::with_config(config).with_http_service(retrying_service(20, limiter));
        run(limiter, calls, || {
            let client = client.clone();
            async move {
                let answer = client.chat().create(chat()).await.expect("an answer");
                assert_eq!(answer.choices[0].message.content.as_deref(), Some("fine"));
            }
        })
        .await
    }

    #[tokio::test]
    async fn aimd_finds_the_four_that_are_admitted() {
        let (gateway, limiter) = (Gateway::start(None).await, limiter(aimd()));
        let limits = call_all(&gateway, &limiter, 200).await;
        assert_found(&gateway, &limiter, &limits);
    }

    #[tokio::test]
    async fn the_default_finds_the_four_that_are_admitted() {
        let (gateway, limiter) = (Gateway::start(None).await, limiter(adaptive()));
        let limits = call_all(&gateway, &limiter, 200).await;
        assert_found(&gateway, &limiter, &limits);
    }
}
