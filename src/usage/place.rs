//! Where in their JSON the providers put what is looked for.

use super::counts::Field;

/// A value that is looked for, or an object on the way to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// An event.
    Root,
    /// A line or a document: what may stand in an event, and what Ollama and Cohere's embeddings have at the top.
    Line,
    /// Anthropic's `message`, the Responses API's `response`, Cohere's `delta`, Groq's `x_groq`.
    Envelope,
    Usage,
    /// `prompt_tokens_details` and `input_tokens_details`.
    InputDetails,
    /// Cohere's `billed_units`.
    Billed,
    Error,
    /// The list of them.
    Choices,
    Choice,

    Count(Field),
    /// The type of an event.
    Kind,
    /// `object`, which is `error` where old servers mean an error.
    Object,
    /// Of the error.
    Code,
    /// Beside the error, or of an event that is one as a whole.
    RootCode,
    Done,
    FinishReason,

    Elsewhere,
}

impl Place {
    /// Where the value of this key is.
    pub(super) fn below(self, key: &[u8]) -> Self {
        match self {
            Self::Root => Self::of_root(key),
            Self::Line => Self::of_line(key),
            Self::Envelope => match key {
                b"usage" | b"usageMetadata" => Self::Usage,
                b"error" => Self::Error,
                _ => Self::Elsewhere,
            },
            Self::Usage => Self::of_usage(key),
            Self::InputDetails if key == b"cached_tokens" => Self::Count(Field::CachedWithin),
            Self::Billed => match key {
                b"input_tokens" => Self::Count(Field::BilledInput),
                b"output_tokens" => Self::Count(Field::BilledOutput),
                _ => Self::Elsewhere,
            },
            Self::Error if matches!(key, b"type" | b"code" | b"status") => Self::Code,
            Self::Choice if matches!(key, b"finish_reason" | b"finishReason") => Self::FinishReason,
            _ => Self::Elsewhere,
        }
    }

    fn of_root(key: &[u8]) -> Self {
        match key {
            b"usage" | b"usageMetadata" => Self::Usage,
            b"message" | b"response" | b"delta" | b"x_groq" => Self::Envelope,
            b"error" => Self::Error,
            b"choices" | b"candidates" => Self::Choices,
            b"type" => Self::Kind,
            b"object" => Self::Object,
            b"code" | b"error_type" => Self::RootCode,
            _ => Self::Elsewhere,
        }
    }

    fn of_line(key: &[u8]) -> Self {
        match key {
            b"meta" => Self::Usage,
            b"done" => Self::Done,
            b"prompt_eval_count" => Self::Count(Field::Input),
            b"eval_count" => Self::Count(Field::Output),
            _ => Self::of_root(key),
        }
    }

    pub(super) fn is_root(self) -> bool {
        matches!(self, Self::Root | Self::Line)
    }

    fn of_usage(key: &[u8]) -> Self {
        Self::Count(match key {
            b"prompt_tokens" | b"input_tokens" | b"inputTokens" | b"promptTokenCount" => Field::Input,
            b"completion_tokens" | b"output_tokens" | b"outputTokens" | b"candidatesTokenCount" => Field::Output,
            b"thoughtsTokenCount" => Field::Thoughts,
            b"total_tokens" | b"totalTokens" | b"totalTokenCount" => Field::Total,
            b"cachedContentTokenCount" | b"prompt_cache_hit_tokens" => Field::CachedWithin,
            b"cache_read_input_tokens" | b"cacheReadInputTokens" => Field::CacheRead,
            b"cache_creation_input_tokens" | b"cacheWriteInputTokens" => Field::CacheWritten,
            b"prompt_tokens_details" | b"input_tokens_details" => return Self::InputDetails,
            // Cohere: the same names one level down.
            b"tokens" => return Self::Usage,
            b"billed_units" => return Self::Billed,
            _ => return Self::Elsewhere,
        })
    }

    /// An object here is walked through, not passed over.
    pub(super) fn has_keys(self) -> bool {
        matches!(
            self,
            Self::Root
                | Self::Line
                | Self::Envelope
                | Self::Usage
                | Self::InputDetails
                | Self::Billed
                | Self::Error
                | Self::Choice
        )
    }
}
