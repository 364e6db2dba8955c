//! What a stream has told so far, and what it means.

use super::codes::{Code, Kind};
use super::counts::{CachedInput, Counts, Field};
use super::place::Place;
use super::tap::Reading;
use super::walk::Scalar;
use crate::engine::outcome::Outcome;

#[derive(Debug, Default)]
pub(super) struct Story {
    counts: Counts,
    event: Event,
    trouble: Option<Outcome>,
    has_ended: bool,
    /// It has said something that is always followed by a last event.
    has_begun: bool,
    /// What the last event that had an answer in it said about its end.
    last_finish: Finish,
    has_finished: bool,
    pieces: Pieces,
}

/// What one event, line or document has said.
#[derive(Debug, Default)]
struct Event {
    kind: Option<Kind>,
    is_error: bool,
    code: Option<Code>,
    root_code: Option<Code>,
    done: Option<Done>,
    is_object: bool,
    has_choice: bool,
    has_usage: bool,
    finish: Finish,
}

/// Ollama's `done`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    NotYet,
    Now,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Finish {
    #[default]
    Unsaid,
    /// A reason for the end, and it is null.
    NotYet,
    Given,
}

/// The pieces of the answer, by their length on the wire.
#[derive(Clone, Copy, Debug, Default)]
struct Pieces {
    count: u64,
    bytes: u64,
    shortest: u64,
}

impl Story {
    /// A value that holds no others.
    pub(super) fn note(&mut self, place: Place, value: Scalar<'_>) {
        let event = &mut self.event;
        match (place, value) {
            (Place::Count(field), Scalar::Bare(figure)) => {
                event.has_usage = true;
                self.counts.note(field, figure);
            }
            (Place::Kind, Scalar::Text(kind)) => {
                event.kind = Some(Kind::of(kind));
                event.root_code = event.root_code.max(Some(Code::of(kind)));
            }
            (Place::Object, Scalar::Text(object)) => event.is_error |= object == b"error",
            (Place::Error, Scalar::Text(b"") | Scalar::Bare(b"null" | b"false" | b"0")) => {}
            (Place::Error, Scalar::Text(code) | Scalar::Bare(code)) => {
                event.is_error = true;
                event.code = event.code.max(Some(Code::of(code)));
            }
            (Place::Error, Scalar::OtherText) => event.is_error = true,
            (Place::Code, Scalar::Text(code) | Scalar::Bare(code)) => event.code = event.code.max(Some(Code::of(code))),
            (Place::RootCode, Scalar::Text(code) | Scalar::Bare(code)) => {
                event.root_code = event.root_code.max(Some(Code::of(code)));
            }
            (Place::Done, Scalar::Bare(b"true")) => event.done = Some(Done::Now),
            (Place::Done, Scalar::Bare(b"false")) => event.done = Some(Done::NotYet),
            (Place::FinishReason, Scalar::Bare(b"null")) => event.finish = Finish::NotYet,
            (Place::FinishReason, Scalar::Text(_) | Scalar::OtherText) => event.finish = Finish::Given,
            // `[DONE]` is a word in an array, as far as JSON goes.
            (Place::Root, Scalar::Bare(b"DONE")) if !event.is_object => event.done = Some(Done::Now),
            _ => {}
        }
    }

    /// An object, whatever is in it.
    pub(super) fn opened(&mut self, place: Place) {
        self.event.is_object |= place.is_root();
        self.event.is_error |= place == Place::Error;
        self.event.has_choice |= place == Place::Choice;
    }

    /// Takes a figure that did not come in the body.
    pub(super) fn count(&mut self, field: Field, figure: &[u8]) {
        self.counts.note(field, figure);
    }

    /// An event is over. `name` is what it was called outside of its JSON, `length` how many bytes its JSON had.
    pub(super) fn conclude(&mut self, name: Option<Kind>, length: u64) {
        let event = std::mem::take(&mut self.event);
        let kind = event.kind.or(name);
        let is_error = event.is_error || matches!(kind, Some(Kind::Error | Kind::Failed)) || name == Some(Kind::Error);
        if is_error {
            let code = event.code.max(event.root_code).unwrap_or(Code::Server);
            self.trouble.get_or_insert_with(|| code.outcome());
        }
        let is_last = matches!(kind, Some(Kind::End | Kind::Failed)) || event.done == Some(Done::Now);
        self.has_ended |= is_last || is_error;
        self.has_begun |= kind == Some(Kind::Start) || event.done == Some(Done::NotYet);
        self.has_finished |= event.finish == Finish::Given;
        self.last_finish = event.finish;
        let is_piece = match kind {
            Some(kind) => kind == Kind::Delta,
            None => event.has_choice || (event.is_object && !event.has_usage),
        };
        if is_piece && !is_last && !is_error {
            self.pieces.add(length);
        }
    }

    /// The last event of all was taken for a piece of the answer and nothing else, and was walked through only now.
    pub(super) fn look_back(&mut self) {
        let event = std::mem::take(&mut self.event);
        self.has_finished |= event.finish == Finish::Given;
        self.last_finish = event.finish;
    }

    /// The text broke off within a value.
    pub(super) fn break_off(&mut self) {
        self.has_begun = true;
    }

    /// A piece of the answer that has nothing else in it.
    #[inline]
    pub(super) fn piece(&mut self, length: usize) {
        self.pieces.add(length as u64);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub(super) fn trouble(&self) -> Option<Outcome> {
        self.trouble
    }

    pub(super) fn reading(&self, cached: CachedInput) -> Reading {
        let usage = self.counts.usage(cached);
        let is_unfinished = self.has_begun || (self.last_finish == Finish::NotYet && !self.has_finished);
        let reported = usage.output_tokens.unwrap_or(0);
        Reading {
            usage,
            trouble: self.trouble,
            has_ended: self.has_ended,
            is_cut_short: is_unfinished && !self.has_ended,
            pieces: self.pieces.count,
            output_seen: if self.has_ended && reported > 0 { reported } else { reported.max(self.pieces.tokens()) },
        }
    }
}

impl Pieces {
    /// The usual length of a token in bytes of English text.
    const TOKEN: u64 = 4;

    #[inline]
    fn add(&mut self, length: u64) {
        self.shortest = if self.count == 0 { length } else { self.shortest.min(length) };
        self.count += 1;
        self.bytes += length;
    }

    /// A piece is a token at least. Providers that put more into one: what pieces are longer than the shortest of them,
    /// which is little but its envelope, is text.
    fn tokens(&self) -> u64 {
        self.count.max((self.bytes - self.count * self.shortest) / Self::TOKEN)
    }
}
