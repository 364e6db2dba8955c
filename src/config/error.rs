use std::fmt;

/// A setting that was refused: which one, its value, and what would have been allowed.
///
/// Comes from building or reconfiguring a [`Limiter`](crate::Limiter), before any call is affected.
///
/// ```
/// use tower_inflight::{LimitConfig, Limiter};
///
/// let config: LimitConfig = toml::from_str("max_inflight = 6\ninteractive_reserve = 9")?;
/// let error = Limiter::builder().config(config).build().unwrap_err();
///
/// assert_eq!(error.key(), "interactive_reserve");
/// assert_eq!(error.value(), "9");
/// assert_eq!(error.to_string(), "`interactive_reserve` is 9, allowed: at most `max_inflight` (6)");
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    key: String,
    value: String,
    allowed: String,
}

impl ConfigError {
    pub(crate) fn new(key: impl Into<String>, value: impl fmt::Display, allowed: impl Into<String>) -> Self {
        Self { key: key.into(), value: value.to_string(), allowed: allowed.into() }
    }

    /// The path of the setting, such as `overrides[2].queue_timeout`; entries count from 0.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The refused value, as a configuration file would show it.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is {}, allowed: {}", self.key, self.value, self.allowed)
    }
}

impl std::error::Error for ConfigError {}
