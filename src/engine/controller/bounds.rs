//! What a limit may be, and what a configuration may not.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// More calls than any process can have in flight; a larger number is a typo.
const MAX_COUNT: u32 = 1_000_000;

/// Longer than any call or limit window; a longer time is a wrong unit.
const MAX_DURATION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A limit moves between these two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bounds {
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// A controller's setting that can never work: which one, its value, and what would have been allowed.
///
/// ```
/// use tower_inflight::controller::{Knee, KneeConfig};
///
/// let error = Knee::new(KneeConfig { max_limit: 0, ..KneeConfig::default() }).unwrap_err();
///
/// assert_eq!(error.field(), "max_limit");
/// assert_eq!(error.value(), "0");
/// assert_eq!(error.to_string(), "`max_limit` is 0, allowed: 1 to 1000000");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidController {
    field: &'static str,
    value: String,
    allowed: String,
}

impl InvalidController {
    pub(crate) fn new(field: &'static str, value: impl fmt::Display, allowed: impl Into<String>) -> Self {
        Self { field, value: value.to_string(), allowed: allowed.into() }
    }

    /// The setting's name, with a dot where it is inside another: `latency.window`.
    #[must_use]
    pub fn field(&self) -> &str {
        self.field
    }

    pub(crate) fn allowed(&self) -> &str {
        &self.allowed
    }

    /// The refused value.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }
}

impl fmt::Display for InvalidController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is {}, allowed: {}", self.field, self.value, self.allowed)
    }
}

impl Error for InvalidController {}

impl Bounds {
    /// The three limits that every adaptive controller has, if they make sense together.
    pub(crate) fn parse(min: u32, initial: u32, max: u32) -> Result<Self, InvalidController> {
        check_count("min_limit", min)?;
        check_count("max_limit", max)?;
        if max < min {
            return Err(InvalidController::new("max_limit", max, format!("at least `min_limit` ({min})")));
        }
        if !(min..=max).contains(&initial) {
            return Err(InvalidController::new(
                "initial_limit",
                initial,
                format!("`min_limit` ({min}) to `max_limit` ({max})"),
            ));
        }
        Ok(Self { min: f64::from(min), max: f64::from(max) })
    }

    pub(crate) fn clamp(&self, limit: f64) -> f64 {
        limit.clamp(self.min, self.max)
    }

    /// Whole calls. The fraction is lost, but never the minimum.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "both bounds are positive u32")]
    pub(crate) fn round_down(&self, limit: f64) -> u32 {
        self.clamp(limit) as u32
    }
}

/// A limit of 0 would block its lane for ever.
pub(crate) fn check_count(field: &'static str, value: u32) -> Result<(), InvalidController> {
    if value == 0 || value > MAX_COUNT {
        return Err(InvalidController::new(field, value, format!("1 to {MAX_COUNT}")));
    }
    Ok(())
}

/// Refuses what is not strictly between `low` and `high`, NaN included.
pub(crate) fn check_between(field: &'static str, value: f64, low: f64, high: f64) -> Result<(), InvalidController> {
    if value > low && value < high {
        return Ok(());
    }
    Err(InvalidController::new(field, value, format!("more than {low} and less than {high}")))
}

pub(crate) fn check_duration(field: &'static str, value: Duration) -> Result<(), InvalidController> {
    if value.is_zero() {
        return Err(InvalidController::new(
            field,
            format!("{value:?}"),
            format!("more than 0, at most {MAX_DURATION:?}"),
        ));
    }
    check_duration_or_zero(field, value)
}

pub(crate) fn check_duration_or_zero(field: &'static str, value: Duration) -> Result<(), InvalidController> {
    if value > MAX_DURATION {
        return Err(InvalidController::new(field, format!("{value:?}"), format!("at most {MAX_DURATION:?}")));
    }
    Ok(())
}
