//! Every provider's stream, however it is cut, and everything else that may come.

mod cases;
mod cuts;
mod hostile;

use super::{Reading, UsageTap};
use crate::engine::outcome::Outcome;

/// An answer as a provider sends it, and what must be read from it.
struct Sample {
    name: &'static str,
    content_type: &'static str,
    body: &'static [u8],
    input: Option<u64>,
    output: Option<u64>,
    cached: Option<u64>,
    pieces: u64,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// With its body alone.
    Body,
    Event,
    Trouble(Outcome),
}

const SSE: &str = "text/event-stream";
const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";

macro_rules! sample {
    ($name:literal, $type:ident, $input:expr, $output:expr, $cached:expr, $pieces:expr, $end:expr) => {
        Sample {
            name: $name,
            content_type: $type,
            body: include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/usage/", $name)),
            input: $input,
            output: $output,
            cached: $cached,
            pieces: $pieces,
            end: $end,
        }
    };
}

const OVERLOAD: End = End::Trouble(Outcome::Overload);

static SAMPLES: [Sample; 26] = [
    sample!("openai_chat.sse", SSE, Some(8), Some(3), Some(4), 5, End::Event),
    sample!("openai_chat_every_chunk.sse", SSE, Some(8), Some(3), None, 3, End::Event),
    sample!("azure_chat.sse", SSE, Some(8), Some(3), Some(4), 3, End::Event),
    sample!("openai_completions.sse", SSE, Some(8), Some(3), None, 4, End::Event),
    sample!("llama_cpp_chat.sse", SSE, Some(8), Some(3), None, 3, End::Event),
    sample!("openai_responses.sse", SSE, Some(36), Some(87), Some(12), 3, End::Event),
    sample!("openai_responses_failed.sse", SSE, None, None, None, 3, OVERLOAD),
    sample!("openai_responses_incomplete.sse", SSE, Some(36), Some(87), Some(12), 3, End::Event),
    sample!("anthropic.sse", SSE, Some(25), Some(15), Some(1000), 2, End::Event),
    sample!("anthropic_overloaded.sse", SSE, Some(25), Some(1), Some(1000), 2, OVERLOAD),
    sample!("gemini.sse", SSE, Some(219), Some(171), None, 3, End::Body),
    sample!("gemini_array.json", JSON, Some(219), Some(171), None, 3, End::Body),
    sample!("gemini.json", JSON, Some(219), Some(171), None, 1, End::Body),
    sample!("ollama.ndjson", NDJSON, Some(12), Some(5), None, 2, End::Event),
    sample!("ollama_embed.json", JSON, Some(8), None, None, 0, End::Body),
    sample!("cohere.sse", SSE, Some(71), Some(29), None, 3, End::Event),
    sample!("cohere.json", JSON, Some(71), Some(29), None, 0, End::Body),
    sample!("cohere_embed.json", JSON, Some(2), None, None, 0, End::Body),
    sample!("openai_chat.json", JSON, Some(8), Some(3), None, 1, End::Body),
    sample!("openai_embeddings.json", JSON, Some(9), Some(0), None, 0, End::Body),
    sample!("openai_responses.json", JSON, Some(36), Some(87), Some(12), 0, End::Body),
    sample!("anthropic.json", JSON, Some(25), Some(15), Some(1000), 0, End::Body),
    sample!("bedrock_converse.json", JSON, Some(30), Some(628), None, 0, End::Body),
    sample!("odd_crlf.sse", SSE, Some(8), Some(3), None, 1, End::Event),
    sample!("odd_lf.sse", SSE, Some(8), Some(3), None, 1, End::Event),
    sample!("odd_cr.sse", SSE, Some(8), Some(3), None, 1, End::Event),
];

impl Sample {
    fn tap(&self) -> UsageTap {
        let mut tap = UsageTap::new();
        tap.header("content-type", self.content_type.as_bytes());
        tap
    }

    fn read<'a>(&self, chunks: impl IntoIterator<Item = &'a [u8]>) -> Reading {
        let mut tap = self.tap();
        chunks.into_iter().for_each(|chunk| tap.feed(chunk));
        tap.finish()
    }

    fn expect(&self, reading: Reading, how: &str) {
        let usage = reading.usage;
        let name = self.name;
        let how = format_args!("{name}, {how}: {reading:?}");
        assert_eq!((usage.input_tokens, usage.output_tokens), (self.input, self.output), "{how}");
        assert_eq!(usage.cached_tokens, self.cached, "{how}");
        let end = match reading.trouble {
            Some(outcome) => End::Trouble(outcome),
            None if reading.has_ended => End::Event,
            None => End::Body,
        };
        assert_eq!(end, self.end, "{how}");
        assert!(!reading.is_cut_short, "{how}");
        assert_eq!(reading.pieces, self.pieces, "{how}");
    }
}

/// What a stream without a type says.
fn read(body: impl AsRef<[u8]>) -> Reading {
    let mut tap = UsageTap::new();
    tap.feed(body.as_ref());
    tap.finish()
}

fn counts(reading: Reading) -> (Option<u64>, Option<u64>) {
    (reading.usage.input_tokens, reading.usage.output_tokens)
}
