//! How many tokens a request may use, guessed from what it says before it is sent.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// Guesses the tokens of a prompt, for budgets per minute. The default is [`BytesOverFour`].
///
/// What it says is charged before the call is sent, and put right by the usage that the provider reports.
///
/// ```
/// use tower_inflight::{InflightLimitLayer, Limiter, Quota, TokenEstimator};
///
/// /// For an upstream whose prompts are all alike.
/// struct Constant(u32);
///
/// impl TokenEstimator for Constant {
///     fn input_tokens(&self, _body: &[u8]) -> u32 {
///         self.0
///     }
/// }
///
/// let quota = Quota { tokens_per_minute: Some(90_000), ..Quota::default() };
/// let limiter = Limiter::builder().max_inflight(8).quota(quota).build()?;
/// let layer = InflightLimitLayer::new(limiter).estimate_tokens(Constant(1_200));
/// # let _ = layer;
/// # Ok::<(), tower_inflight::ConfigError>(())
/// ```
pub trait TokenEstimator: Send + Sync + 'static {
    /// Tokens of the prompt in this request body, which may be anything. Not asked for bodies that are not in memory:
    /// their length is taken for text.
    fn input_tokens(&self, body: &[u8]) -> u32;
}

/// A quarter of the bytes of the texts in a JSON body: what OpenAI gives as the rule for English. Texts are the strings
/// under the keys that providers have prompts, instructions and tools under; an image or a file in the body counts as
/// 1,000 tokens, about what a large image costs. A body that is no JSON counts as text.
///
/// ```
/// use tower_inflight::{BytesOverFour, TokenEstimator};
///
/// let body = br#"{"model":"acme/smart","messages":[{"role":"user","content":"How are you today?"}]}"#;
/// assert_eq!(BytesOverFour.input_tokens(body), 5);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct BytesOverFour;

impl TokenEstimator for BytesOverFour {
    fn input_tokens(&self, body: &[u8]) -> u32 {
        let mut bytes = 0;
        let said = Said::read(body, &mut |text| bytes += text.len());
        tokens_of(if said.is_json { bytes } else { body.len() }).saturating_add(said.file_tokens())
    }
}

const FILE_TOKENS: u32 = 1_000;

/// What a request may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// Of its prompt.
    pub(crate) input: u32,
    /// Of its answer at most, if it says so.
    pub(crate) max_output: Option<u32>,
}

impl Estimate {
    /// `length` stands for a body that is not there to be read.
    pub(crate) fn of(estimator: &dyn TokenEstimator, body: Option<&[u8]>, length: Option<u32>) -> Self {
        let Some(body) = body else {
            return Self { input: tokens_of(length.unwrap_or(0) as usize), max_output: None };
        };
        Self { input: estimator.input_tokens(body), max_output: Said::read(body, &mut |_| ()).max_output }
    }
}

pub(super) fn tokens_of(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(4)).unwrap_or(u32::MAX)
}

/// What a JSON body says, as far as it is JSON.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) is_json: bool,
    files: u32,
    max_output: Option<u32>,
}

impl Said {
    /// Tells each of its texts on the way.
    pub(super) fn read(body: &[u8], tell: &mut dyn FnMut(&str)) -> Self {
        let json = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        let mut said = Self::default();
        let read = serde_json::Deserializer::from_slice(json).deserialize_any(Walk {
            place: Place::Root,
            said: &mut said,
            tell,
        });
        said.is_json = read.is_ok();
        said
    }

    pub(super) fn file_tokens(&self) -> u32 {
        self.files.saturating_mul(FILE_TOKENS)
    }
}

/// Where in the body a value stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    /// `generationConfig` of Gemini, `options` of Ollama.
    Settings,
    MaxOutput,
    Text,
    Other,
}

impl Place {
    fn below(self, key: &str) -> Self {
        match (self, key) {
            (Self::Root, "max_tokens" | "max_completion_tokens" | "max_output_tokens") => Self::MaxOutput,
            (Self::Root, "generationConfig" | "generation_config" | "options") => Self::Settings,
            (Self::Settings, "maxOutputTokens" | "max_output_tokens" | "num_predict") => Self::MaxOutput,
            (
                _,
                "content" | "text" | "input" | "prompt" | "system" | "instructions" | "message" | "preamble"
                | "arguments" | "output" | "description" | "name",
            ) => Self::Text,
            _ => Self::Other,
        }
    }
}

struct Walk<'s> {
    place: Place,
    said: &'s mut Said,
    tell: &'s mut dyn FnMut(&str),
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        if text.starts_with("data:") {
            self.said.files = self.said.files.saturating_add(1);
        } else if self.place == Place::Text {
            (self.tell)(text);
        }
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        if self.place == Place::MaxOutput {
            self.said.max_output = Some(u32::try_from(number).unwrap_or(u32::MAX));
        }
        Ok(())
    }

    /// Ollama's -1 is "no end", which is no number to charge.
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Self { place, said, tell } = self;
        let place = if place == Place::Text { Place::Text } else { Place::Other };
        while seq.next_element_seed(Walk { place, said: &mut *said, tell: &mut *tell })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { place, said, tell } = self;
        while let Some(place) = map.next_key_seed(Key(place))? {
            map.next_value_seed(Walk { place, said: &mut *said, tell: &mut *tell })?;
        }
        Ok(())
    }
}

/// Reads a key for the place below it.
struct Key(Place);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Place;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Place;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.below(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(body: &str) -> (usize, Option<u32>) {
        let mut bytes = 0;
        let said = Said::read(body.as_bytes(), &mut |text| bytes += text.len());
        assert!(said.is_json, "{body}");
        (bytes, said.max_output)
    }

    #[test]
    fn texts_are_counted_where_providers_have_them() {
        for (body, bytes) in [
            (
                r#"{"messages":[{"role":"user","content":"12345"},{"role":"assistant","content":[{"type":"text","text":"678"}]}]}"#,
                8,
            ),
            (r#"{"system":"1234","messages":[{"role":"user","content":[{"type":"tool_result","content":"56"}]}]}"#, 6),
            (r#"{"input":["12","345"],"instructions":"6"}"#, 6),
            (r#"{"contents":[{"role":"user","parts":[{"text":"1234"}]}]}"#, 4),
            (r#"{"prompt":"1234567"}"#, 7),
            (r#"{"message":"123","preamble":"4"}"#, 4),
            (r#"{"messages":[],"tools":[{"type":"function","function":{"name":"12","description":"345"}}]}"#, 5),
            (r#"{"model":"a-long-name","user":"somebody","metadata":{"k":"v"}}"#, 0),
        ] {
            assert_eq!(said(body).0, bytes, "{body}");
        }
    }

    #[test]
    fn the_most_tokens_of_an_answer_are_read_where_providers_have_them() {
        for (body, most) in [
            (r#"{"max_tokens":7}"#, Some(7)),
            (r#"{"max_completion_tokens":8,"messages":[]}"#, Some(8)),
            (r#"{"max_output_tokens":9}"#, Some(9)),
            (r#"{"generationConfig":{"maxOutputTokens":10}}"#, Some(10)),
            (r#"{"options":{"num_predict":11}}"#, Some(11)),
            (r#"{"options":{"num_predict":-1}}"#, None),
            (r#"{"max_tokens":"many"}"#, None),
            (r#"{"max_tokens":null}"#, None),
            (r#"{"max_tokens":1e30}"#, None),
            (r#"{"max_tokens":99999999999}"#, Some(u32::MAX)),
            (r#"{"messages":[{"max_tokens":3}]}"#, None),
        ] {
            assert_eq!(said(body).1, most, "{body}");
        }
    }

    #[test]
    fn an_image_in_the_body_is_not_counted_by_its_bytes() {
        let image = "A".repeat(400_000);
        let body = format!(
            r#"{{"messages":[{{"content":[{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{image}"}}}},{{"text":"what is this"}}]}}]}}"#
        );
        assert_eq!(BytesOverFour.input_tokens(body.as_bytes()), 1_003);
        let body = format!(r#"{{"messages":[{{"content":[{{"type":"image","source":{{"data":"{image}"}}}}]}}]}}"#);
        assert_eq!(BytesOverFour.input_tokens(body.as_bytes()), 0);
    }

    #[test]
    fn what_is_no_json_counts_as_text_and_what_nobody_has_as_its_length() {
        assert_eq!(BytesOverFour.input_tokens(b"twelve bytes"), 3);
        let unread = Estimate::of(&BytesOverFour, None, Some(4_000));
        assert_eq!(unread, Estimate { input: 1_000, max_output: None });
        let deep = [b"{\"content\":".repeat(10_000), b"1".to_vec()].concat();
        assert_eq!(Estimate::of(&BytesOverFour, Some(&deep), None).max_output, None);
    }
}
