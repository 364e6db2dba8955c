//! Tokens that a lane's answers reported.

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::usage::Usage;

/// Sums over the calls of a lane that have ended.
#[derive(Debug, Default)]
pub(crate) struct ReportedTokens {
    input: AtomicU64,
    output: AtomicU64,
    unknown: AtomicU64,
    after_hangup: AtomicU64,
}

/// The same at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TokenTotals {
    pub(crate) input: u64,
    pub(crate) output: u64,
    /// Answers that reported neither.
    pub(crate) unknown: u64,
    /// Of output that reached nobody.
    pub(crate) after_hangup: u64,
}

impl ReportedTokens {
    pub(super) fn add(&self, usage: Usage) {
        if usage.is_unknown() {
            self.unknown.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.input.fetch_add(usage.input_tokens.unwrap_or(0), Ordering::Relaxed);
        self.output.fetch_add(usage.output_tokens.unwrap_or(0), Ordering::Relaxed);
    }

    pub(super) fn add_after_hangup(&self, tokens: u64) {
        self.after_hangup.fetch_add(tokens, Ordering::Relaxed);
    }

    pub(super) fn totals(&self) -> TokenTotals {
        let read = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        TokenTotals {
            input: read(&self.input),
            output: read(&self.output),
            unknown: read(&self.unknown),
            after_hangup: read(&self.after_hangup),
        }
    }
}
