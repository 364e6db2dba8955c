//! A hyper server on loopback, HTTP/1 and h2c on one port, that answers by script and counts what it sees.

#![allow(dead_code, reason = "shared by test binaries that each use a part")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use super::reply::{Reply, ScriptBody};

/// Requests that are kept to be looked at.
const KEPT: usize = 64;

/// Ends with its value, or with its runtime.
pub(crate) struct Server {
    addr: SocketAddr,
    pub(crate) state: Arc<State>,
    accepting: JoinHandle<()>,
}

pub(crate) struct State {
    script: Box<dyn Fn(&Seen) -> Reply + Send + Sync>,
    counts: Mutex<Counts>,
    requests: Mutex<Vec<Seen>>,
    changed: Notify,
    /// What gates in the scripts wait for.
    pub(crate) gate: Arc<Semaphore>,
}

/// A request as it arrived, whole.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Counted from 0.
    pub(crate) nth: usize,
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Calls are open from their head until the last byte of the answer is handed to the transport, or they are aborted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) total: usize,
    pub(crate) open: usize,
    pub(crate) peak: usize,
    /// Ended by the client before the script did.
    pub(crate) aborted: usize,
    /// Announced with [`Server::client_drops`] and not noticed here yet.
    unnoticed: usize,
    /// The peak without calls that the client had dropped already.
    pub(crate) strict_peak: usize,
}

impl Server {
    /// Answers every request alike.
    pub(crate) async fn answering(reply: Reply) -> Self {
        Self::start(move |_| reply.clone()).await
    }

    /// Gives these answers in turn, and the last one for ever.
    pub(crate) async fn in_turn(replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies: Vec<Reply> = replies.into_iter().collect();
        Self::start(move |seen| replies[seen.nth.min(replies.len() - 1)].clone()).await
    }

    pub(crate) async fn start(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let addr = listener.local_addr().expect("bound");
        let state = Arc::new(State {
            script: Box::new(script),
            counts: Mutex::default(),
            requests: Mutex::default(),
            changed: Notify::new(),
            gate: Arc::new(Semaphore::new(0)),
        });
        let accepting = tokio::spawn(accept(listener, state.clone()));
        Self { addr, state, accepting }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    pub(crate) fn chat_url(&self) -> String {
        self.url("/v1/chat/completions")
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.state.counts.lock().unwrap()
    }

    pub(crate) fn requests(&self) -> Vec<Seen> {
        self.state.requests.lock().unwrap().clone()
    }

    /// Opens `n` gates.
    pub(crate) fn open_gates(&self, n: usize) {
        self.state.gate.add_permits(n);
    }

    /// The client is about to drop a body that this server holds open.
    pub(crate) fn client_drops(&self) {
        self.state.counts.lock().unwrap().unnoticed += 1;
    }

    /// Waits for something that must happen.
    pub(crate) async fn until(&self, what: &str, reached: impl Fn(Counts) -> bool) {
        let waiting = async {
            loop {
                let changed = self.state.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if reached(self.counts()) {
                    return;
                }
                changed.await;
            }
        };
        let bound = std::time::Duration::from_secs(30);
        assert!(tokio::time::timeout(bound, waiting).await.is_ok(), "never came: {what}; {:?}", self.counts());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1().auto_date_header(false);
    // Tests reset streams faster than any honest client.
    http.http2().auto_date_header(false).max_pending_accept_reset_streams(100_000).max_local_error_reset_streams(None);
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let (http, state) = (http.clone(), state.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| serve(request, state.clone()));
            // Clients that hang up are part of the tests.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn serve(request: Request<Incoming>, state: Arc<State>) -> Result<Response<ScriptBody>, Infallible> {
    let (mut open, nth) = Open::new(&state);
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let seen = Seen { nth, method: head.method, uri: head.uri, version: head.version, headers: head.headers, body };
    let reply = (state.script)(&seen);
    if nth < KEPT {
        state.requests.lock().unwrap().push(seen);
    }
    if reply.is_late {
        if let Ok(permit) = state.gate.acquire().await {
            permit.forget();
        }
    }
    if reply.steps.is_empty() {
        open.end();
    }
    Ok(reply.into_response(open, state.gate.clone()))
}

/// One call that is open.
pub(crate) struct Open {
    state: Arc<State>,
    is_over: bool,
}

impl Open {
    fn new(state: &Arc<State>) -> (Self, usize) {
        let nth = state.count(|counts| {
            counts.open += 1;
            counts.peak = counts.peak.max(counts.open);
            counts.strict_peak = counts.strict_peak.max(counts.open.saturating_sub(counts.unnoticed));
            counts.total += 1;
            counts.total - 1
        });
        (Self { state: state.clone(), is_over: false }, nth)
    }

    /// The script is over. Called before the last byte can reach the client.
    pub(crate) fn end(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.state.count(|counts| counts.open -= 1);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.is_over {
            self.state.count(|counts| {
                counts.open -= 1;
                counts.aborted += 1;
                counts.unnoticed = counts.unnoticed.saturating_sub(1);
            });
        }
    }
}

impl State {
    fn count<R>(&self, change: impl FnOnce(&mut Counts) -> R) -> R {
        let result = change(&mut self.counts.lock().unwrap());
        self.changed.notify_waiters();
        result
    }
}
