use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::engine::controller::{
    Aimd, AimdConfig, Controller, Gradient, GradientConfig, InvalidController, Knee, KneeConfig,
};
use crate::engine::steering::{LimitBounds, Steering};

/// What decides how many calls may be in flight at once.
///
/// In files the name of one, or a table with its settings. What is not set has its default:
///
/// ```
/// use tower_inflight::controller::{AimdConfig, KneeConfig};
/// use tower_inflight::{Limit, LimitConfig};
///
/// let config: LimitConfig = toml::from_str(r#"limit = "adaptive""#)?;
/// assert_eq!(config.limit, Limit::Adaptive(KneeConfig::default()));
///
/// let config: LimitConfig = toml::from_str(
///     r#"
///     [limit.aimd]
///     initial_limit = 8
///     latency = { first_byte = "1500ms" }
///     "#,
/// )?;
/// assert!(matches!(config.limit, Limit::Aimd(AimdConfig { initial_limit: 8, .. })));
/// # Ok::<(), toml::de::Error>(())
/// ```
///
/// `max_inflight` beside it stays what it is: no more calls are in flight than that, whatever a controller finds. With 0
/// there, the controller's own `max_limit` is the only bound.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Limit {
    /// `max_inflight` and nothing else. The default.
    #[default]
    Fixed,
    /// [`Knee`]: finds the capacity of the upstream by itself, and needs no setting.
    Adaptive(KneeConfig),
    /// [`Aimd`]: down by half on refusals and failures, up by one while there are none.
    Aimd(AimdConfig),
    /// [`Gradient`]: down as first bytes come later than usual.
    Gradient(GradientConfig),
}

impl Limit {
    pub(super) fn is_fixed(&self) -> bool {
        *self == Self::Fixed
    }

    /// `None`: fixed.
    ///
    /// `seed`: another one for each lane and process, so that their trials do not march in step.
    pub(super) fn steering(&self, seed: u64) -> Result<Option<Steering>, InvalidController> {
        let (controller, min, max): (Box<dyn Controller>, u32, u32) = match self {
            Self::Fixed => return Ok(None),
            Self::Adaptive(config) => {
                (Box::new(Knee::new(config.clone())?.with_seed(seed)), config.min_limit, config.max_limit)
            }
            Self::Aimd(config) => (Box::new(Aimd::new(config.clone())?), config.min_limit, config.max_limit),
            Self::Gradient(config) => (Box::new(Gradient::new(config.clone())?), config.min_limit, config.max_limit),
        };
        Ok(Some(Steering::new(controller, LimitBounds { min, max })))
    }

    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Fixed => FIXED,
            Self::Adaptive(_) => ADAPTIVE,
            Self::Aimd(_) => AIMD,
            Self::Gradient(_) => GRADIENT,
        }
    }

    fn with_defaults(name: &str) -> Option<Self> {
        Some(match name {
            FIXED => Self::Fixed,
            ADAPTIVE => Self::Adaptive(KneeConfig::default()),
            AIMD => Self::Aimd(AimdConfig::default()),
            GRADIENT => Self::Gradient(GradientConfig::default()),
            _ => return None,
        })
    }
}

const FIXED: &str = "fixed";
const ADAPTIVE: &str = "adaptive";
const AIMD: &str = "aimd";
const GRADIENT: &str = "gradient";
const NAMES: [&str; 4] = [FIXED, ADAPTIVE, AIMD, GRADIENT];

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if Self::with_defaults(self.name()).as_ref() == Some(self) {
            return serializer.serialize_str(self.name());
        }
        match self {
            Self::Fixed => serializer.serialize_str(FIXED),
            Self::Adaptive(config) => serializer.collect_map([(ADAPTIVE, config)]),
            Self::Aimd(config) => serializer.collect_map([(AIMD, config)]),
            Self::Gradient(config) => serializer.collect_map([(GRADIENT, config)]),
        }
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LimitVisitor)
    }
}

struct LimitVisitor;

impl<'de> Visitor<'de> for LimitVisitor {
    type Value = Limit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of {}, or a table of settings under one of these names", NAMES.join(", "))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Limit, E> {
        Limit::with_defaults(name).ok_or_else(|| E::unknown_variant(name, &NAMES))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Limit, A::Error> {
        let Some(name) = map.next_key::<String>()? else { return Err(A::Error::invalid_length(0, &self)) };
        let limit = match name.as_str() {
            ADAPTIVE => Limit::Adaptive(map.next_value()?),
            AIMD => Limit::Aimd(map.next_value()?),
            GRADIENT => Limit::Gradient(map.next_value()?),
            name => return Err(A::Error::unknown_variant(name, &NAMES[1..])),
        };
        match map.next_key::<String>()? {
            Some(another) => Err(A::Error::custom(format!("`{name}` and `{another}` cannot both decide the limit"))),
            None => Ok(limit),
        }
    }
}
