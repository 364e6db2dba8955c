use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::duration;
use crate::engine::quota::{FollowHeaders, QuotaPolicy, WhenShort};

/// What a provider allows per minute, in up to four dimensions at once. Each may be left out, and then does not bind.
///
/// A call is charged when its slot is granted, in every dimension or in none: one request, the tokens of its prompt as
/// estimated, and the most tokens that its answer may have. When it is over, what it did not use comes back: all of it if
/// the call was refused or never answered, else all but the usage that the provider reported. A report above the estimate
/// is owed, and repaid before anybody else is admitted.
///
/// ```
/// use tower_inflight::{LimitConfig, Quota, WhenShort};
///
/// let config: LimitConfig = toml::from_str(
///     r#"
///     max_inflight = 32
///
///     [quota]
///     requests_per_minute = 600
///     tokens_per_minute = 2_000_000
///     max_output = 1000
///
///     [[overrides]]
///     lane = "*|acme/metered"
///     quota = { tokens_per_minute = 90_000, when_short = "refuse" }
///     "#,
/// )?;
/// let quota = Quota { requests_per_minute: Some(600), tokens_per_minute: Some(2_000_000), ..Quota::default() };
/// assert_eq!(config.quota, Some(Quota { max_output: 1_000, ..quota }));
/// # Ok::<(), toml::de::Error>(())
/// ```
///
/// # Errors
///
/// Refused are a quota without any dimension, a dimension of 0, one that with its `burst` could not hold one call of
/// `max_output` tokens, and a `max_output` that the quota of a [pool](crate::PoolLimit::quota) could not hold, if it is certain
/// that the two meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quota {
    /// Requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u64>,
    /// Tokens of prompts and answers together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_minute: Option<u64>,
    /// Tokens of prompts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens_per_minute: Option<u64>,
    /// Tokens of answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens_per_minute: Option<u64>,
    /// A budget that nobody uses holds what comes in this time, and no more. Default 60 s: the whole minute at once, as
    /// providers allow. A shorter one smooths the load, and bounds the largest call.
    #[serde(with = "duration::text")]
    pub burst: Duration,
    /// Tokens of an answer that a call is charged which does not say how many it wants at most. Default 4,096. Embeddings
    /// and reranking have no such answer, and are not charged for one.
    pub max_output: u32,
    /// What becomes of a call for which there is not enough left. Default: it waits in line.
    pub when_short: WhenShort,
    /// Whether what is left is lowered to what the headers of answers say remains: of this many requests or tokens others who
    /// use the same account may have had their share. Default: it is not. Read are `x-ratelimit-remaining-requests` and
    /// `-tokens`, and `anthropic-ratelimit-requests-remaining`, `-tokens-remaining`, `-input-tokens-remaining` and
    /// `-output-tokens-remaining`, each in the dimension of its name.
    ///
    /// With [`FollowHeaders::Limits`] also the limits themselves, `x-ratelimit-limit-*` and `anthropic-ratelimit-*-limit`, as
    /// units per minute.
    pub follow_headers: FollowHeaders,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            requests_per_minute: None,
            tokens_per_minute: None,
            input_tokens_per_minute: None,
            output_tokens_per_minute: None,
            burst: Duration::from_secs(60),
            max_output: 4_096,
            when_short: WhenShort::Queue,
            follow_headers: FollowHeaders::Off,
        }
    }
}

impl Quota {
    pub(super) fn per_minute(&self) -> [Option<u64>; 4] {
        [self.requests_per_minute, self.tokens_per_minute, self.input_tokens_per_minute, self.output_tokens_per_minute]
    }

    /// The most that a budget of so much per minute holds.
    #[expect(clippy::cast_precision_loss, reason = "what may be set is far below 2^52")]
    pub(super) fn held(&self, per_minute: u64) -> f64 {
        per_minute as f64 / 60.0 * self.burst.as_secs_f64()
    }

    pub(crate) fn policy(&self) -> QuotaPolicy {
        QuotaPolicy { per_minute: self.per_minute(), burst: self.burst, follow_headers: self.follow_headers }
    }
}
