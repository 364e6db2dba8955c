//! How a call ended, and what that says about the upstream.

use std::time::Duration;

/// How a call ended.
///
/// What an outcome means to the limit, the pause and the breaker is decided by its [`kind`](Self::kind).
///
/// ```
/// use tower_inflight::{Outcome, OutcomeKind};
///
/// assert_eq!(Outcome::Unavailable.kind(), OutcomeKind::Failure);
/// assert_eq!(Outcome::Quota.kind(), OutcomeKind::Neutral);
/// assert_eq!(Outcome::ServerError.as_str(), "server_error");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// A 2xx or 3xx answer whose body ended well.
    Success,
    /// The upstream refused because it has too much to do: 429, 529, or an overload event inside a 200 stream.
    Overload,
    /// 502, 503 or 504: nobody there to answer.
    Unavailable,
    /// Any other 5xx.
    ServerError,
    /// No answer, or a body that broke off: connection refused, reset, protocol error.
    Transport,
    /// Silence past `first_byte_timeout` or `idle_timeout`.
    Stalled,
    /// A 4xx that says the request is wrong, not that the upstream is busy.
    ClientError,
    /// The account is empty: 402, or `insufficient_quota` dressed as a 429. Waiting does not help.
    Quota,
    /// A limiter further in refused the call; the upstream never saw it.
    Refused,
    /// The caller went away before the end.
    Cancelled,
}

impl Outcome {
    pub(crate) const ALL: [Self; 10] = [
        Self::Success,
        Self::Overload,
        Self::Unavailable,
        Self::ServerError,
        Self::Transport,
        Self::Stalled,
        Self::ClientError,
        Self::Quota,
        Self::Refused,
        Self::Cancelled,
    ];

    /// What the outcome says about the upstream.
    #[must_use]
    pub const fn kind(self) -> OutcomeKind {
        match self {
            Self::Success => OutcomeKind::Success,
            Self::Overload => OutcomeKind::Overload,
            Self::Unavailable | Self::ServerError | Self::Transport | Self::Stalled => OutcomeKind::Failure,
            Self::ClientError | Self::Quota | Self::Refused => OutcomeKind::Neutral,
            Self::Cancelled => OutcomeKind::Cancelled,
        }
    }

    /// The name used in metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Overload => "overload",
            Self::Unavailable => "unavailable",
            Self::ServerError => "server_error",
            Self::Transport => "transport",
            Self::Stalled => "stalled",
            Self::ClientError => "client_error",
            Self::Quota => "quota",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// The five things an outcome can mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OutcomeKind {
    /// The upstream did its work.
    Success,
    /// The upstream said it has too much to do.
    Overload,
    /// The upstream, or the way to it, broke.
    Failure,
    /// Says nothing about the upstream's health or load.
    Neutral,
    /// The caller gave up; says nothing either.
    Cancelled,
}

/// How a call ended, and for how long the upstream asked to be left alone.
///
/// ```
/// use std::time::Duration;
/// use tower_inflight::{Outcome, Pause, Verdict};
///
/// let busy = Verdict::new(Outcome::Overload).with_pause(Pause::For(Duration::from_secs(20)));
/// assert_eq!(busy.outcome(), Outcome::Overload);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    outcome: Outcome,
    pause: Option<Pause>,
}

impl Verdict {
    /// A verdict without a pause.
    #[must_use]
    pub const fn new(outcome: Outcome) -> Self {
        Self { outcome, pause: None }
    }

    /// Adds what the upstream said about waiting.
    #[must_use]
    pub const fn with_pause(self, pause: Pause) -> Self {
        Self { pause: Some(pause), ..self }
    }

    /// How the call ended.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// What the upstream said about waiting.
    #[must_use]
    pub const fn pause(&self) -> Option<Pause> {
        self.pause
    }
}

impl From<Outcome> for Verdict {
    fn from(outcome: Outcome) -> Self {
        Self::new(outcome)
    }
}

/// How long the upstream asked to be left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// For this long from now; bounded by [`max_pause`](crate::LimitConfig::max_pause).
    For(Duration),
    /// It named a moment that is already past, or zero: our own minimum, which doubles while refusals go on.
    Minimum,
}
