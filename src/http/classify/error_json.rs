//! What a classifier wants to know from the JSON of an error body.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::engine::outcome::Pause;
use crate::http::retry_after;

/// The codes and hints found in the first bytes of an error body.
///
/// The body is cut anywhere, and may be no JSON at all: what came before the cut counts, the rest is unknown. Only the
/// places where providers put codes are looked at, so that a message that quotes a code is not taken for it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ErrorJson {
    pub(super) codes: Vec<String>,
    pub(super) retry_delay: Option<Pause>,
}

impl ErrorJson {
    pub(super) fn read(prefix: &[u8]) -> Self {
        let json = prefix.strip_prefix(b"\xef\xbb\xbf").unwrap_or(prefix);
        let mut found = Self::default();
        // A success, most often: the parser would allocate an error to say that there is nothing.
        if json.is_empty() {
            return found;
        }
        let walk = Walk { place: Place::Root, found: &mut found };
        // An error is the expected end of a body that was cut.
        let _ = serde_json::Deserializer::from_slice(json).deserialize_any(walk);
        found
    }
}

#[derive(Clone, Copy)]
enum Place {
    Root,
    Error,
    Code,
    Details,
    RetryDelay,
}

impl Place {
    fn below(self, key: &str) -> Option<Self> {
        match (self, key) {
            (Self::Root, "error") => Some(Self::Error),
            (Self::Root | Self::Error, "type" | "code") => Some(Self::Code),
            (Self::Error, "details") => Some(Self::Details),
            (Self::Details, "retryDelay") => Some(Self::RetryDelay),
            _ => None,
        }
    }
}

struct Walk<'f> {
    place: Place,
    found: &'f mut ErrorJson,
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
        match self.place {
            Place::Error | Place::Code => self.found.codes.push(text.to_owned()),
            Place::RetryDelay => self.found.retry_delay = retry_after::parse_pause(text),
            Place::Root | Place::Details => {}
        }
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        if matches!(self.place, Place::Code) {
            self.found.codes.push(number.to_string());
        }
        Ok(())
    }

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

    /// Gemini wraps its errors in an array when it streams.
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        match self.place {
            Place::Root | Place::Details => {
                while seq.next_element_seed(Walk { place: self.place, found: self.found })?.is_some() {}
            }
            _ => while seq.next_element::<IgnoredAny>()?.is_some() {},
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match self.place.below(&key) {
                Some(place) => map.next_value_seed(Walk { place, found: self.found })?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}
