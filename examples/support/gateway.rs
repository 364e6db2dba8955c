//! An OpenAI-compatible gateway in the same process: a real hyper server on a free port of the loopback.
//!
//! It accepts every connection, serves `slots` calls at a time and lets the others wait inside, first come first
//! served and without a byte of answer. That is how real gateways look from outside when they are full.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use super::slots::{GatewayStats, Slots, Step};

/// How the gateway behaves.
#[derive(Clone, Debug)]
pub(crate) struct GatewayConfig {
    /// Calls served at the same time.
    pub(crate) slots: usize,
    /// From the start of service to the first token.
    pub(crate) time_to_first_token: Duration,
    /// The speed of one slot.
    pub(crate) tokens_per_second: f64,
    /// For calls that do not say `max_tokens`.
    pub(crate) tokens_per_answer: u32,
    /// No answer is longer, whatever its call says.
    pub(crate) longest_answer: u32,
    /// So many tokens leave at once, in one event.
    pub(crate) tokens_per_event: u32,
    /// When the head of an answer leaves.
    pub(crate) head: Head,
    /// The share of answers that fall silent half way and stay so until their client leaves.
    pub(crate) stalled: f64,
    /// How long a client is gone before the gateway notices and stops working for it.
    pub(crate) linger: Duration,
    /// The first calls are refused with these, in this order.
    pub(crate) refusals: Vec<Refusal>,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            slots: 4,
            time_to_first_token: Duration::from_millis(50),
            tokens_per_second: 200.0,
            tokens_per_answer: 30,
            longest_answer: u32::MAX,
            tokens_per_event: 1,
            head: Head::AtOnce,
            stalled: 0.0,
            linger: Duration::from_millis(500),
            refusals: Vec::new(),
        }
    }
}

impl GatewayConfig {
    /// How long an answer of so many tokens occupies a slot.
    pub(crate) fn service_time(&self, tokens: u32) -> Duration {
        self.token_at(tokens)
    }

    /// When the `n`th token is due, counted from the start of service.
    pub(super) fn token_at(&self, n: u32) -> Duration {
        self.time_to_first_token + Duration::from_secs_f64(f64::from(n.saturating_sub(1)) / self.tokens_per_second)
    }
}

/// Gateways differ: some say at once that there will be an answer, others when there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// As soon as the call is being served.
    AtOnce,
    WithFirstToken,
}

/// An answer that is not one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<Duration>,
}

/// A running gateway. Dropping it closes the port; streams that are open then still get their end.
#[derive(Debug)]
pub(crate) struct Gateway {
    url: String,
    slots: Arc<Slots>,
    accepting: JoinHandle<()>,
}

impl Gateway {
    pub(crate) async fn start(config: GatewayConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let slots = Arc::new(Slots::new(config));
        let accepting = tokio::spawn(accept(listener, slots.clone()));
        Self { url: format!("http://{address}/v1"), slots, accepting }
    }

    /// The base URL, as clients want it: `http://127.0.0.1:PORT/v1`.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Behaves otherwise from now on. Calls that are being served go on as they began, and the number of slots stays.
    pub(crate) fn change(&self, change: impl FnOnce(&mut GatewayConfig)) {
        self.slots.change(change);
    }

    pub(crate) fn stats(&self) -> GatewayStats {
        self.slots.stats()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, slots: Arc<Slots>) {
    // Dropped with this task, it tells every connection to finish what it is doing and close.
    let graceful = GracefulShutdown::new();
    while let Ok((stream, _)) = listener.accept().await {
        // Tokens are small packets: with Nagle's algorithm they would leave in clumps.
        let _ = stream.set_nodelay(true);
        let slots = slots.clone();
        let service = service_fn(move |request| route(slots.clone(), request));
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tokio::spawn(graceful.watch(connection));
    }
}

type Reply = Response<BoxBody<Bytes, Infallible>>;

async fn route(slots: Arc<Slots>, request: Request<Incoming>) -> Result<Reply, hyper::Error> {
    match (request.method(), request.uri().path()) {
        (&Method::POST, "/v1/chat/completions") => chat(slots, request).await,
        (&Method::GET, "/v1/models") => Ok(models()),
        _ => Ok(error(StatusCode::NOT_FOUND, "no such route")),
    }
}

#[derive(Deserialize)]
struct Ask {
    model: String,
    #[serde(default)]
    stream: bool,
    #[serde(alias = "max_completion_tokens")]
    max_tokens: Option<u32>,
}

async fn chat(slots: Arc<Slots>, request: Request<Incoming>) -> Result<Reply, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    let Ok(ask) = serde_json::from_slice::<Ask>(&body) else {
        return Ok(error(StatusCode::BAD_REQUEST, "the body is not a chat request"));
    };
    if let Some(refusal) = slots.refuse() {
        return Ok(refuse(refusal));
    }
    let mut steps = slots.serve(tokens_of(&body), ask.max_tokens);
    Ok(match steps.recv().await {
        Some(first) if ask.stream => stream_answer(&ask.model, first, steps),
        Some(_) => whole_answer(&ask.model, steps).await,
        None => error(StatusCode::INTERNAL_SERVER_ERROR, "the call was dropped"),
    })
}

fn stream_answer(model: &str, first: Step, rest: UnboundedReceiver<Step>) -> Reply {
    let rest = stream::unfold(rest, |mut rest| async move { Some((rest.recv().await?, rest)) });
    let model = model.to_owned();
    let frames = stream::iter([first])
        .chain(rest)
        .map(move |step| Ok::<_, Infallible>(Frame::data(Bytes::from(sse_event(&model, &step)))));
    Response::builder()
        .header(header::CONTENT_TYPE, "text/event-stream")
        .body(BodyExt::boxed(StreamBody::new(frames)))
        .expect("the parts are valid")
}

fn sse_event(model: &str, step: &Step) -> String {
    let chunk = |delta: Value| {
        json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
    };
    match step {
        Step::Started => format!("data: {}\n\n", chunk(json!({"role": "assistant", "content": ""}))),
        Step::Tokens(text) => format!("data: {}\n\n", chunk(json!({"content": text}))),
        Step::Done { prompt, tokens } => {
            let mut last = chunk(json!({}));
            last["choices"][0]["finish_reason"] = json!("stop");
            let usage = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": model,
                "choices": [], "usage": usage(*prompt, *tokens)});
            format!("data: {last}\n\ndata: {usage}\n\ndata: [DONE]\n\n")
        }
    }
}

async fn whole_answer(model: &str, mut steps: UnboundedReceiver<Step>) -> Reply {
    let mut text = String::new();
    while let Some(step) = steps.recv().await {
        match step {
            Step::Started => {}
            Step::Tokens(words) => text.push_str(&words),
            Step::Done { prompt, tokens } => {
                let message = json!({"role": "assistant", "content": text});
                let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
                return json_reply(
                    StatusCode::OK,
                    &json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": model,
                        "choices": [choice], "usage": usage(prompt, tokens)}),
                );
            }
        }
    }
    error(StatusCode::INTERNAL_SERVER_ERROR, "the answer was cut")
}

/// What a request counts as: a quarter of its bytes.
fn tokens_of(request: &[u8]) -> u32 {
    u32::try_from(request.len().div_ceil(4)).unwrap_or(u32::MAX)
}

fn usage(prompt: u32, tokens: u32) -> Value {
    json!({"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens})
}

fn models() -> Reply {
    let model = json!({"id": "acme/smart", "object": "model", "created": 0, "owned_by": "acme"});
    json_reply(StatusCode::OK, &json!({"object": "list", "data": [model]}))
}

fn refuse(refusal: Refusal) -> Reply {
    let mut reply = error(refusal.status, "try again later");
    if let Some(wait) = refusal.retry_after {
        reply.headers_mut().insert(header::RETRY_AFTER, wait.as_secs().into());
    }
    reply
}

fn error(status: StatusCode, message: &str) -> Reply {
    json_reply(status, &json!({"error": {"message": message, "type": "gateway_error", "code": status.as_u16()}}))
}

fn json_reply(status: StatusCode, body: &Value) -> Reply {
    Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body.to_string())).boxed())
        .expect("the parts are valid")
}
