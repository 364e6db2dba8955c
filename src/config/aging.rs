use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::duration::OrOff;

/// How fast waiters rise from class to class, so that bulk work does not starve.
///
/// In files a duration, or `"off"`. The default is a step every 60 s; a step of zero is refused.
///
/// ```
/// use std::time::Duration;
/// use tower_inflight::{Aging, LimitConfig};
///
/// let config: LimitConfig = toml::from_str(r#"aging_step = "1m 30s""#)?;
/// assert_eq!(config.aging_step, Aging::Every(Duration::from_secs(90)));
///
/// let config: LimitConfig = toml::from_str(r#"aging_step = "off""#)?;
/// assert_eq!(config.aging_step, Aging::Off);
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "OrOff", into = "OrOff")]
pub enum Aging {
    /// A waiter rises one class each time it has waited this long.
    Every(Duration),
    /// Waiters stay in their own class. Under steady load from above, the lower classes then get nothing.
    Off,
}

impl Aging {
    pub(crate) fn step(self) -> Option<Duration> {
        match self {
            Self::Every(step) => Some(step),
            Self::Off => None,
        }
    }
}

impl Default for Aging {
    fn default() -> Self {
        Self::Every(Duration::from_secs(60))
    }
}

impl From<OrOff> for Aging {
    fn from(step: OrOff) -> Self {
        step.0.map_or(Self::Off, Self::Every)
    }
}

impl From<Aging> for OrOff {
    fn from(aging: Aging) -> Self {
        Self(aging.step())
    }
}
