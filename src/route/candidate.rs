//! Where a request may go, and what it has to look like there.

use std::error::Error;
use std::fmt;

use http::header::{CONTENT_LENGTH, HOST};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};

use super::body::{RewriteBody, with_model};
use crate::limiter::key::LaneKey;

/// One of the places that a [`QueueAwareRouter`](crate::QueueAwareRouter) chooses from: a base URL, a model on it, and
/// headers such as its credentials.
///
/// ```
/// use http::HeaderValue;
/// use http::header::AUTHORIZATION;
/// use tower_inflight::{Candidate, LaneKey};
///
/// let cloud = Candidate::new("https://gw.example/v1")?
///     .with_model("acme/smart")
///     .with_header(AUTHORIZATION, HeaderValue::from_static("Bearer secret"));
/// assert_eq!(cloud.lane(), &LaneKey::new("https://gw.example/v1", "acme/smart"));
/// # Ok::<(), tower_inflight::RouteError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Candidate {
    base: Uri,
    model: Option<String>,
    headers: HeaderMap,
    lane: LaneKey,
}

impl Candidate {
    /// A place by its base URL. Path and query of each request are put after it.
    ///
    /// # Errors
    /// It is no URL with a scheme and a host.
    pub fn new(base: &str) -> Result<Self, RouteError> {
        let invalid = || RouteError::InvalidBase(base.to_owned());
        let uri: Uri = base.parse().map_err(|_| invalid())?;
        if uri.scheme().is_none() || uri.authority().is_none() || uri.query().is_some() {
            return Err(invalid());
        }
        let lane = LaneKey::without_model(base.trim_end_matches('/'));
        Ok(Self { base: uri, model: None, headers: HeaderMap::new(), lane })
    }

    /// The model to ask for, in place of the one in the body. The lane becomes that of base URL and model.
    #[must_use]
    pub fn with_model(self, model: impl Into<String>) -> Self {
        let model = model.into();
        let lane = LaneKey::new(self.lane.endpoint(), model.as_str());
        Self { model: Some(model), lane, ..self }
    }

    /// A header that requests have here, in place of their own by that name.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// The lane to go through, if not that of base URL and model.
    #[must_use]
    pub fn with_lane(self, lane: LaneKey) -> Self {
        Self { lane, ..self }
    }

    /// The lane that its calls go through.
    #[must_use]
    pub fn lane(&self) -> &LaneKey {
        &self.lane
    }

    /// Makes the request one for this place. The lane goes with it, so nobody reads the body for it again.
    pub(super) fn rewrite<Q: RewriteBody>(&self, request: Request<Q>) -> Result<Request<Q>, RouteError> {
        let (mut head, mut body) = request.into_parts();
        head.uri = self.uri(&head.uri)?;
        head.headers.remove(HOST);
        for (name, value) in &self.headers {
            head.headers.insert(name.clone(), value.clone());
        }
        if let Some((rewritten, length)) = self.model.as_deref().and_then(|model| with_model(&body, model)) {
            body = rewritten;
            if head.headers.contains_key(CONTENT_LENGTH) {
                head.headers.insert(CONTENT_LENGTH, length.into());
            }
        }
        head.extensions.insert(self.lane.clone());
        Ok(Request::from_parts(head, body))
    }

    fn uri(&self, of: &Uri) -> Result<Uri, RouteError> {
        let rest = of.path_and_query().map_or("/", PathAndQuery::as_str);
        let path = format!("{}{rest}", self.base.path().trim_end_matches('/'));
        let mut parts = self.base.clone().into_parts();
        parts.path_and_query = Some(path.parse().map_err(|_| RouteError::InvalidPath(path))?);
        Uri::from_parts(parts).map_err(|_| RouteError::InvalidBase(self.base.to_string()))
    }
}

/// A route that leads nowhere.
///
/// ```
/// use tower_inflight::{Candidate, RouteError};
///
/// let error = Candidate::new("/v1").unwrap_err();
/// assert_eq!(error, RouteError::InvalidBase("/v1".to_owned()));
/// assert_eq!(error.to_string(), "the base URL \"/v1\" of a candidate has no scheme and host, or a query");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RouteError {
    /// There is nothing to choose from.
    NoCandidates,
    /// The base URL of a candidate is none.
    InvalidBase(String),
    /// Base URL and path of a request together are no URL.
    InvalidPath(String),
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCandidates => f.write_str("a router needs at least one candidate"),
            Self::InvalidBase(base) => {
                write!(f, "the base URL {base:?} of a candidate has no scheme and host, or a query")
            }
            Self::InvalidPath(path) => write!(f, "{path:?} is no path of a URL"),
        }
    }
}

impl Error for RouteError {}
