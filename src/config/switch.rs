//! Settings in a table, by a name that stands for their defaults, or `"off"`.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const OFF: &str = "off";

/// Settings that may be off.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Switch<T>(pub(super) Option<T>);

/// Settings that have names for their defaults.
pub(super) trait Named: Sized {
    /// All of them, and `"off"`.
    const NAMES: &'static [&'static str];

    fn with_defaults(name: &str) -> Option<Self>;
}

impl<T: Serialize> Serialize for Switch<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(settings) => settings.serialize(serializer),
            None => serializer.serialize_str(OFF),
        }
    }
}

impl<'de, T: Named + DeserializeOwned> Deserialize<'de> for Switch<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SwitchVisitor(PhantomData))
    }
}

pub(super) fn serialize<T: Serialize, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(settings) => settings.serialize(serializer),
        None => serializer.serialize_str(OFF),
    }
}

/// Nothing means off as well.
pub(super) fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Named + DeserializeOwned,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.and_then(|Switch(settings)| settings))
}

struct SwitchVisitor<T>(PhantomData<T>);

impl<'de, T: Named + DeserializeOwned> Visitor<'de> for SwitchVisitor<T> {
    type Value = Switch<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of {}, or a table of settings", T::NAMES.join(", "))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Switch<T>, E> {
        if name == OFF {
            return Ok(Switch(None));
        }
        let settings = T::with_defaults(name).ok_or_else(|| E::unknown_variant(name, T::NAMES))?;
        Ok(Switch(Some(settings)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Switch<T>, A::Error> {
        let settings = T::deserialize(MapAccessDeserializer::new(&mut map))?;
        // An enum takes the first key and leaves the others.
        match map.next_key::<String>()? {
            Some(another) => Err(A::Error::custom(format!("`{another}` beside another one: only one may be given"))),
            None => Ok(Switch(Some(settings))),
        }
    }
}
