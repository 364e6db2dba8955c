//! The slot of one call over HTTP, from its grant to the end of the answer.

use std::task::{Context, Poll};

use http::HeaderMap;

use super::answer_rules::AnswerRules;
use super::guard::Guard;
use super::hangup::untaken;
use super::watch::Watch;
use crate::engine::outcome::{Outcome, Verdict};
use crate::error::Stalled;
use crate::limiter::Permit;

/// A slot, the watch over the upstream that started with it, and what is known so far of how the call ends.
///
/// In a box of its own: it goes from the future into the body, and both are moved around by whoever wraps them.
pub(crate) struct Held {
    pub(super) permit: Permit,
    pub(super) guard: Guard,
    pub(super) rules: AnswerRules,
    /// If the body ends well.
    verdict: Verdict,
    pub(super) watch: Watch,
}

impl Held {
    /// `None` when the limiter is off: nothing to hold, nothing to watch, nothing to judge.
    #[inline]
    pub(crate) fn new(permit: Permit, rules: AnswerRules) -> Option<Box<Self>> {
        if !permit.is_held() {
            return None;
        }
        let (guard, watch) = (Guard::new(permit.guards()), Watch::blank(&rules));
        Some(Box::new(Self { permit, guard, rules, verdict: Outcome::Success.into(), watch }))
    }

    /// The upstream has nothing right now. Ready when that has gone on for too long.
    pub(crate) fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<Stalled> {
        let permit = &self.permit;
        self.guard.poll_silence(cx).map(|(silence, after)| Stalled::new(permit.lane_key(), silence, after))
    }

    /// The head is there, and the slot stays with the body: `verdict` stands if that ends well.
    pub(super) fn follow(&mut self, headers: &HeaderMap, verdict: Verdict) {
        self.guard.rest();
        self.watch = Watch::new(&self.rules, headers);
        self.verdict = verdict;
    }

    /// The call is over before its body.
    pub(super) fn settle(&mut self, verdict: Verdict) {
        self.permit.end(verdict, None);
    }

    /// The body has ended well, as far as the transport knows.
    pub(super) fn end(&mut self) {
        let (verdict, reading) = self.watch.finish(self.verdict);
        self.permit.end(verdict, reading);
    }

    /// The same, and something was heard just now.
    pub(super) fn end_heard(&mut self) {
        let (verdict, reading) = self.watch.finish(self.verdict);
        self.permit.end_heard(verdict, reading);
    }

    /// The body has failed, unless the stream had named a trouble of its own before.
    pub(super) fn fail(&mut self, failure: impl FnOnce(&Self) -> Verdict) {
        let (told, reading) = self.watch.finish(self.verdict);
        let verdict = if self.watch.has_trouble() { told } else { failure(self) };
        self.permit.end(verdict, reading);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.permit.is_held() {
            let (verdict, reading) = self.watch.finish(self.verdict);
            let untaken = untaken().tokens(self.permit.bytes(), reading.as_ref());
            self.permit.note_after_hangup(untaken);
            let verdict = if self.watch.is_complete() { verdict } else { Outcome::Cancelled.into() };
            self.permit.end(verdict, reading);
        }
    }
}
