//! How requests become lanes and responses outcomes: what every adapter to HTTP is configured with.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::header::{CONTENT_LENGTH, HeaderName};
use http::{Extensions, HeaderMap, Method, Uri};

use super::answer_rules::AnswerRules;
use super::estimate::{BytesOverFour, Estimate, TokenEstimator};
use super::lane_key::RequestLane;
use super::peek_body::Peeked;
use crate::engine::quota::Tokens;
use crate::engine::steering::RequestFacts;
use crate::limiter::key::{Kind, LaneKey, LaneRef};
use crate::limiter::{Acquire, Call, Limiter};

/// Vision and agent requests run to tens of megabytes.
const SCAN_LIMIT: usize = 64 * 1024 * 1024;

/// The parts of a request that a lane can be chosen by.
///
/// ```
/// use tower_inflight::{InflightLimitLayer, LaneKey, Limiter};
///
/// // One lane per account and model, where the client says which account it is.
/// let limiter = Limiter::builder().max_inflight(6).build()?;
/// let layer = InflightLimitLayer::new(limiter).lane_by(|head| {
///     let account = head.headers.get("x-account")?.to_str().ok()?;
///     Some(LaneKey::without_model(format!("{}/{account}", head.uri.host()?)))
/// });
/// # let _ = layer;
/// # Ok::<(), tower_inflight::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RequestHead<'a> {
    /// The method.
    pub method: &'a Method,
    /// The URI as the caller wrote it.
    pub uri: &'a Uri,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The extensions.
    pub extensions: &'a Extensions,
}

impl<'a> RequestHead<'a> {
    pub(crate) fn of<Q>(request: &'a http::Request<Q>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }
}

/// Names the model of a request, in its extensions, where neither URI nor body do. The endpoint still comes from the URI.
///
/// ```
/// let request = http::Request::post("https://gw.example/v1/chat/completions")
///     .extension(tower_inflight::Model::new("acme/smart"))
///     .body(())?;
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model(Arc<str>);

impl Model {
    /// The model by this name.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kinds(u8);

impl Kinds {
    pub(crate) const CHAT: Self = Self(1 << Kind::Chat as u8);

    pub(crate) fn of(kinds: impl IntoIterator<Item = Kind>) -> Self {
        Self(kinds.into_iter().fold(0, |set, kind| set | 1 << kind as u8))
    }

    pub(crate) fn contains(self, kind: Kind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }
}

type LaneBy = dyn Fn(RequestHead<'_>) -> Option<LaneKey> + Send + Sync;

#[derive(Clone)]
pub(crate) struct Options {
    limited: Kinds,
    scan_limit: usize,
    lane_by: Option<Arc<LaneBy>>,
    pub(crate) answers: AnswerRules,
    /// By which the upstream is told of deadlines. Shared, since each call keeps it until it is sent.
    pub(crate) deadline_header: Option<Arc<HeaderName>>,
    pub(crate) estimator: Arc<dyn TokenEstimator>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limited: Kinds::CHAT,
            scan_limit: SCAN_LIMIT,
            lane_by: None,
            answers: AnswerRules::default(),
            deadline_header: None,
            estimator: Arc::new(BytesOverFour),
        }
    }
}

impl Options {
    pub(crate) fn limit_kinds(&mut self, kinds: impl IntoIterator<Item = Kind>) {
        self.limited = Kinds::of(kinds);
    }

    pub(crate) fn scan_limit(&mut self, bytes: usize) {
        self.scan_limit = bytes;
    }

    pub(crate) fn lane_by(&mut self, choose: impl Fn(RequestHead<'_>) -> Option<LaneKey> + Send + Sync + 'static) {
        self.lane_by = Some(Arc::new(choose));
    }

    /// The wait for this request's slot; one that is over at once if its kind is not limited.
    pub(crate) fn acquire<'a>(
        &self,
        limiter: &Limiter,
        head: RequestHead<'_>,
        peek: impl FnOnce() -> Option<Peeked<'a>>,
    ) -> Acquire {
        let body = peek();
        let body = body.as_deref();
        if let Some(lane) = self.chosen(head) {
            return self.enter(limiter, lane.as_ref().as_ref(), head, body, None);
        }
        let named = head.extensions.get::<Model>().map(Model::name);
        match RequestLane::derive(head, named, body, self.scan_limit, self.limited) {
            Some(lane) => self.enter(limiter, lane.as_ref(), head, body, lane.asks_for_stream()),
            None => Acquire::passing(head.extensions.get::<Call>()),
        }
    }

    #[inline]
    fn enter(
        &self,
        limiter: &Limiter,
        lane: LaneRef<'_>,
        head: RequestHead<'_>,
        body: Option<&[u8]>,
        asks_for_stream: Option<bool>,
    ) -> Acquire {
        let Some(lane) = limiter.find(lane) else { return Acquire::off() };
        let mut call = head.extensions.get::<Call>().cloned().unwrap_or_else(Call::unnamed);
        let bytes = request_bytes(body, head.headers);
        call.asked.facts = RequestFacts::new(bytes, asks_for_stream);
        if is_named_a_retry(head.headers) {
            call.asked.facts = call.asked.facts.of_a_retry();
        }
        if let Some(unsaid) = lane.unsaid_output() {
            if call.asked.tokens == Tokens::default() {
                let body = body.filter(|body| body.len() <= self.scan_limit);
                let Estimate { input, max_output } = Estimate::of(&*self.estimator, body, bytes);
                let output = max_output.unwrap_or_else(|| lane.assume_output(unsaid));
                call.asked.tokens = Tokens { input, output };
            }
        }
        Acquire::new(lane, call)
    }

    /// What the caller chose goes before what the request says, whatever its kind.
    fn chosen<'a>(&self, head: RequestHead<'a>) -> Option<Cow<'a, LaneKey>> {
        match head.extensions.get::<LaneKey>() {
            Some(lane) => Some(Cow::Borrowed(lane)),
            None => self.lane_by.as_ref().and_then(|choose| choose(head)).map(Cow::Owned),
        }
    }
}

/// How long a request is, as far as that is known before it is sent.
fn request_bytes(body: Option<&[u8]>, headers: &HeaderMap) -> Option<u32> {
    let announced = || headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    body.map(<[u8]>::len).or_else(announced).map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// Clients that retry by themselves say so, where no `Call` is there to count.
fn is_named_a_retry(headers: &HeaderMap) -> bool {
    static RETRY_COUNT: HeaderName = HeaderName::from_static("x-stainless-retry-count");
    headers.get(&RETRY_COUNT).is_some_and(|count| count.as_bytes() != b"0")
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("limited", &self.limited)
            .field("scan_limit", &self.scan_limit)
            .finish_non_exhaustive()
    }
}
