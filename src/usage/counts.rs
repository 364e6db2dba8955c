//! Token counts, as providers report them and as they are counted.

/// The tokens of one call, as its answer reported them. What was not reported is `None`, which is not zero.
///
/// ```
/// use tower_inflight::UsageTap;
///
/// let mut tap = UsageTap::new();
/// tap.feed(br#"{"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":3,"total_tokens":11}}"#);
/// let usage = tap.finish().usage;
/// assert_eq!((usage.input_tokens, usage.output_tokens), (Some(8), Some(3)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens of the prompt, counted as [`CachedInput`] says.
    pub input_tokens: Option<u64>,
    /// Tokens of the answer, those of its reasoning included.
    pub output_tokens: Option<u64>,
    /// Tokens of the prompt that came out of the provider's cache.
    pub cached_tokens: Option<u64>,
}

impl Usage {
    /// Tokens in and out. Where an answer reports one of the two, the other is up to the caller's own estimate.
    ///
    /// ```
    /// let usage = tower_inflight::Usage::new(8, 3);
    /// assert_eq!((usage.input_tokens, usage.output_tokens, usage.cached_tokens), (Some(8), Some(3), None));
    /// ```
    #[must_use]
    pub const fn new(input_tokens: u64, output_tokens: u64) -> Self {
        Self { input_tokens: Some(input_tokens), output_tokens: Some(output_tokens), cached_tokens: None }
    }

    /// The answer reported neither input nor output.
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        self.input_tokens.is_none() && self.output_tokens.is_none()
    }
}

/// Whether tokens out of the provider's cache count as input.
///
/// ```
/// use tower_inflight::{CachedInput, UsageTap};
///
/// let anthropic = br#"{"usage":{"input_tokens":25,"cache_read_input_tokens":1000,"output_tokens":15}}"#;
/// let input = |cached| {
///     let mut tap = UsageTap::new().cached_input(cached);
///     tap.feed(anthropic);
///     tap.finish().usage.input_tokens
/// };
/// assert_eq!(input(CachedInput::AsReported), Some(25));
/// assert_eq!(input(CachedInput::Included), Some(1025));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CachedInput {
    /// As the provider's own input figure has it: OpenAI and Gemini within, Anthropic and Bedrock apart. The default, since
    /// it is also how they count against their limits.
    #[default]
    AsReported,
    /// All of them count, read from the cache or written to it.
    Included,
    /// Those read from the cache do not count.
    Excluded,
}

/// Where a provider's figure belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Input,
    Output,
    /// Gemini's reasoning, which its output figure leaves out.
    Thoughts,
    Total,
    /// Out of the cache, and part of the input figure.
    CachedWithin,
    /// Out of the cache, and apart from the input figure.
    CacheRead,
    /// Into the cache, and apart from the input figure.
    CacheWritten,
    /// Cohere's bill: used where it does not say what was processed.
    BilledInput,
    BilledOutput,
}

/// The last figure of each field. Nothing is summed: providers report running totals.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts([Option<u32>; Field::BilledOutput as usize + 1]);

impl Counts {
    /// Takes a figure as it stands in the answer. What is no count of tokens (negative, a fraction, text, 1e30) says
    /// nothing, and nor does a figure that no answer can have.
    pub(super) fn note(&mut self, field: Field, figure: &[u8]) {
        let is_plain = !figure.is_empty() && figure.iter().all(u8::is_ascii_digit);
        let count = std::str::from_utf8(figure).ok().filter(|_| is_plain).and_then(|figure| figure.parse().ok());
        if count.is_some() {
            self.0[field as usize] = count;
        }
    }

    pub(super) fn usage(&self, cached: CachedInput) -> Usage {
        let get = |field: Field| self.0[field as usize].map(u64::from);
        let reported = get(Field::Input).or_else(|| get(Field::BilledInput));
        let apart = get(Field::CacheRead).unwrap_or(0) + get(Field::CacheWritten).unwrap_or(0);
        let within = get(Field::CachedWithin).unwrap_or(0);
        let spoken = get(Field::Output).or_else(|| get(Field::BilledOutput));
        // Embeddings report no output, but a total.
        let rest = || Some(get(Field::Total)?.saturating_sub(reported?));
        Usage {
            input_tokens: reported.map(|reported| match cached {
                CachedInput::AsReported => reported,
                CachedInput::Included => reported + apart,
                CachedInput::Excluded => reported.saturating_sub(within),
            }),
            output_tokens: match (spoken, get(Field::Thoughts)) {
                (None, None) => rest(),
                (spoken, thought) => Some(spoken.unwrap_or(0) + thought.unwrap_or(0)),
            },
            cached_tokens: get(Field::CachedWithin).or_else(|| get(Field::CacheRead)),
        }
    }
}
