//! Which lane a request belongs to, from its method, URI, headers and body.
//!
//! # Endpoint
//!
//! `scheme://host[:port]/base`: what a user would configure as the base URL of a client, so that all calls to one provider
//! share it. Scheme and host are lower-case; the scheme's default port, userinfo and query are dropped; empty path segments
//! are folded away; the first of these that the path ends with is cut off:
//!
//! | path after the base | kind | model |
//! |---|---|---|
//! | `openai/deployments/NAME/…` (keeps `openai`) | that of `…` | `NAME` |
//! | `models/NAME:verb`, `tunedModels/NAME:verb`, `endpoints/NAME:verb` | by verb, then by name | `NAME` |
//! | `model/ID/verb` | by verb, then by name | `ID`, up to the last known verb |
//! | `chat/completions`, `completions`, `fim/completions`, `complete`, `responses`, `responses/compact`, `messages` | chat | body |
//! | `embeddings`, `rerank` | embedding | body |
//! | `generate`, `generate_stream` | chat | body |
//! | `api/chat`, `api/generate` | chat | body |
//! | `api/embed`, `api/embeddings` | embedding | body |
//! | `api/tags`, `api/show` and Ollama's other house-keeping | other | body |
//! | `vN/chat`, `vN/embed` (keeps `vN`) | chat, embedding | body |
//! | `images/…` | image | body |
//! | `audio/…` | audio | body |
//! | `models…`, `files…`, `batches…`, `moderations…` and the other collections; `messages/…`, `responses/…`, `chat/completions/…` | other | body |
//!
//! A match right after a version (`v1`, `v1beta`) or `openai` goes before one elsewhere, so that an id further down the path
//! is never taken for an operation. Of an unknown path nothing is cut off. A relative URI takes the `Host` header in place
//! of scheme and host, and has only a path without one.
//!
//! # Kind
//!
//! As in the table, but chat needs a POST: looking up or deleting a stored answer generates nothing. Counting tokens is
//! other. Where one verb serves models of all sorts (`invoke`, `predict`), the name of the model decides. A POST to an
//! unknown path or verb is chat if it names a model, else other, as is everything else.
//!
//! # Model
//!
//! From the path where the table says so: there the service routes by the path alone, whatever the body says. Segments are
//! split before they are decoded, and decoded once; a name that does not decode to UTF-8 stays as it is. Else from the body,
//! see [`model_scan`](super::model_scan), unless it is multipart (a `model` form field is not looked for), says that it is
//! encoded (with a `content-encoding` other than `identity`, whether or not that is true), or is longer than the limit. The
//! content type is not asked otherwise.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST};
use http::uri::Authority;
use http::{HeaderMap, Method, Uri};
use smallvec::SmallVec;

use super::model_scan::top_level;
use super::options::{Kinds, RequestHead};
use crate::limiter::key::{Kind, LaneRef};

/// The lane of one request, borrowed from it where that is possible.
pub(crate) struct RequestLane<'a> {
    endpoint: Endpoint,
    model: Option<Cow<'a, str>>,
    kind: Kind,
    asks_for_stream: Option<bool>,
}

impl<'a> RequestLane<'a> {
    /// `None` for a kind that is not limited. Never fails: what is missing or unreadable is left out of the lane.
    ///
    /// A model named by the caller goes before those of path and body.
    pub(crate) fn derive(
        head: RequestHead<'a>,
        named: Option<&'a str>,
        body: Option<&'a [u8]>,
        scan_limit: usize,
        limited: Kinds,
    ) -> Option<Self> {
        let RequestHead { method, uri, headers, .. } = head;
        let segments = segments(uri.path());
        let Route { base, model, asks } = Route::of(method, &segments);
        if matches!(asks, Asks::For(kind) if !limited.contains(kind)) {
            return None;
        }
        let mut asks_for_stream = None;
        let model = named.map(Cow::Borrowed).or(model).or_else(|| {
            let said = top_level(body.filter(|body| body.len() <= scan_limit && is_scanned(headers))?);
            asks_for_stream = said.stream;
            said.model
        });
        let kind = kind(method, asks, model.as_deref());
        let model = model.filter(|model| model.len() <= MODEL_BYTES);
        let endpoint = Endpoint::new(uri, headers, &segments[..base]);
        limited.contains(kind).then_some(Self { endpoint, model, kind, asks_for_stream })
    }

    /// As far as its body had to be read.
    pub(crate) fn asks_for_stream(&self) -> Option<bool> {
        self.asks_for_stream
    }

    pub(crate) fn as_ref(&self) -> LaneRef<'_> {
        LaneRef { endpoint: self.endpoint.as_str(), model: self.model.as_deref(), kind: self.kind }
    }
}

/// Longer paths than any API has; Vertex needs nine segments.
type Segments<'a> = SmallVec<[&'a str; 16]>;

fn segments(path: &str) -> Segments<'_> {
    // By bytes: a search for a character is made for longer texts than a segment.
    let mut segments = Segments::new();
    let mut start = 0;
    for (at, byte) in path.bytes().enumerate() {
        if byte == b'/' {
            if at > start {
                segments.push(&path[start..at]);
            }
            start = at + 1;
        }
    }
    if path.len() > start {
        segments.push(&path[start..]);
    }
    segments
}

fn is_scanned(headers: &HeaderMap) -> bool {
    let is_multipart = headers.get(CONTENT_TYPE).is_some_and(|value| {
        let value = value.as_bytes().trim_ascii_start();
        value.get(..MULTIPART.len()).is_some_and(|start| start.eq_ignore_ascii_case(MULTIPART))
    });
    let codings =
        headers.get_all(CONTENT_ENCODING).iter().flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    let is_encoded = codings.map(<[u8]>::trim_ascii).any(|it| !it.is_empty() && !it.eq_ignore_ascii_case(b"identity"));
    !is_multipart && !is_encoded
}

/// Lanes keep their names, and there may be as many lanes as names: one that no model has makes none of its own.
const MODEL_BYTES: usize = 16 * 1024;

const MULTIPART: &[u8] = b"multipart/";

/// What the path says.
struct Route<'a> {
    /// How many segments belong to the endpoint.
    base: usize,
    model: Option<Cow<'a, str>>,
    asks: Asks,
}

#[derive(Clone, Copy)]
enum Asks {
    For(Kind),
    ToGenerate,
    /// One verb for models of all sorts.
    ByName,
    Unknown,
}

fn kind(method: &Method, asks: Asks, model: Option<&str>) -> Kind {
    match (asks, model) {
        (Asks::For(kind), _) => kind,
        _ if method != Method::POST => Kind::Other,
        (Asks::ToGenerate, _) | (Asks::Unknown, Some(_)) => Kind::Chat,
        (Asks::ByName, model) => kind_by_name(model.unwrap_or_default()),
        (Asks::Unknown, None) => Kind::Other,
    }
}

/// By what the model families that do not generate text have in their names.
fn kind_by_name(model: &str) -> Kind {
    let has_any = |parts: &[&str]| parts.iter().any(|part| model.contains(part));
    if has_any(&["embed", "rerank"]) {
        Kind::Embedding
    } else if has_any(&["imagen", "titan-image", "nova-canvas", "stability."]) {
        Kind::Image
    } else {
        Kind::Chat
    }
}

impl<'a> Route<'a> {
    fn of(method: &Method, path: &[&'a str]) -> Self {
        Self::azure(path)
            .or_else(|| Self::google(method, path))
            .or_else(|| Self::bedrock(path))
            .or_else(|| operation(path).map(|(base, asks)| Self { base, model: None, asks }))
            .unwrap_or(Self { base: path.len(), model: None, asks: Asks::Unknown })
    }

    fn azure(path: &[&'a str]) -> Option<Self> {
        let at = path.windows(2).position(|pair| pair == ["openai", "deployments"])?;
        let [name, rest @ ..] = &path[at + 2..] else { return None };
        if rest.is_empty() {
            return None;
        }
        let asks = operation(rest).map_or(Asks::Unknown, |(_, asks)| asks);
        Some(Self { base: at + 1, model: named(decode(name)), asks })
    }

    fn google(method: &Method, path: &[&'a str]) -> Option<Self> {
        let [base @ .., "models" | "tunedModels" | "endpoints", last] = path else { return None };
        let (name, verb) = [":", "%3A", "%3a"].iter().find_map(|colon| last.rsplit_once(colon))?;
        let asks = match google_verb(verb) {
            Some(asks) => asks,
            // Not a GET: OpenAI's fine-tuned models have colons in their names, `models/ft:base:org::id`.
            None if method == Method::POST && verb.bytes().all(|byte| byte.is_ascii_alphabetic()) => Asks::Unknown,
            None => return None,
        };
        Some(Self { base: base.len(), model: named(decode(name)), asks })
    }

    /// An ARN has slashes: literal or encoded, it is the same model.
    fn bedrock(path: &[&'a str]) -> Option<Self> {
        let base = path.iter().position(|&segment| segment == "model")?;
        let (end, asks) = (0..path.len()).rev().find_map(|at| Some((at, bedrock_verb(path[at])?)))?;
        let id = match path.get(base + 1..end)? {
            [] => return None,
            [id] => decode(id),
            parts => Cow::Owned(decode(&parts.join("/")).into_owned()),
        };
        Some(Self { base, model: named(id), asks })
    }
}

fn google_verb(verb: &str) -> Option<Asks> {
    Some(match verb {
        "generateContent" | "streamGenerateContent" | "rawPredict" | "streamRawPredict" => Asks::ToGenerate,
        "embedContent" | "batchEmbedContents" | "asyncBatchEmbedContent" => Asks::For(Kind::Embedding),
        "predict" | "serverStreamingPredict" | "predictLongRunning" => Asks::ByName,
        "countTokens" | "computeTokens" | "batchGenerateContent" => Asks::For(Kind::Other),
        _ => return None,
    })
}

fn bedrock_verb(verb: &str) -> Option<Asks> {
    Some(match verb {
        "invoke" | "invoke-with-response-stream" => Asks::ByName,
        "converse" | "converse-stream" => Asks::ToGenerate,
        "count-tokens" => Asks::For(Kind::Other),
        _ => return None,
    })
}

/// Where the operation starts that the path ends with, and what it asks for.
fn operation(path: &[&str]) -> Option<(usize, Asks)> {
    let tails = || (0..path.len()).map(|at| (at, &path[at..]));
    let anchored = |&(at, _): &(usize, &[&str])| at > 0 && is_anchor(path[at - 1]);
    let found = |at: usize, asks: Option<Asks>| asks.map(|asks| (at, asks));
    tails()
        .filter(anchored)
        .find_map(|(at, tail)| found(at, call(tail).or_else(|| short_call(tail)).or_else(|| collection(tail))))
        .or_else(|| tails().find_map(|(at, tail)| found(at, call(tail))))
        .or_else(|| tails().rev().find_map(|(at, tail)| found(at, collection(tail))))
}

fn is_anchor(segment: &str) -> bool {
    segment == "openai" || is_version(segment.as_bytes())
}

fn is_version(segment: &[u8]) -> bool {
    matches!(segment, [b'v', b'0'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_alphanumeric))
}

/// Operations that end a path wherever it starts.
fn call(tail: &[&str]) -> Option<Asks> {
    Some(match tail {
        ["chat" | "fim", "completions"] | ["completions" | "complete"] => Asks::ToGenerate,
        ["responses"] | ["responses", "compact"] | ["messages"] => Asks::ToGenerate,
        ["api", "chat" | "generate"] | ["generate" | "generate_stream"] => Asks::ToGenerate,
        ["embeddings" | "rerank"] | ["api", "embed" | "embeddings"] => Asks::For(Kind::Embedding),
        ["messages", "count_tokens"] => Asks::For(Kind::Other),
        ["api", "tags" | "show" | "ps" | "pull" | "push" | "create" | "copy" | "delete" | "version"] => {
            Asks::For(Kind::Other)
        }
        _ => return None,
    })
}

/// Cohere's operations, too short to be known without the version before them.
fn short_call(tail: &[&str]) -> Option<Asks> {
    match tail {
        ["chat"] => Some(Asks::ToGenerate),
        ["embed"] => Some(Asks::For(Kind::Embedding)),
        _ => None,
    }
}

/// Collections, with whatever follows them in the path.
fn collection(tail: &[&str]) -> Option<Asks> {
    Some(match tail {
        ["images", ..] => Asks::For(Kind::Image),
        ["audio", ..] => Asks::For(Kind::Audio),
        ["models" | "tunedModels" | "deployments" | "fine_tuning" | "moderations", ..]
        | ["files" | "uploads" | "batches" | "vector_stores" | "cachedContents", ..]
        | ["assistants" | "threads" | "conversations" | "responses" | "messages", ..]
        | ["chat", "completions", ..] => Asks::For(Kind::Other),
        _ => return None,
    })
}

fn named(model: Cow<'_, str>) -> Option<Cow<'_, str>> {
    (!model.trim().is_empty()).then_some(model)
}

/// Decodes percent escapes, once. What is no escape stays.
fn decode(raw: &str) -> Cow<'_, str> {
    if !raw.contains('%') {
        return Cow::Borrowed(raw);
    }
    let mut decoded = Vec::with_capacity(raw.len());
    let mut rest = raw.as_bytes();
    while let [byte, after @ ..] = rest {
        let escaped = if *byte == b'%' { after.split_first_chunk().and_then(unescape) } else { None };
        let (byte, after) = escaped.unwrap_or((*byte, after));
        decoded.push(byte);
        rest = after;
    }
    String::from_utf8(decoded).map_or(Cow::Borrowed(raw), Cow::Owned)
}

fn unescape<'a>((digits, after): (&[u8; 2], &'a [u8])) -> Option<(u8, &'a [u8])> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some((digit(digits[0])? << 4 | digit(digits[1])?, after))
}

/// UTF-8 on the stack, for endpoints of up to 128 bytes.
struct Endpoint(SmallVec<[u8; 128]>);

impl Endpoint {
    fn new(uri: &Uri, headers: &HeaderMap, base: &[&str]) -> Self {
        let mut endpoint = Self(SmallVec::new());
        match uri.authority() {
            Some(authority) => endpoint.push_origin(uri.scheme_str(), authority),
            None => endpoint.push_lower(host_header(headers).unwrap_or_default()),
        }
        for segment in base {
            endpoint.push("/");
            endpoint.push(segment);
        }
        if endpoint.0.is_empty() {
            endpoint.push("/");
        }
        endpoint
    }

    fn as_str(&self) -> &str {
        // Always valid: only whole strings are pushed, and lower-casing changes ASCII alone.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    fn push_origin(&mut self, scheme: Option<&str>, authority: &Authority) {
        if let Some(scheme) = scheme {
            self.push_lower(scheme);
            self.push("://");
        }
        // Most are a name alone, and looking for their other parts would cost more than all the rest.
        let is_part = |byte: u8| matches!(byte, b'@' | b':' | b'[');
        if !authority.as_str().bytes().any(is_part) {
            return self.push_lower(authority.as_str());
        }
        self.push_lower(authority.host());
        let default_port = match scheme {
            Some(scheme) if scheme.eq_ignore_ascii_case("https") => Some(443),
            Some(scheme) if scheme.eq_ignore_ascii_case("http") => Some(80),
            _ => None,
        };
        if let Some(port) = authority.port_u16().filter(|&port| Some(port) != default_port) {
            // Writing to memory cannot fail.
            let _ = write!(self, ":{port}");
        }
    }

    fn push(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    fn push_lower(&mut self, text: &str) {
        let start = self.0.len();
        self.push(text);
        self.0[start..].make_ascii_lowercase();
    }
}

impl fmt::Write for Endpoint {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text);
        Ok(())
    }
}

/// The host and port as they are: without a scheme there is no default port.
fn host_header(headers: &HeaderMap) -> Option<&str> {
    let host = headers.get(HOST)?.to_str().ok()?;
    host.rsplit('@').next()?.split(['/', '?', '#']).next()
}

#[cfg(test)]
mod tests;
