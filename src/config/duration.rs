//! Durations as people write them: text with units.

use std::fmt;
use std::time::Duration;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const EXPECTED: &str = "a duration with units, such as \"300s\", \"1m 30s\" or \"250ms\"";
const OFF: &str = "off";

/// A duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Text(pub(super) Duration);

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(self.0))
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

/// A duration, or `"off"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OrOff(pub(super) Option<Duration>);

impl Serialize for OrOff {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(duration) => Text(duration).serialize(serializer),
            None => serializer.serialize_str(OFF),
        }
    }
}

impl<'de> Deserialize<'de> for OrOff {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(OrOffVisitor)
    }
}

/// `Duration` as text.
pub(crate) mod text {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        Text(*value).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Text::deserialize(deserializer).map(|Text(duration)| duration)
    }
}

/// `Option<Duration>` as text, `"off"` or nothing, where the last two mean the same.
pub(crate) mod or_off {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        OrOff(*value).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::deserialize(deserializer)?.and_then(|OrOff(duration)| duration))
    }
}

struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
        humantime::parse_duration(text).map(Text).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}

struct OrOffVisitor;

impl Visitor<'_> for OrOffVisitor {
    type Value = OrOff;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{EXPECTED}, or {OFF:?}")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<OrOff, E> {
        if text == OFF {
            return Ok(OrOff(None));
        }
        let duration = humantime::parse_duration(text).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))?;
        Ok(OrOff(Some(duration)))
    }
}
