//! Keeps retries from multiplying the load of an upstream that is in trouble.
//!
//! First attempts always pass: what may be sent is for the limit and the breaker to say. A retry passes if the policy in
//! force has something left for it. What this crate refuses itself is no attempt and no outcome: a retry that was let in
//! and is never sent gives its part back.
//!
//! ```text
//!  arrives ─ admits? ─▶ admit ──┬─▶ on_sent ──▶ on_end
//!              │                └─▶ on_dropped   (refused, abandoned or expired on the way)
//!              ▼
//!           refused
//! ```

mod grpc;
mod ratio;
mod sre;

use std::time::Duration;

use self::grpc::Grpc;
use self::ratio::Ratio;
use self::sre::Sre;
use super::outcome::{Outcome, OutcomeKind};
use super::time::Time;

/// What holds retries back. Checked by the configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RetryPolicy {
    /// Retries are a fraction of first attempts.
    Ratio {
        ratio: f64,
        /// So many more, on average over the window.
        per_second: f64,
        window: Duration,
    },
    /// Failures cost a token, successes earn a part of one, and below half of the tokens nobody retries.
    Grpc { max_tokens: u32, token_ratio: f64 },
    /// Retries are refused with a probability that grows with the share of calls that the upstream does not accept.
    Sre { k: f64, window: Duration },
}

/// Which attempt of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    First,
    Retry,
}

/// The retries of one lane.
#[derive(Debug)]
pub(crate) struct Retries {
    policy: Option<RetryPolicy>,
    account: Account,
    /// Retries that were let in and are not sent yet. They count whatever the policy, so that it may change meanwhile.
    waiting: u32,
}

#[derive(Debug)]
enum Account {
    Off,
    Ratio(Ratio),
    Grpc(Grpc),
    Sre(Sre),
}

impl Retries {
    pub(crate) fn new(policy: Option<RetryPolicy>) -> Self {
        Self { policy, account: Account::new(policy), waiting: 0 }
    }

    /// Another policy begins with nothing known; the same one changes nothing.
    pub(crate) fn set_policy(&mut self, policy: Option<RetryPolicy>) {
        if policy != self.policy {
            self.policy = policy;
            self.account = Account::new(policy);
        }
    }

    /// Retries are bounded here.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.policy.is_some()
    }

    /// Whether the attempt may come in. If so, it is told of once more: [`on_sent`](Self::on_sent) or
    /// [`on_dropped`](Self::on_dropped). `luck` is a random number from 0 to 1, without 1.
    #[inline]
    pub(crate) fn admit(&mut self, attempt: Attempt, luck: f64, now: Time) -> bool {
        attempt == Attempt::First || self.admit_retry(luck, now)
    }

    #[cold]
    fn admit_retry(&mut self, luck: f64, now: Time) -> bool {
        let admits = match &mut self.account {
            Account::Off => true,
            Account::Ratio(ratio) => ratio.admits(self.waiting, now),
            Account::Grpc(grpc) => grpc.admits(),
            Account::Sre(sre) => sre.admits(luck, now),
        };
        self.waiting += u32::from(admits);
        admits
    }

    /// One that was dropped in this very step for want of a slot stays after all, to wait for it.
    #[inline]
    pub(crate) fn keep(&mut self, attempt: Attempt) {
        self.waiting += u32::from(attempt == Attempt::Retry);
    }

    /// An attempt that came in is sent.
    #[inline]
    pub(crate) fn on_sent(&mut self, attempt: Attempt, now: Time) {
        self.on_dropped(attempt);
        if let Account::Ratio(ratio) = &mut self.account {
            ratio.on_sent(attempt, now);
        }
    }

    /// An attempt that came in will not be sent.
    #[inline]
    pub(crate) fn on_dropped(&mut self, attempt: Attempt) {
        if attempt == Attempt::Retry {
            debug_assert!(self.waiting > 0, "a retry is sent or dropped once");
            self.waiting = self.waiting.saturating_sub(1);
        }
    }

    /// An attempt that was sent is over.
    #[inline]
    pub(crate) fn on_end(&mut self, outcome: Outcome, now: Time) {
        if matches!(self.account, Account::Grpc(_) | Account::Sre(_)) {
            self.learn(outcome, now);
        }
    }

    fn learn(&mut self, outcome: Outcome, now: Time) {
        let is_accepted = match outcome.kind() {
            OutcomeKind::Success => true,
            OutcomeKind::Overload | OutcomeKind::Failure => false,
            OutcomeKind::Neutral | OutcomeKind::Cancelled => return,
        };
        match &mut self.account {
            Account::Off | Account::Ratio(_) => {}
            Account::Grpc(grpc) => grpc.on_end(is_accepted),
            Account::Sre(sre) => sre.on_end(is_accepted, now),
        }
    }
}

impl Account {
    fn new(policy: Option<RetryPolicy>) -> Self {
        match policy {
            None => Self::Off,
            Some(RetryPolicy::Ratio { ratio, per_second, window }) => {
                Self::Ratio(Ratio::new(ratio, per_second, window))
            }
            Some(RetryPolicy::Grpc { max_tokens, token_ratio }) => Self::Grpc(Grpc::new(max_tokens, token_ratio)),
            Some(RetryPolicy::Sre { k, window }) => Self::Sre(Sre::new(k, window)),
        }
    }
}

#[cfg(test)]
mod tests;
