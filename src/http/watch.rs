//! What the passing bytes of an answer say about its end.

use std::io::IoSlice;

use bytes::Buf;
use http::HeaderMap;
use http::header::CONTENT_TYPE;

use super::answer_rules::{AnswerRules, ReadUsage, ReleaseOn};
use super::terminal;
use crate::engine::outcome::{Outcome, Verdict};
use crate::usage::{Reading, UsageTap};

/// Pieces of one frame that are read; bodies of common clients have one.
const PIECES: usize = 16;

#[derive(Debug)]
pub(super) struct Watch {
    reader: Reader,
    release_on: ReleaseOn,
    has_ended: bool,
    /// All the bytes that were announced have come.
    is_whole: bool,
}

#[derive(Debug)]
enum Reader {
    Tap(Box<UsageTap>),
    /// Some of the bytes could not be seen.
    Blind,
    /// Answers are not read: looks at the end of each piece alone.
    Ends,
}

impl Watch {
    /// Of a call that has no answer yet.
    pub(super) fn blank(rules: &AnswerRules) -> Self {
        Self { reader: Reader::Ends, release_on: rules.release_on, has_ended: false, is_whole: false }
    }

    pub(super) fn new(rules: &AnswerRules, headers: &HeaderMap) -> Self {
        let reader = match rules.read {
            // What does not say what it is has no format to be read by, and the tap is a box for each answer.
            ReadUsage::On if headers.contains_key(CONTENT_TYPE) => {
                let mut tap = Box::new(UsageTap::new().cached_input(rules.cached_input));
                headers.iter().for_each(|(name, value)| tap.header(name.as_str(), value.as_bytes()));
                Reader::Tap(tap)
            }
            ReadUsage::On | ReadUsage::Off => Reader::Ends,
        };
        Self { reader, ..Self::blank(rules) }
    }

    /// Takes the next piece of the body.
    #[inline]
    pub(super) fn look_at(&mut self, data: &impl Buf, is_last: bool) {
        self.is_whole |= is_last;
        match &mut self.reader {
            Reader::Tap(tap) => {
                if feed(tap, data) {
                    self.has_ended = tap.has_ended();
                } else {
                    self.reader = Reader::Blind;
                }
            }
            // An event and the blank line that ends it may come apart.
            Reader::Ends if !terminal::is_blank(data) => self.has_ended = terminal::is_ending(data),
            Reader::Ends | Reader::Blind => {}
        }
    }

    /// A reader that leaves now has everything.
    pub(super) fn is_complete(&self) -> bool {
        self.is_whole || self.has_ended
    }

    /// The slot is no longer needed, though the body may go on.
    pub(super) fn is_released(&self) -> bool {
        self.has_ended && self.release_on == ReleaseOn::TerminalEvent
    }

    /// An error has come inside of the stream.
    pub(super) fn has_trouble(&self) -> bool {
        matches!(&self.reader, Reader::Tap(tap) if tap.trouble().is_some())
    }

    /// Nothing comes any more, or nobody reads it: what was read, and what the call came to if the transport has no other
    /// word on it. `verdict` is that of the head.
    pub(super) fn finish(&mut self, verdict: Verdict) -> (Verdict, Option<Reading>) {
        let tap = match &mut self.reader {
            Reader::Tap(tap) => tap,
            Reader::Blind => return (verdict, Some(Reading::default())),
            Reader::Ends => return (verdict, None),
        };
        let reading = tap.finish();
        self.has_ended = reading.has_ended;
        let verdict = match reading.trouble {
            _ if verdict.outcome() != Outcome::Success => verdict,
            Some(outcome) => outcome.into(),
            None if reading.is_cut_short && !self.is_whole => Outcome::Transport.into(),
            None => verdict,
        };
        (verdict, Some(reading))
    }
}

/// Feeds the tap what can be seen of `data` without taking it; false if that is not all.
#[inline]
fn feed(tap: &mut UsageTap, data: &impl Buf) -> bool {
    let piece = data.chunk();
    if piece.len() == data.remaining() {
        tap.feed(piece);
        return true;
    }
    let mut pieces = [IoSlice::new(&[]); PIECES];
    let count = data.chunks_vectored(&mut pieces);
    let pieces = &pieces[..count];
    let is_whole = pieces.iter().map(|piece| piece.len()).sum::<usize>() == data.remaining();
    if is_whole {
        pieces.iter().for_each(|piece| tap.feed(piece));
    }
    is_whole
}
