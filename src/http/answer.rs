//! What becomes of the slot when the head of the answer is there.

use std::task::{Context, Poll};

use http::{Response, StatusCode, response};
use http_body::Body;

use super::answer_rules::AnswerRules;
use super::body::{Hold, ResponseBody};
use super::classify::Classify;
use super::error_body::{Peek, Replay};
use super::guard::Guard;
use super::watch::Watch;
use crate::BoxError;
use crate::engine::outcome::Verdict;
use crate::error::Stalled;
use crate::limiter::{Permit, clock};

/// A slot, and the watch over the upstream that started with it.
pub(crate) struct Held {
    permit: Permit,
    guard: Guard,
    rules: AnswerRules,
}

impl Held {
    /// `None` when the limiter is off: nothing to hold, nothing to watch, nothing to judge.
    pub(crate) fn new(permit: Permit, rules: AnswerRules) -> Option<Self> {
        let guard = Guard::new(permit.guards());
        permit.is_held().then_some(Self { permit, guard, rules })
    }

    /// The upstream has nothing right now. Ready when that has gone on for too long.
    pub(crate) fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<Stalled> {
        let permit = &self.permit;
        self.guard.poll_silence(cx).map(|(silence, after)| Stalled::new(permit.lane_key(), silence, after))
    }
}

pub(crate) enum Answer<B: Body> {
    Whole(Response<ResponseBody<B>>),
    Peek(response::Parts, Peek<B>),
}

#[inline]
pub(crate) fn answer<B: Body>(response: Response<B>, is_head: bool, held: &mut Option<Held>) -> Answer<B> {
    let Some(Held { permit, rules, .. }) = held.as_mut() else {
        return Answer::Whole(response.map(|body| ResponseBody::free(Replay::Untouched(body))));
    };
    let (mut head, body) = response.into_parts();
    if let Some(admitted) = permit.admitted() {
        head.extensions.insert(admitted);
    }
    // An answer that is not a success gives its slot back at the head: retry layers keep such a response alive while they
    // sleep and call again, and a limit of 1 would wait for itself.
    let is_refusal = !head.status.is_success();
    if is_refusal && rules.classify.wants_body(&head) && !body.is_end_stream() {
        return Answer::Peek(head, Peek::new(body));
    }
    let verdict = rules.classify.response(&head, &[], clock::wall());
    if is_refusal || has_no_body(&head, &body, is_head) {
        // How fast it refuses says nothing about how fast it answers.
        if !is_refusal {
            permit.note_first_byte();
        }
        settle(held, verdict);
        return Answer::Whole(Response::from_parts(head, ResponseBody::free(Replay::Untouched(body))));
    }
    let body = match held.take() {
        Some(Held { permit, mut guard, rules }) => {
            guard.rest();
            let watch = Watch::new(&rules, &head.headers);
            ResponseBody::holding(body, Hold::new(permit, guard, rules.classify, verdict, watch))
        }
        None => ResponseBody::free(Replay::Untouched(body)),
    };
    Answer::Whole(Response::from_parts(head, body))
}

fn has_no_body<B: Body>(head: &response::Parts, body: &B, is_head: bool) -> bool {
    is_head
        || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || body.is_end_stream()
        || body.size_hint().exact() == Some(0)
}

pub(crate) fn failed(held: &mut Option<Held>, error: BoxError) -> BoxError {
    judge(held, |classify| classify.error(&*error));
    error
}

fn judge(held: &mut Option<Held>, verdict: impl FnOnce(&dyn Classify) -> Verdict) {
    if let Some(Held { rules, .. }) = held {
        let verdict = verdict(&*rules.classify);
        settle(held, verdict);
    }
}

pub(crate) fn settle(held: &mut Option<Held>, verdict: impl Into<Verdict>) {
    if let Some(Held { permit, .. }) = held.take() {
        permit.settle(verdict);
    }
}

/// The look at an error body is over: the slot goes before the caller sees the answer.
pub(crate) fn peeked<B: Body>(
    head: response::Parts,
    peek: Peek<B>,
    held: &mut Option<Held>,
) -> Response<ResponseBody<B>> {
    judge(held, |classify| classify.response(&head, peek.prefix(), clock::wall()));
    Response::from_parts(head, ResponseBody::free(peek.into_body()))
}
