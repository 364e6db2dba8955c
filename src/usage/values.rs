//! JSON values one after the other: one document, a line each, or the elements of an array.

use memchr::memchr;

use super::place::Place;
use super::story::Story;
use super::walk::Walk;

#[derive(Debug)]
pub(super) struct Values {
    walk: Walk,
    framing: Framing,
    /// Bytes since the last value ended.
    length: u64,
}

/// What bounds a value beside its own brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// Nothing: a document may have any number of lines.
    Brackets,
    /// The end of its line, so that a broken line does not spoil those behind it.
    Lines,
}

impl Values {
    pub(super) const fn new(framing: Framing) -> Self {
        Self { walk: Walk::new(Place::Line), framing, length: 0 }
    }

    pub(super) fn feed(&mut self, bytes: &[u8], story: &mut Story) {
        match self.framing {
            Framing::Brackets => self.walk(bytes, story),
            Framing::Lines => {
                let mut rest = bytes;
                while let Some(end) = memchr(b'\n', rest) {
                    self.walk(&rest[..=end], story);
                    self.walk.restart();
                    rest = &rest[end + 1..];
                }
                self.walk(rest, story);
            }
        }
    }

    /// Nothing comes any more.
    pub(super) fn finish(&mut self, story: &mut Story) {
        if self.walk.is_within() {
            story.break_off();
        }
    }

    fn walk(&mut self, bytes: &[u8], story: &mut Story) {
        let mut rest = bytes;
        while let Some(end) = self.walk.feed(rest, story) {
            self.length += end as u64;
            story.conclude(None, std::mem::take(&mut self.length));
            rest = &rest[end..];
        }
        self.length += rest.len() as u64;
    }
}
