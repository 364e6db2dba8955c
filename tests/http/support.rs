//! Bodies written out frame by frame, upstreams that answer with them, and looks at the limiter.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use tokio::time::{Instant, Sleep};
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt, service_fn};
use tower_inflight::{
    BoxError, InflightLimitLayer, LaneSnapshot, Limiter, LimiterBuilder, Outcome, RejectKind, Rejected, ResponseBody,
};
use tower_layer::Layer;

pub(crate) const LANE: &str = "https://gw.example/v1|m";

pub(crate) type Query = Request<Full<Bytes>>;
pub(crate) type Reply = Response<ResponseBody<Script>>;
pub(crate) type Client = BoxCloneSyncService<Query, Reply, BoxError>;

/// What a scripted body does when it is polled.
pub(crate) enum Step {
    Data(Bytes),
    Trailers(HeaderMap),
    Fail(Reset),
    Wait(Duration),
    /// For ever.
    Silence,
    Panic,
}

pub(crate) fn data(bytes: impl Into<Bytes>) -> Step {
    Step::Data(bytes.into())
}

pub(crate) fn wait(secs: u64) -> Step {
    Step::Wait(Duration::from_secs(secs))
}

pub(crate) fn trailers() -> Step {
    Step::Trailers(HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]))
}

/// A transport error with a source.
#[derive(Debug)]
pub(crate) struct Reset {
    pub(crate) id: u32,
    pub(crate) source: std::io::Error,
}

pub(crate) fn reset(id: u32) -> Reset {
    Reset { id, source: std::io::Error::new(std::io::ErrorKind::ConnectionReset, "by peer") }
}

impl fmt::Display for Reset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reset {}", self.id)
    }
}

impl Error for Reset {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

/// Runs a closure when it is dropped.
pub(crate) struct OnDrop(Option<Box<dyn FnOnce() + Send + Sync>>);

pub(crate) fn on_drop(run: impl FnOnce() + Send + Sync + 'static) -> OnDrop {
    OnDrop(Some(Box::new(run)))
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some(run) = self.0.take() {
            run();
        }
    }
}

/// A body that does one step after the other, and then ends.
pub(crate) struct Script {
    steps: VecDeque<Step>,
    length: Option<u64>,
    tells_end: bool,
    polls: Arc<AtomicUsize>,
    timer: Option<Pin<Box<Sleep>>>,
    open: Option<OnDrop>,
    _at_drop: Option<OnDrop>,
}

impl Script {
    pub(crate) fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        let steps = steps.into_iter().collect();
        Self { steps, length: None, tells_end: false, polls: Arc::default(), timer: None, open: None, _at_drop: None }
    }

    /// Its `size_hint` is exact.
    pub(crate) fn sized(self) -> Self {
        let length: usize =
            self.steps.iter().map(|step| if let Step::Data(data) = step { data.len() } else { 0 }).sum();
        Self { length: u64::try_from(length).ok(), ..self }
    }

    /// Its `is_end_stream` is true as soon as nothing comes any more.
    pub(crate) fn telling_end(self) -> Self {
        Self { tells_end: true, ..self }
    }

    pub(crate) fn counted_by(self, polls: &Arc<AtomicUsize>) -> Self {
        Self { polls: polls.clone(), ..self }
    }

    /// Keeps `open` until its last frame, its error or its drop.
    pub(crate) fn while_open(self, open: OnDrop) -> Self {
        Self { open: Some(open), ..self }
    }

    pub(crate) fn at_drop(self, run: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { _at_drop: Some(on_drop(run)), ..self }
    }
}

impl Script {
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Reset>>> {
        loop {
            if let Some(timer) = &mut self.timer {
                ready!(timer.as_mut().poll(cx));
                self.timer = None;
            }
            let frame = match self.steps.pop_front() {
                None => return Poll::Ready(None),
                Some(Step::Data(data)) => {
                    let length = u64::try_from(data.len()).unwrap();
                    self.length = self.length.map(|left| left - length);
                    Ok(Frame::data(data))
                }
                Some(Step::Trailers(trailers)) => Ok(Frame::trailers(trailers)),
                Some(Step::Fail(error)) => Err(error),
                Some(Step::Panic) => panic!("the body panics"),
                Some(Step::Silence) => {
                    self.steps.push_front(Step::Silence);
                    return Poll::Pending;
                }
                Some(Step::Wait(time)) => {
                    self.timer = Some(Box::pin(tokio::time::sleep(time)));
                    continue;
                }
            };
            return Poll::Ready(Some(frame));
        }
    }
}

impl Body for Script {
    type Data = Bytes;
    type Error = Reset;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Reset>>> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        let item = ready!(self.poll_step(cx));
        let is_last = !matches!(&item, Some(Ok(frame)) if frame.is_data());
        if is_last || self.is_end_stream() {
            self.open = None;
        }
        Poll::Ready(item)
    }

    fn is_end_stream(&self) -> bool {
        self.tells_end && self.steps.is_empty() && self.timer.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// A success that says what it is, as they do: what does not is not read.
pub(crate) fn ok(script: Script) -> Response<Script> {
    let mut response = Response::new(script);
    response.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
    response
}

pub(crate) fn status(code: u16, script: Script) -> Response<Script> {
    let mut response = Response::new(script);
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

pub(crate) fn busy(retry_after: &str) -> Response<Script> {
    let mut response = status(429, Script::new([data("slow down")]).sized().telling_end());
    response.headers_mut().insert("retry-after", retry_after.parse().unwrap());
    response
}

/// A stream that goes on until it is dropped.
pub(crate) fn endless() -> Script {
    Script::new([data("data: 1\n\n"), data("data: 2\n\n"), Step::Silence])
}

pub(crate) fn slots(max: u32) -> LimiterBuilder {
    Limiter::builder().max_inflight(max).interactive_reserve(0)
}

pub(crate) fn limiter(max: u32) -> Limiter {
    slots(max).build().unwrap()
}

/// A client whose upstream answers at once.
pub(crate) fn answering(
    limiter: &Limiter,
    answer: impl Fn(Query) -> Response<Script> + Clone + Send + Sync + 'static,
) -> Client {
    client(limiter, move |query| ready(Ok(answer(query))))
}

pub(crate) fn client<R>(limiter: &Limiter, answer: impl Fn(Query) -> R + Clone + Send + Sync + 'static) -> Client
where
    R: Future<Output = Result<Response<Script>, BoxError>> + Send + 'static,
{
    over(limiter, service_fn(answer))
}

pub(crate) fn over<S>(limiter: &Limiter, upstream: S) -> Client
where
    S: Service<Query, Response = Response<Script>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    BoxCloneSyncService::new(InflightLimitLayer::new(limiter.clone()).layer(upstream))
}

pub(crate) fn chat() -> Query {
    asking("m")
}

pub(crate) fn asking(model: &str) -> Query {
    post("/v1/chat/completions", format!(r#"{{"model":"{model}"}}"#))
}

pub(crate) fn post(path: &str, body: impl Into<Bytes>) -> Query {
    Request::post(format!("https://gw.example{path}")).body(Full::new(body.into())).unwrap()
}

pub(crate) fn with<T: Clone + Send + Sync + 'static>(mut query: Query, extension: T) -> Query {
    query.extensions_mut().insert(extension);
    query
}

pub(crate) async fn send(client: &Client) -> Result<Reply, BoxError> {
    client.clone().oneshot(chat()).await
}

pub(crate) async fn send_query(client: &Client, query: Query) -> Result<Reply, BoxError> {
    client.clone().oneshot(query).await
}

/// A call in a task of its own that has had the time to reach its place in line.
pub(crate) async fn spawned(client: &Client, query: Query) -> tokio::task::JoinHandle<Result<Reply, BoxError>> {
    let task = tokio::spawn(client.clone().oneshot(query));
    settled().await;
    task
}

/// Sends, and reads to the end.
pub(crate) async fn fetch(client: &Client) -> Result<Bytes, BoxError> {
    read(send(client).await?).await
}

pub(crate) async fn read(reply: Reply) -> Result<Bytes, BoxError> {
    reply.into_body().collect().await.map(http_body_util::Collected::to_bytes)
}

/// Gives every other task the time to do what it can without waiting.
pub(crate) async fn settled() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn sleep(secs: f64) {
    tokio::time::sleep(Duration::from_secs_f64(secs)).await;
}

#[expect(clippy::disallowed_methods, reason = "the paused clock of a test")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Seconds of the paused clock since `start`, to the millisecond.
pub(crate) fn since(start: Instant) -> f64 {
    (now() - start).as_millis() as f64 / 1000.0
}

/// The only lane there is.
pub(crate) fn lane(limiter: &Limiter) -> LaneSnapshot {
    let mut lanes = limiter.snapshot().lanes;
    assert_eq!(lanes.len(), 1, "{lanes:?}");
    lanes.remove(0)
}

pub(crate) fn in_flight(limiter: &Limiter) -> u32 {
    lane(limiter).inflight
}

/// Calls in flight, calls in line.
pub(crate) fn figures(limiter: &Limiter) -> (u32, u32) {
    let lane = lane(limiter);
    (lane.inflight, lane.queued)
}

pub(crate) fn outcomes(limiter: &Limiter) -> BTreeMap<&'static str, u64> {
    lane(limiter).outcomes
}

pub(crate) fn only(outcome: Outcome, count: u64) -> BTreeMap<&'static str, u64> {
    BTreeMap::from([(outcome.as_str(), count)])
}

/// Nothing is held, nobody waits, and every call that ever came is accounted for.
pub(crate) fn assert_idle(limiter: &Limiter) {
    for lane in limiter.snapshot().lanes {
        assert_eq!((lane.inflight, lane.queued), (0, 0), "{lane:?}");
        assert_balanced(&lane);
    }
}

pub(crate) fn assert_balanced(lane: &LaneSnapshot) {
    let left: u64 = lane.outcomes.values().chain(lane.refused.values()).sum();
    let there = u64::from(lane.inflight) + u64::from(lane.queued);
    assert_eq!(lane.offered, left + lane.abandoned + there, "{lane:?}");
}

pub(crate) fn rejected<T>(result: Result<T, BoxError>) -> Rejected {
    let error = result.err().expect("refused");
    Rejected::find(&*error).expect("one of ours")
}

pub(crate) fn reject_kind<T>(result: Result<T, BoxError>) -> RejectKind {
    rejected(result).kind()
}

/// Seconds until the lane's pause is over, at least `asked` and no more than a second later: the end is jittered, and
/// only ever added to.
pub(crate) fn assert_paused(limiter: &Limiter, asked: f64) {
    let left = lane(limiter).paused_until_s;
    assert!(left.is_some_and(|left| (asked..=asked + 1.0).contains(&left)), "{left:?} where {asked} was asked for");
}
