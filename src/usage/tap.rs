//! Reads an answer while its bytes pass.

use super::counts::{CachedInput, Field, Usage};
use super::events::Events;
use super::story::Story;
use super::values::{Framing, Values};
use crate::engine::outcome::Outcome;

/// Reads what an answer says about itself while its bytes pass: its tokens, whether its last event has come, and whether
/// it is an error dressed as a 200.
///
/// [`InflightLimitLayer`](crate::InflightLimitLayer) has one on each answer that succeeds; with a client of your own, feed
/// one beside it:
///
/// ```
/// use tower_inflight::UsageTap;
///
/// let mut tap = UsageTap::new();
/// tap.header("content-type", b"text/event-stream");
/// // The chunks as they come, cut anywhere.
/// tap.feed(b"data: {\"choices\":[],\"usage\":{\"prompt_to");
/// tap.feed(b"kens\":8,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n");
/// assert!(tap.has_ended());
/// assert_eq!(tap.finish().usage.output_tokens, Some(3));
/// ```
///
/// # What is read
/// | answer | usage | last event |
/// |---|---|---|
/// | OpenAI chat, completions, embeddings, and servers that speak it | `usage` | `[DONE]` |
/// | OpenAI responses | `response.usage`, `usage` | `response.completed`, `.failed`, `.incomplete` |
/// | Anthropic messages | `message.usage`, `usage` | `message_stop` |
/// | Gemini and Vertex | `usageMetadata` | none: a stream ends with its body |
/// | Ollama | `prompt_eval_count`, `eval_count` | `"done":true` |
/// | Cohere v2 | `delta.usage`, `usage`, `meta` | `message-end` |
/// | Bedrock | its `x-amzn-bedrock-*-token-count` headers, and `usage` of a Converse answer | none |
///
/// Per field the last figure stands; nothing is summed. What is no count of tokens is passed over, and what was not
/// reported is unknown. A compressed or binary body is not read.
///
/// # Cost
/// Nothing is delayed. Of the stream, at most its last short event is copied; the tap never takes more than 2 KiB, whatever
/// passes.
#[derive(Debug)]
pub struct UsageTap {
    reader: Reader,
    story: Story,
    cached: CachedInput,
}

#[derive(Debug)]
enum Reader {
    /// Nothing has come yet that would say what it is.
    Waiting(Framing),
    Events(Events),
    Values(Values),
    /// Nothing that can be read.
    Off,
}

/// What a [`UsageTap`] has read.
///
/// ```
/// use tower_inflight::{Outcome, UsageTap};
///
/// let mut tap = UsageTap::new();
/// tap.feed(b"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n");
/// assert_eq!(tap.finish().trouble, Some(Outcome::Overload));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reading {
    /// The tokens it reported.
    pub usage: Usage,
    /// An error inside of the answer, and what it says about the upstream.
    pub trouble: Option<Outcome>,
    /// Its last event has come, or an error, after which none is due.
    pub has_ended: bool,
    /// It has not ended, though it is of a kind that does so with a last event or a reason.
    pub is_cut_short: bool,
    /// Events that carried a piece of the answer; at most one where the answer does not stream.
    pub pieces: u64,
    /// Tokens of output that came, whether it ended or not: as reported, or by the pieces that passed. A piece is counted
    /// as a token at least, and as a token for every four bytes that pieces are longer than the shortest of them.
    pub output_seen: u64,
}

impl Default for UsageTap {
    fn default() -> Self {
        Self::new()
    }
}

impl UsageTap {
    /// A tap that finds out by the first bytes what they are.
    #[must_use]
    pub fn new() -> Self {
        Self { reader: Reader::Waiting(Framing::Brackets), story: Story::default(), cached: CachedInput::AsReported }
    }

    /// Whether tokens out of the provider's cache count as input. Default: [`CachedInput::AsReported`].
    #[must_use]
    pub const fn cached_input(mut self, cached: CachedInput) -> Self {
        self.cached = cached;
        self
    }

    /// Takes a header of the answer, named in lower case: its encoding, its type, or tokens that Bedrock reports there.
    ///
    /// A type alone is not believed: what an answer is shows in its first bytes.
    pub fn header(&mut self, name: &str, value: &[u8]) {
        match name {
            "content-encoding" if !value.trim_ascii().eq_ignore_ascii_case(b"identity") => self.reader = Reader::Off,
            "content-type" => {
                if let (Reader::Waiting(framing), true) = (&mut self.reader, is_lines(value)) {
                    *framing = Framing::Lines;
                }
            }
            "x-amzn-bedrock-input-token-count" => self.story.count(Field::Input, value.trim_ascii()),
            "x-amzn-bedrock-output-token-count" => self.story.count(Field::Output, value.trim_ascii()),
            "x-amzn-bedrock-cache-read-input-token-count" => self.story.count(Field::CacheRead, value.trim_ascii()),
            _ => {}
        }
    }

    /// Takes the bytes that come next.
    #[inline]
    pub fn feed(&mut self, bytes: &[u8]) {
        match &mut self.reader {
            Reader::Events(events) => events.feed(bytes, &mut self.story),
            Reader::Values(values) => values.feed(bytes, &mut self.story),
            Reader::Off => {}
            Reader::Waiting(framing) => {
                let framing = *framing;
                self.begin(bytes, framing);
            }
        }
    }

    /// Its last event has come, or an error.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.story.has_ended()
    }

    /// An error has come inside of the answer.
    #[must_use]
    pub fn trouble(&self) -> Option<Outcome> {
        self.story.trouble()
    }

    /// No more bytes come, or nobody reads them: what was read.
    pub fn finish(&mut self) -> Reading {
        match &mut self.reader {
            Reader::Events(events) => events.finish(&mut self.story),
            Reader::Values(values) => values.finish(&mut self.story),
            Reader::Waiting(_) | Reader::Off => {}
        }
        self.story.reading(self.cached)
    }

    #[cfg(test)]
    pub(super) fn on_heap(&self) -> usize {
        if let Reader::Events(events) = &self.reader { events.on_heap() } else { 0 }
    }

    fn begin(&mut self, bytes: &[u8], framing: Framing) {
        let is_space = |byte: &u8| byte.is_ascii_whitespace() || BYTE_ORDER_MARK.contains(byte);
        let Some(start) = bytes.iter().position(|byte| !is_space(byte)) else { return };
        self.reader = match bytes[start] {
            b'{' | b'[' => Reader::Values(Values::new(framing)),
            // A comment, or the fields data, event, id and retry.
            b':' | b'd' | b'e' | b'i' | b'r' => Reader::Events(Events::new()),
            _ => Reader::Off,
        };
        self.feed(&bytes[start..]);
    }
}

const BYTE_ORDER_MARK: [u8; 3] = *b"\xEF\xBB\xBF";

/// A type that promises a value on each line.
fn is_lines(content_type: &[u8]) -> bool {
    let essence = content_type.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    matches!(
        &essence[..],
        b"application/x-ndjson"
            | b"application/ndjson"
            | b"application/jsonl"
            | b"application/x-jsonlines"
            | b"application/json-lines"
            | b"application/stream+json"
    )
}
