//! What a provider admits per minute, in up to four dimensions at once.
//!
//! A call is charged before it is sent with what it may use at most, in every dimension or in none, and what it did not use
//! comes back when it is over.

mod bucket;

use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::bucket::Bucket;
use super::outcome::Outcome;
use super::time::Time;

/// A dimension in which a provider limits its use per minute.
///
/// ```
/// assert_eq!(tower_inflight::Dimension::InputTokens.to_string(), "input_tokens_per_minute");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dimension {
    /// Requests.
    Requests,
    /// Input and output tokens together.
    Tokens,
    /// Tokens of prompts.
    InputTokens,
    /// Tokens of answers.
    OutputTokens,
}

impl Dimension {
    pub(crate) const ALL: [Self; 4] = [Self::Requests, Self::Tokens, Self::InputTokens, Self::OutputTokens];

    /// The length of an answer counts in it.
    pub(crate) const fn has_output(self) -> bool {
        matches!(self, Self::Tokens | Self::OutputTokens)
    }

    /// The setting that bounds it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests_per_minute",
            Self::Tokens => "tokens_per_minute",
            Self::InputTokens => "input_tokens_per_minute",
            Self::OutputTokens => "output_tokens_per_minute",
        }
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What becomes of a call for which a budget per minute has not enough left.
///
/// ```
/// assert_eq!(serde_json::to_string(&tower_inflight::WhenShort::Refuse)?, r#""refuse""#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum WhenShort {
    /// It waits in line, by class and arrival like all others.
    #[default]
    Queue,
    /// It is refused on arrival, with the time until there will be enough. One that has to wait for a slot first, and finds
    /// too little when it is first in line, waits for the rest.
    Refuse,
}

/// Whether what the provider says remains is believed.
///
/// ```
/// assert_eq!(serde_json::to_string(&tower_inflight::FollowHeaders::Off)?, r#""off""#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FollowHeaders {
    /// The budget counts the calls that pass through it, and nothing else. The default.
    #[default]
    Off,
    /// The budget is lowered to what the headers of an answer say remains, if that is less. It is never raised by them.
    On,
    /// Also, it is made as small as the limit per minute that they name, and fills no faster: down to a tenth of what is
    /// configured, and never above that. Five minutes after it was last named, the configured size is back.
    Limits,
}

/// What a lane or pool may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuotaPolicy {
    /// By [`Dimension`]; `None`: not limited in it.
    pub(crate) per_minute: [Option<u64>; 4],
    /// A bucket holds what comes in this time.
    pub(crate) burst: Duration,
    pub(crate) follow_headers: FollowHeaders,
}

/// Tokens of one call: what it may use, or what it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub(crate) input: u32,
    pub(crate) output: u32,
}

impl Tokens {
    pub(crate) fn sum(self) -> u64 {
        u64::from(self.input) + u64::from(self.output)
    }
}

/// What counts in a dimension, as masks: a sum without a branch, for every call and dimension.
#[derive(Clone, Copy, Debug)]
struct Counts {
    requests: u32,
    input: u32,
    output: u32,
}

impl Counts {
    fn in_dimension(dimension: Dimension) -> Self {
        const NOT: u32 = 0;
        const ALL: u32 = u32::MAX;
        let [requests, input, output] = match dimension {
            Dimension::Requests => [ALL, NOT, NOT],
            Dimension::Tokens => [NOT, ALL, ALL],
            Dimension::InputTokens => [NOT, ALL, NOT],
            Dimension::OutputTokens => [NOT, NOT, ALL],
        };
        Self { requests, input, output }
    }

    #[inline]
    fn charge(self, Tokens { input, output }: Tokens, is_request: bool) -> u32 {
        (u32::from(is_request) & self.requests) + (input & self.input).saturating_add(output & self.output)
    }
}

/// What is known of the tokens of a call that is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reported {
    /// As the provider reported it, each part by itself.
    pub(crate) input: Option<u32>,
    pub(crate) output: Option<u32>,
    /// Of the answer, as far as it was seen to pass; `None`: nobody could tell.
    pub(crate) output_seen: Option<u32>,
}

/// Tokens of calls that are over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    /// Charged before calls were sent.
    pub(crate) admitted: u64,
    /// Of these, what came back.
    pub(crate) refunded: u64,
    /// Used beyond what was charged.
    pub(crate) beyond: u64,
}

impl Spent {
    pub(crate) fn of(charged: Tokens, used: Tokens) -> Self {
        let [charged, used] = [charged, used].map(Tokens::sum);
        Self { admitted: charged, refunded: charged.saturating_sub(used), beyond: used.saturating_sub(charged) }
    }

    pub(crate) fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.admitted += other.admitted;
        self.refunded += other.refunded;
        self.beyond += other.beyond;
    }
}

/// What a budget shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct QuotaView {
    /// What is left in each dimension; below zero: to be repaid.
    pub(crate) left: [Option<f64>; 4],
    /// What the provider leaves of the configured size, in the dimension in which that is least.
    pub(crate) size: f64,
    pub(crate) spent: Spent,
}

/// What the provider said remains, and of how much per minute. By [`Dimension`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remaining {
    pub(crate) said_at: Time,
    pub(crate) left: [Option<u64>; 4],
    pub(crate) of: [Option<u64>; 4],
}

#[derive(Debug)]
pub(crate) struct Quota {
    budgets: Vec<Budget>,
    follow_headers: FollowHeaders,
    /// Refusals of calls sent before this have been heeded.
    slowed_at: Time,
    spent: Spent,
}

/// Of a dimension that is limited.
#[derive(Debug)]
struct Budget {
    dimension: Dimension,
    counts: Counts,
    bucket: Bucket,
}

impl Quota {
    pub(crate) fn new(policy: QuotaPolicy, now: Time) -> Self {
        let budget = |(dimension, per_minute): (Dimension, Option<u64>)| {
            let bucket = Bucket::new(per_minute?, policy.burst, now);
            Some(Budget { dimension, counts: Counts::in_dimension(dimension), bucket })
        };
        Self {
            budgets: Dimension::ALL.into_iter().zip(policy.per_minute).filter_map(budget).collect(),
            follow_headers: policy.follow_headers,
            slowed_at: Time::ZERO,
            spent: Spent::default(),
        }
    }

    /// Another policy; what was used stays used.
    pub(crate) fn set_policy(&mut self, policy: QuotaPolicy, now: Time) {
        self.follow_headers = policy.follow_headers;
        let before = std::mem::replace(&mut self.budgets, Self::new(policy, now).budgets);
        for Budget { dimension, bucket, .. } in &mut self.budgets {
            let same = before.iter().find(|before| before.dimension == *dimension);
            if let (Some(before), Some(per_minute)) = (same, policy.per_minute[*dimension as usize]) {
                *bucket = before.bucket;
                bucket.resize(per_minute, policy.burst, now);
            }
        }
    }

    /// The dimension in which a call asks for more than there can ever be.
    pub(crate) fn too_large(&self, tokens: Tokens) -> Option<(Dimension, u64)> {
        let too_large = self.budgets.iter().find(|budget| !budget.bucket.could_hold(budget.charge(tokens)));
        too_large.map(|budget| (budget.dimension, whole(budget.bucket.capacity())))
    }

    /// Whether a call that comes now fits in every dimension. If not, [`too_large`](Self::too_large) and
    /// [`fits_at`](Self::fits_at) say why.
    #[inline(always)]
    pub(crate) fn fits_now(&mut self, tokens: Tokens, now: Time) -> bool {
        self.budgets.iter_mut().all(|budget| budget.bucket.fits_now(budget.charge(tokens), now))
    }

    /// When the call fits in every dimension, and which is the last; now, if it does.
    pub(crate) fn fits_at(&mut self, tokens: Tokens, now: Time) -> (Time, Dimension) {
        let mut latest = (now, Dimension::Requests);
        for budget in &mut self.budgets {
            let fits_at = budget.bucket.fits_after(0, budget.charge(tokens), now);
            if fits_at > latest.0 {
                latest = (fits_at, budget.dimension);
            }
        }
        latest
    }

    /// When a call fits after so many others, each of which uses so much.
    pub(crate) fn fits_after(&mut self, ahead: u32, each: Tokens, then: Tokens, now: Time) -> Time {
        let fits_at = |budget: &mut Budget| {
            let before = budget.charge(each).saturating_mul(ahead);
            budget.bucket.fits_after(before, budget.charge(then), now)
        };
        self.budgets.iter_mut().map(fits_at).max().unwrap_or(now)
    }

    #[inline(always)]
    pub(crate) fn take(&mut self, tokens: Tokens) {
        for budget in &mut self.budgets {
            budget.bucket.take(budget.charge(tokens));
        }
    }

    /// A call that was charged and not sent.
    pub(crate) fn give_back(&mut self, tokens: Tokens, now: Time) {
        for budget in &mut self.budgets {
            budget.bucket.correct(budget.charge(tokens), 0, now);
        }
    }

    /// A call that is over: what it was charged, what it used, and what that makes.
    #[inline(always)]
    pub(crate) fn settle(&mut self, charged: Tokens, used: Used, spent: Spent, now: Time) {
        self.spent += spent;
        for budget in &mut self.budgets {
            let used = budget.counts.charge(used.tokens, used.is_request);
            budget.bucket.correct(budget.charge(charged), used, now);
        }
    }

    /// The provider refused a call that was granted at `granted_at`: once per wave of refusals.
    pub(crate) fn slow_down(&mut self, granted_at: Time, now: Time) {
        if granted_at >= self.slowed_at {
            self.slowed_at = now;
            self.budgets.iter_mut().for_each(|budget| budget.bucket.slow_down(now));
        }
    }

    /// The provider said how much is left, and of how much, as far as that is to be believed.
    pub(crate) fn heed(&mut self, remaining: Remaining, now: Time) {
        let Remaining { said_at, left, of } = remaining;
        let (left, of) = match self.follow_headers {
            FollowHeaders::Off => return,
            FollowHeaders::On => (left, [None; 4]),
            FollowHeaders::Limits => (left, of),
        };
        for Budget { dimension, bucket, .. } in &mut self.budgets {
            if let Some(of) = of[*dimension as usize] {
                bucket.size_to(of, said_at, now);
            }
            if let Some(left) = left[*dimension as usize] {
                bucket.lower_to(left, said_at, now);
            }
        }
    }

    /// Nothing of it is in use: it may be forgotten.
    pub(crate) fn is_full(&mut self, now: Time) -> bool {
        self.budgets.iter_mut().all(|budget| budget.bucket.is_full(now))
    }

    pub(crate) fn view(&mut self, now: Time) -> QuotaView {
        let (mut left, mut size) = ([None; 4], 1.0_f64);
        for Budget { dimension, bucket, .. } in &mut self.budgets {
            left[*dimension as usize] = Some(bucket.balance(now));
            size = size.min(bucket.size(now));
        }
        QuotaView { left, size, spent: self.spent }
    }
}

impl Budget {
    /// What a call counts as that is sent.
    #[inline]
    fn charge(&self, tokens: Tokens) -> u32 {
        self.counts.charge(tokens, true)
    }
}

/// What a call that is over counts as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) tokens: Tokens,
    /// The provider has counted a request.
    pub(crate) is_request: bool,
}

impl Used {
    /// | ending | tokens | request |
    /// |---|---|---|
    /// | no answer at all | none | no |
    /// | refused: 429, other 4xx, an answer that is an error | none | yes |
    /// | usage was reported | exactly that; a part that was not, as charged | yes |
    /// | an answer without usage | as charged; output by what was seen of an answer that did not end well | yes |
    pub(crate) fn of(charged: Tokens, outcome: Outcome, has_begun: bool, usage: Reported) -> Self {
        if outcome == Outcome::Refused || (!has_begun && outcome == Outcome::Transport) {
            return Self::default();
        }
        let is_reported = usage.input.is_some() || usage.output.is_some();
        if !has_begun && !is_reported && outcome != Outcome::Success {
            return Self { tokens: Tokens::default(), is_request: true };
        }
        let unreported = match usage.output_seen {
            Some(seen) if outcome != Outcome::Success => seen.min(charged.output),
            _ => charged.output,
        };
        let tokens = Tokens { input: usage.input.unwrap_or(charged.input), output: usage.output.unwrap_or(unreported) };
        Self { tokens, is_request: true }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "capacities are positive")]
fn whole(units: f64) -> u64 {
    units as u64
}

#[cfg(test)]
mod tests;
