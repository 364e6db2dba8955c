//! What an answer, or the lack of one, says about the upstream.

use std::error::Error;
use std::time::SystemTime;

use http::StatusCode;
use http::response::Parts;

use self::error_json::ErrorJson;
use super::retry_after;
use crate::engine::outcome::{Outcome, Pause, Verdict};
use crate::usage::codes::QUOTA_CODES;
use crate::{Rejected, Stalled};

mod error_json;

/// Decides what an answer says about the upstream.
///
/// The default is [`ProviderClassify`]. Replace it where a gateway speaks its own dialect:
///
/// ```
/// use std::error::Error;
/// use std::time::SystemTime;
///
/// use http::response::Parts;
/// use tower_inflight::{Classify, Outcome, ProviderClassify, Verdict};
///
/// /// A gateway that answers 404 while a model is being loaded.
/// struct Loading(ProviderClassify);
///
/// impl Classify for Loading {
///     fn response(&self, head: &Parts, body: &[u8], now: SystemTime) -> Verdict {
///         match head.status.as_u16() {
///             404 if body.starts_with(b"loading") => Verdict::new(Outcome::Unavailable),
///             _ => self.0.response(head, body, now),
///         }
///     }
///
///     fn error(&self, error: &(dyn Error + 'static)) -> Verdict {
///         self.0.error(error)
///     }
/// }
/// ```
///
/// # Panics in an implementation
///
/// A panic costs only the call that was being classified; its slot comes back.
pub trait Classify: Send + Sync + 'static {
    /// Whether the first bytes of the body are worth a look before the verdict.
    ///
    /// The look ends with the body, after 8 KiB or after 250 ms, and the caller still reads every byte; until then the
    /// answer is held back and its slot stays taken. By default every 4xx and 5xx is looked at.
    fn wants_body(&self, head: &Parts) -> bool {
        !head.status.is_informational() && !head.status.is_success() && !head.status.is_redirection()
    }

    /// The verdict on an answer.
    ///
    /// `body` holds the bytes looked at: cut anywhere, empty if [`wants_body`](Self::wants_body) said no. `now` is what
    /// dates in headers are compared with.
    ///
    /// A [`Success`](Outcome::Success) is provisional: it stands if the body ends well.
    fn response(&self, head: &Parts, body: &[u8], now: SystemTime) -> Verdict;

    /// The verdict on a call that failed without an answer, or whose body broke off.
    fn error(&self, error: &(dyn Error + 'static)) -> Verdict;
}

/// Reads answers the way the public model APIs write them.
///
/// | answer | outcome | pause |
/// |---|---|---|
/// | 1xx, 2xx, 3xx | [`Success`](Outcome::Success) | never |
/// | 4xx with a quota code in its JSON, 402 | [`Quota`](Outcome::Quota) | never |
/// | 429, 529 | [`Overload`](Outcome::Overload) | `retry-after-ms`, `Retry-After`, reset headers of spent budgets |
/// | other 4xx, 408 and 499 too | [`ClientError`](Outcome::ClientError) | never |
/// | 502, 503, 504 | [`Unavailable`](Outcome::Unavailable) | `retry-after-ms`, `Retry-After` |
/// | other 5xx | [`ServerError`](Outcome::ServerError) | never |
/// | a [`Rejected`] of a limiter further in | [`Refused`](Outcome::Refused) | never |
/// | a [`Stalled`] | [`Stalled`](Outcome::Stalled) | never |
/// | any other error | [`Transport`](Outcome::Transport) | never |
///
/// A quota code counts where providers put it (`error.type`, `error.code`, both at the top level too), not in a
/// message, and as far as the first bytes of the body show it: `insufficient_quota`, `insufficient_user_quota`,
/// `billing_hard_limit_reached`, `billing_not_active`, `billing_error`, `exceeded_current_quota_error`, and those added
/// with [`quota_code`](Self::quota_code). A body that says nothing leaves the verdict to the status.
///
/// ```
/// use http::StatusCode;
/// use tower_inflight::{BodyHints, ProviderClassify};
///
/// let classify = ProviderClassify::new()
///     .overload_on(StatusCode::SERVICE_UNAVAILABLE)
///     .quota_code("balance_exhausted")
///     .body_hints(BodyHints::Honour);
/// # let _ = classify;
/// ```
#[derive(Clone, Debug, Default)]
pub struct ProviderClassify {
    overload_statuses: Vec<StatusCode>,
    quota_codes: Vec<String>,
    body_hints: BodyHints,
}

/// Whether a wait that is named in an error body, not in a header, makes a pause.
///
/// ```
/// use tower_inflight::BodyHints;
///
/// assert_eq!(BodyHints::default(), BodyHints::Ignore);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyHints {
    /// Headers only. The default.
    #[default]
    Ignore,
    /// Gemini's `RetryInfo.retryDelay` too. The later of the two pauses stands.
    Honour,
}

impl ProviderClassify {
    /// The reading of the table above.
    ///
    /// ```
    /// use http::{Response, StatusCode};
    /// use tower_inflight::{Classify, Outcome, ProviderClassify};
    ///
    /// let (head, ()) = Response::builder().status(StatusCode::NOT_FOUND).body(()).unwrap().into_parts();
    /// let verdict = ProviderClassify::new().response(&head, b"", std::time::UNIX_EPOCH);
    /// assert_eq!(verdict.outcome(), Outcome::ClientError);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one more error status for "too much to do", like 429 and 529, with the same pauses.
    ///
    /// 503 where the upstream answers a full queue with it; 408 behind a LiteLLM proxy, which reports its own upstream
    /// timeouts that way.
    ///
    /// ```
    /// use http::{Response, StatusCode};
    /// use tower_inflight::{Classify, Outcome, ProviderClassify};
    ///
    /// let classify = ProviderClassify::new().overload_on(StatusCode::SERVICE_UNAVAILABLE);
    /// let (head, ()) = Response::builder().status(503).body(()).unwrap().into_parts();
    /// assert_eq!(classify.response(&head, b"", std::time::UNIX_EPOCH).outcome(), Outcome::Overload);
    /// ```
    #[must_use]
    pub fn overload_on(mut self, status: StatusCode) -> Self {
        self.overload_statuses.push(status);
        self
    }

    /// Takes one more code or type in the JSON of a 4xx for "the account is empty". Compared as a whole.
    ///
    /// ```
    /// use http::Response;
    /// use tower_inflight::{Classify, Outcome, ProviderClassify};
    ///
    /// let classify = ProviderClassify::new().quota_code("1113");
    /// let (head, ()) = Response::builder().status(429).body(()).unwrap().into_parts();
    /// let verdict = classify.response(&head, br#"{"error":{"code":"1113"}}"#, std::time::UNIX_EPOCH);
    /// assert_eq!(verdict.outcome(), Outcome::Quota);
    /// ```
    #[must_use]
    pub fn quota_code(mut self, code: impl Into<String>) -> Self {
        self.quota_codes.push(code.into());
        self
    }

    /// Sets whether waits named in error bodies count. Default: [`BodyHints::Ignore`].
    ///
    /// ```
    /// use std::time::{Duration, UNIX_EPOCH};
    ///
    /// use http::Response;
    /// use tower_inflight::{BodyHints, Classify, Pause, ProviderClassify};
    ///
    /// let classify = ProviderClassify::new().body_hints(BodyHints::Honour);
    /// let (head, ()) = Response::builder().status(429).body(()).unwrap().into_parts();
    /// let verdict = classify.response(&head, br#"{"error":{"details":[{"retryDelay":"34s"}]}}"#, UNIX_EPOCH);
    /// assert_eq!(verdict.pause(), Some(Pause::For(Duration::from_secs(34))));
    /// ```
    #[must_use]
    pub fn body_hints(mut self, hints: BodyHints) -> Self {
        self.body_hints = hints;
        self
    }

    fn outcome(&self, status: StatusCode, json: &ErrorJson) -> Outcome {
        if status.is_client_error() && json.codes.iter().any(|code| self.is_quota_code(code)) {
            return Outcome::Quota;
        }
        if self.overload_statuses.contains(&status) {
            return Outcome::Overload;
        }
        match status.as_u16() {
            ..400 => Outcome::Success,
            402 => Outcome::Quota,
            429 | 529 => Outcome::Overload,
            400..500 => Outcome::ClientError,
            502..=504 => Outcome::Unavailable,
            _ => Outcome::ServerError,
        }
    }

    fn is_quota_code(&self, code: &str) -> bool {
        QUOTA_CODES.contains(&code) || self.quota_codes.iter().any(|known| known == code)
    }
}

impl Classify for ProviderClassify {
    /// Codes matter in a 4xx only; a 5xx is not held back for a look unless body hints are on.
    fn wants_body(&self, head: &Parts) -> bool {
        let hinted = self.body_hints == BodyHints::Honour && head.status.as_u16() >= 500;
        head.status.is_client_error() || hinted
    }

    fn response(&self, head: &Parts, body: &[u8], now: SystemTime) -> Verdict {
        let json = ErrorJson::read(body);
        let outcome = self.outcome(head.status, &json);
        let told = match outcome {
            Outcome::Overload => retry_after::pause(&head.headers, now),
            Outcome::Unavailable => retry_after::explicit_pause(&head.headers, now),
            _ => return Verdict::new(outcome),
        };
        let hinted = json.retry_delay.filter(|_| self.body_hints == BodyHints::Honour);
        let verdict = Verdict::new(outcome);
        later(told, hinted).map_or(verdict, |pause| verdict.with_pause(pause))
    }

    fn error(&self, error: &(dyn Error + 'static)) -> Verdict {
        let outcome = if Rejected::find(error).is_some() {
            Outcome::Refused
        } else if Stalled::find(error).is_some() {
            Outcome::Stalled
        } else {
            Outcome::Transport
        };
        Verdict::new(outcome)
    }
}

fn later(told: Option<Pause>, hinted: Option<Pause>) -> Option<Pause> {
    match (told, hinted) {
        (Some(Pause::For(told)), Some(Pause::For(hinted))) => Some(Pause::For(told.max(hinted))),
        (Some(Pause::Minimum) | None, Some(hinted)) => Some(hinted),
        (told, _) => told,
    }
}

#[cfg(test)]
mod tests;
