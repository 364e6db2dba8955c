use std::fmt;

use bpe_openai::{Tokenizer, cl100k_base, o200k_base};

use super::estimate::{Said, TokenEstimator, tokens_of};

/// Bytes of a body's texts that are counted exactly: it is done in the task of the caller, and a body may be very long.
const EXACT: usize = 256 * 1024;

/// Counts the tokens of prompts as OpenAI's models do.
///
/// Counted are the same texts as by [`BytesOverFour`](crate::BytesOverFour), each by itself; the few tokens that frame each
/// message of a chat are not. Beyond 256 KiB of text the rest counts as a token for every four bytes, so that no request
/// holds its thread up; the time that counting takes grows with the length of the text alone, whatever is in it.
///
/// For other providers' models this is a guess, and seldom a better one than a quarter of the bytes.
///
/// ```
/// use tower_inflight::{InflightLimitLayer, Limiter, Quota, Tiktoken, TokenEstimator};
///
/// let body = br#"{"model":"acme/smart","messages":[{"role":"user","content":"tiktoken is great!"}]}"#;
/// assert_eq!(Tiktoken::cl100k().input_tokens(body), 6);
///
/// let quota = Quota { tokens_per_minute: Some(90_000), ..Quota::default() };
/// let limiter = Limiter::builder().max_inflight(8).quota(quota).build()?;
/// let layer = InflightLimitLayer::new(limiter).estimate_tokens(Tiktoken::o200k());
/// # let _ = layer;
/// # Ok::<(), tower_inflight::ConfigError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Tiktoken {
    name: &'static str,
    tokenizer: &'static Tokenizer,
}

impl Tiktoken {
    /// The encoding of GPT-4o and of what came after it. The first call reads its dictionary, which takes a moment.
    #[must_use]
    pub fn o200k() -> Self {
        Self { name: "o200k_base", tokenizer: o200k_base() }
    }

    /// The encoding of GPT-3.5, GPT-4 and the `text-embedding-3` models. The first call reads its dictionary, which takes a
    /// moment.
    #[must_use]
    pub fn cl100k() -> Self {
        Self { name: "cl100k_base", tokenizer: cl100k_base() }
    }
}

impl TokenEstimator for Tiktoken {
    fn input_tokens(&self, body: &[u8]) -> u32 {
        let mut count = Count { tokenizer: self.tokenizer, tokens: 0, left: EXACT };
        let said = Said::read(body, &mut |text| count.add(text));
        if said.is_json {
            return count.tokens.saturating_add(said.file_tokens());
        }
        let mut whole = Count { tokenizer: self.tokenizer, tokens: 0, left: EXACT };
        whole.add(&String::from_utf8_lossy(body));
        whole.tokens.saturating_add(said.file_tokens())
    }
}

struct Count {
    tokenizer: &'static Tokenizer,
    tokens: u32,
    /// Bytes that may still be counted exactly.
    left: usize,
}

impl Count {
    fn add(&mut self, text: &str) {
        let (exact, rest) = text.split_at(floor_char_boundary(text, self.left));
        self.left -= exact.len();
        let tokens = u32::try_from(self.tokenizer.count(exact)).unwrap_or(u32::MAX);
        self.tokens = self.tokens.saturating_add(tokens).saturating_add(tokens_of(rest.len()));
    }
}

/// The end of the last character that ends at `most` or before.
fn floor_char_boundary(text: &str, most: usize) -> usize {
    (0..=most.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

impl fmt::Debug for Tiktoken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tiktoken").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_the_encodings() {
        let count = |text: &str| {
            let body = serde_json::json!({ "messages": [{ "content": text }] }).to_string();
            [Tiktoken::cl100k(), Tiktoken::o200k()].map(|encoding| encoding.input_tokens(body.as_bytes()))
        };
        assert_eq!(count(""), [0, 0]);
        assert_eq!(count("hello world"), [2, 2]);
        assert_eq!(count("tiktoken is great!"), [6, 6]);
        assert_eq!(count("antidisestablishmentarianism"), [6, 6]);
        assert_eq!(count("お誕生日おめでとう"), [9, 8]);
    }

    #[test]
    fn texts_are_counted_where_providers_have_them_and_files_by_the_piece() {
        let body = br#"{"system":"hello world","messages":[{"role":"user","content":[
            {"type":"text","text":"hello world"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]}"#;
        assert_eq!(Tiktoken::o200k().input_tokens(body), 2 + 2 + 1_000);
        assert_eq!(Tiktoken::o200k().input_tokens(b"hello world"), 2);
        assert!(Tiktoken::o200k().input_tokens(b"\xff\xfe{") > 0);
    }

    #[test]
    fn beyond_a_bound_a_text_is_not_counted_exactly() {
        let text = "hello world ".repeat(100_000);
        let body = serde_json::json!({ "messages": [{ "content": text }, { "content": "ü".repeat(100) }] }).to_string();
        let tokens = Tiktoken::o200k().input_tokens(body.as_bytes());
        let rest = tokens_of(text.len() - EXACT) + 50;
        assert!((rest + 40_000..rest + 46_000).contains(&tokens), "{tokens}");
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(floor_char_boundary("aü", 2), 1);
        assert_eq!(floor_char_boundary("aü", 9), 3);
        assert_eq!(floor_char_boundary("ü", 1), 0);
    }
}
