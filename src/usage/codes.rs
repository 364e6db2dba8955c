//! What providers call their errors and their events.

use crate::engine::outcome::Outcome;

/// Codes and types that say the account is empty.
pub(crate) const QUOTA_CODES: [&str; 6] = [
    "insufficient_quota",
    "insufficient_user_quota",
    "billing_hard_limit_reached",
    "billing_not_active",
    "billing_error",
    "exceeded_current_quota_error",
];

/// Parts of codes and types that say the upstream has too much to do.
const OVERLOAD: [&str; 7] =
    ["overload", "rate_limit", "ratelimit", "too_many_requests", "resource_exhausted", "throttl", "slow_down"];

/// Parts of those that say the request is wrong.
const CLIENT: [&str; 10] = [
    "invalid_request",
    "invalid_prompt",
    "invalid_argument",
    "badrequest",
    "bad_request",
    "authentication",
    "permission",
    "not_found",
    "context_length",
    "content_filter",
];

/// Parts of those that say nobody is there to answer.
const UNAVAILABLE: [&str; 2] = ["unavailable", "timeout"];

/// What a code inside a 200 says, the most telling last: an error often carries a vague type beside a clear code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Code {
    Server,
    Unavailable,
    Client,
    Overload,
    Quota,
}

impl Code {
    /// A status spelled as a number or text, or a name.
    pub(super) fn of(code: &[u8]) -> Self {
        let code = code.to_ascii_lowercase();
        let code = std::str::from_utf8(&code).unwrap_or_default();
        if let Ok(status) = code.parse::<u16>() {
            return Self::of_status(status);
        }
        let has_any = |parts: &[&str]| parts.iter().any(|part| code.contains(part));
        if QUOTA_CODES.contains(&code) {
            Self::Quota
        } else if has_any(&OVERLOAD) {
            Self::Overload
        } else if has_any(&CLIENT) {
            Self::Client
        } else if has_any(&UNAVAILABLE) {
            Self::Unavailable
        } else {
            Self::Server
        }
    }

    fn of_status(status: u16) -> Self {
        match status {
            402 => Self::Quota,
            429 | 529 => Self::Overload,
            400..500 => Self::Client,
            502..=504 => Self::Unavailable,
            _ => Self::Server,
        }
    }

    pub(super) fn outcome(self) -> Outcome {
        match self {
            Self::Server => Outcome::ServerError,
            Self::Unavailable => Outcome::Unavailable,
            Self::Client => Outcome::ClientError,
            Self::Overload => Outcome::Overload,
            Self::Quota => Outcome::Quota,
        }
    }
}

/// What the type of an event, or its name, says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The first of a stream that will have a last.
    Start,
    /// A piece of the answer.
    Delta,
    /// The last.
    End,
    /// The last, and the answer failed.
    Failed,
    Error,
    Other,
}

impl Kind {
    pub(super) fn of(name: &[u8]) -> Self {
        match name {
            b"error" => Self::Error,
            b"message_start" | b"message-start" | b"response.created" => Self::Start,
            b"message_stop" | b"message-end" | b"response.completed" | b"response.incomplete" => Self::End,
            b"response.failed" => Self::Failed,
            b"message_delta" => Self::Other,
            _ if name.ends_with(b"delta") => Self::Delta,
            _ => Self::Other,
        }
    }
}
