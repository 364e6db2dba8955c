//! Changes of what a lane or a pool lets through, and what each was due to.

use std::fmt;
use std::time::Duration;

use super::breaker::BreakerState;
use super::outcome::Outcome;

/// What changed.
///
/// ```
/// use tower_inflight::ChangeKind;
///
/// let change = ChangeKind::Limit { from: 16, to: 4 };
/// assert_eq!(change.to_string(), "limit 16 -> 4");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeKind {
    /// Another number of calls may be in flight.
    Limit {
        /// Before.
        from: u32,
        /// Now.
        to: u32,
    },
    /// Nothing is sent for this long from now on.
    Pause {
        /// What is left of the pause.
        left: Duration,
    },
    /// The [`Controller`](crate::controller::Controller) asked for a limit that none can be, and got the nearest that can.
    /// Told once, until it asks for a possible one again.
    Clamped {
        /// What it asked for.
        asked: u32,
        /// What it got.
        got: u32,
    },
    /// The [`Controller`](crate::controller::Controller) panicked. It is not asked any more; the limit stays as it was.
    ControllerPanicked,
    /// The breaker lets more through, or less.
    Breaker {
        /// Before.
        from: BreakerState,
        /// Now.
        to: BreakerState,
    },
}

/// What a change was due to.
///
/// ```
/// use tower_inflight::{Cause, Outcome};
///
/// assert_eq!(Cause::Answer(Outcome::Overload).to_string(), "overload");
/// assert_eq!(Cause::Config.to_string(), "config");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// A call ended like this.
    Answer(Outcome),
    /// The first byte of an answer came.
    FirstByte,
    /// A call was sent.
    Sent,
    /// The configuration was replaced.
    Config,
    /// Too many calls failed.
    Failures,
    /// Too many calls began late, or one that was to show that the upstream is back.
    Slowness,
    /// The time of the state before was over.
    Elapsed,
}

impl fmt::Display for ChangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit { from, to } => write!(f, "limit {from} -> {to}"),
            Self::Pause { left } => write!(f, "pause of {left:.1?}"),
            Self::Clamped { asked, got } => write!(f, "limit {asked} taken as {got}"),
            Self::ControllerPanicked => f.write_str("controller panicked, limit kept"),
            Self::Breaker { from, to } => write!(f, "breaker {from} -> {to}"),
        }
    }
}

impl Cause {
    /// The name used in snapshots.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answer(outcome) => outcome.as_str(),
            Self::FirstByte => "first_byte",
            Self::Sent => "sent",
            Self::Config => "config",
            Self::Failures => "failures",
            Self::Slowness => "slowness",
            Self::Elapsed => "elapsed",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
