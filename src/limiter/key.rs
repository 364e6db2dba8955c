//! The name of a lane.

use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::Equivalent;
use serde::{Deserialize, Serialize};

/// What a call asks for.
///
/// ```
/// use tower_inflight::Kind;
///
/// assert_eq!(Kind::Embedding.as_str(), "embedding");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// Text generation: chat, completions, responses, messages.
    #[default]
    Chat,
    /// Embeddings and reranking.
    Embedding,
    /// Image generation and editing.
    Image,
    /// Speech to text and text to speech.
    Audio,
    /// Files, batches, model lists, health checks and all else.
    Other,
}

impl Kind {
    /// The name used in lane names and configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Embedding => "embedding",
            Self::Image => "image",
            Self::Audio => "audio",
            Self::Other => "other",
        }
    }
}

/// The name of a lane: an endpoint, usually a model on it, and the kind of call.
///
/// Lanes with the same endpoint and kind form a *pool*. Shown as `endpoint|model`; a lane without a model as
/// `endpoint|*`, and kinds other than chat add `|kind`. Names shown are escaped and cut after 128 characters of model, so
/// that a hostile model name cannot grow a label; the key itself keeps the name whole.
///
/// Put one into a request's extensions to choose the lane yourself:
///
/// ```
/// use tower_inflight::{Kind, LaneKey};
///
/// let lane = LaneKey::new("https://gw.example/v1", "acme/smart");
/// assert_eq!(lane.to_string(), "https://gw.example/v1|acme/smart");
///
/// let lane = LaneKey::new("https://gw.example/v1", "embed-3").with_kind(Kind::Embedding);
/// assert_eq!(lane.to_string(), "https://gw.example/v1|embed-3|embedding");
///
/// let request = http::Request::get("https://gw.example/").extension(lane).body(())?;
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaneKey {
    endpoint: Arc<str>,
    model: Option<Arc<str>>,
    kind: Kind,
}

impl LaneKey {
    /// A chat lane for `model` on `endpoint`. The endpoint is taken as given: nothing is cut off or folded.
    #[must_use]
    pub fn new(endpoint: impl Into<Arc<str>>, model: impl Into<Arc<str>>) -> Self {
        Self { endpoint: endpoint.into(), model: Some(model.into()), kind: Kind::Chat }
    }

    /// The lane of calls to `endpoint` that name no model.
    #[must_use]
    pub fn without_model(endpoint: impl Into<Arc<str>>) -> Self {
        Self { endpoint: endpoint.into(), model: None, kind: Kind::Chat }
    }

    /// The same lane for another kind of call.
    #[must_use]
    pub fn with_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// The key of the pool that this lane belongs to.
    pub(crate) fn pool(&self) -> Self {
        Self { model: None, ..self.clone() }
    }

    /// The endpoint: a base URL without credentials, query or API suffix, where the key came from a request.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The model, whole.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// What the calls of this lane ask for.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn as_ref(&self) -> LaneRef<'_> {
        LaneRef { endpoint: &self.endpoint, model: self.model.as_deref(), kind: self.kind }
    }
}

impl fmt::Display for LaneKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}

impl fmt::Debug for LaneKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LaneKey({self})")
    }
}

impl Hash for LaneKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_ref().hash(state);
    }
}

/// A borrowed [`LaneKey`], for look-ups that allocate nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneRef<'a> {
    pub(crate) endpoint: &'a str,
    pub(crate) model: Option<&'a str>,
    pub(crate) kind: Kind,
}

impl LaneRef<'_> {
    pub(crate) fn to_key(self) -> LaneKey {
        LaneKey { endpoint: self.endpoint.into(), model: self.model.map(Into::into), kind: self.kind }
    }
}

/// Fewer writes than a derived one makes; both strings are short.
impl Hash for LaneRef<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.endpoint.as_bytes());
        state.write(self.model.unwrap_or_default().as_bytes());
        state.write_u8(self.kind as u8);
    }
}

impl Equivalent<LaneKey> for LaneRef<'_> {
    fn equivalent(&self, key: &LaneKey) -> bool {
        *self == key.as_ref()
    }
}

/// Enough for any model name in use, and short enough for a metric label.
const SHOWN_MODEL_CHARS: usize = 128;
const SHOWN_ENDPOINT_CHARS: usize = 256;

impl fmt::Display for LaneRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_shown(f, self.endpoint, SHOWN_ENDPOINT_CHARS)?;
        f.write_char('|')?;
        match self.model {
            Some(model) => write_shown(f, model, SHOWN_MODEL_CHARS)?,
            None => f.write_char('*')?,
        }
        match self.kind {
            Kind::Chat => Ok(()),
            kind => write!(f, "|{}", kind.as_str()),
        }
    }
}

fn write_shown(f: &mut fmt::Formatter<'_>, text: &str, most: usize) -> fmt::Result {
    for (n, c) in text.chars().enumerate() {
        if n == most {
            return f.write_char('…');
        }
        if c.is_control() || c == '"' || c == '\\' {
            write!(f, "{}", c.escape_default())?;
        } else {
            f.write_char(c)?;
        }
    }
    Ok(())
}
