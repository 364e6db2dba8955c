//! What becomes of the slot when the head of the answer is there.

use http::{HeaderMap, Response, StatusCode, response};
use http_body::Body;

use super::body::ResponseBody;
use super::classify::Classify;
use super::error_body::{Peek, Replay};
use super::held::Held;
use super::remaining::remaining;
use crate::BoxError;
use crate::engine::outcome::Verdict;
use crate::limiter::clock;

/// What becomes of the slot.
pub(crate) enum Fate {
    /// It has gone, or there was none.
    Free,
    /// It goes when the first bytes of the body have been looked at.
    Peek,
    /// It goes with the body, by this verdict if that ends well.
    Held(Verdict),
}

/// Looks at the head alone, so that the answer itself need not be moved.
#[inline]
pub(crate) fn fate<B: Body>(head: &mut response::Parts, body: &B, is_head: bool, held: &mut Option<Box<Held>>) -> Fate {
    let Some(Held { permit, rules, .. }) = held.as_deref_mut() else { return Fate::Free };
    if let Some(admitted) = permit.admitted() {
        head.extensions.insert(admitted);
    }
    if permit.follows_headers() {
        if let Some((left, of)) = remaining(&head.headers) {
            permit.note_remaining(left, of);
        }
    }
    // An answer that is not a success gives its slot back at the head: retry layers keep such a response alive while they
    // sleep and call again, and a limit of 1 would wait for itself.
    let is_refusal = !head.status.is_success();
    if is_refusal && rules.classify.wants_body(head) && !body.is_end_stream() {
        return Fate::Peek;
    }
    let verdict = rules.classify.response(head, &[], clock::wall());
    if is_refusal || has_no_body(head, body, is_head) {
        // How fast it refuses says nothing about how fast it answers.
        if !is_refusal {
            permit.note_first_byte();
        }
        settle(held, verdict);
        return Fate::Free;
    }
    Fate::Held(verdict)
}

#[inline]
pub(crate) fn free<B: Body>(body: B) -> ResponseBody<B> {
    ResponseBody::free(Replay::Untouched(body))
}

#[inline]
pub(crate) fn holding<B: Body>(
    body: B,
    headers: &HeaderMap,
    verdict: Verdict,
    held: &mut Option<Box<Held>>,
) -> ResponseBody<B> {
    let Some(mut held) = held.take() else { return free(body) };
    held.follow(headers, verdict);
    ResponseBody::holding(body, held)
}

fn has_no_body<B: Body>(head: &response::Parts, body: &B, is_head: bool) -> bool {
    is_head
        || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || body.is_end_stream()
        || body.size_hint().exact() == Some(0)
}

pub(crate) fn failed(held: &mut Option<Box<Held>>, error: BoxError) -> BoxError {
    judge(held, |classify| classify.error(&*error));
    error
}

fn judge(held: &mut Option<Box<Held>>, verdict: impl FnOnce(&dyn Classify) -> Verdict) {
    if let Some(mut held) = held.take() {
        let verdict = verdict(&*held.rules.classify);
        held.settle(verdict);
    }
}

pub(crate) fn settle(held: &mut Option<Box<Held>>, verdict: impl Into<Verdict>) {
    if let Some(mut held) = held.take() {
        held.settle(verdict.into());
    }
}

/// The look at an error body is over: the slot goes before the caller sees the answer.
pub(crate) fn peeked<B: Body>(
    head: response::Parts,
    peek: Peek<B>,
    held: &mut Option<Box<Held>>,
) -> Response<ResponseBody<B>> {
    judge(held, |classify| classify.response(&head, peek.prefix(), clock::wall()));
    Response::from_parts(head, ResponseBody::free(peek.into_body()))
}
