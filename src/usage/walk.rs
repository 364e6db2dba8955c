//! A walk over JSON text that passes in pieces, cut anywhere.
//!
//! It goes down to the values that are looked for and passes over all others by counting brackets outside strings. It keeps
//! a handful of bytes whatever the depth and size of the text, and never fails: text that is no JSON leads nowhere, and
//! whoever frames the text starts the walk anew with each event or line.
//!
//! It is not strict: a missing comma is not missed.

use memchr::memchr2;

use super::place::Place;
use super::short::Short;
use super::story::Story;

#[derive(Debug)]
pub(super) struct Walk {
    /// The place of the outermost values.
    root: Place,
    state: State,
    /// Of the value that comes next, or is under way.
    place: Place,
    open: [Level; DEPTH],
    depth: usize,
    /// The key, text, number or literal under way.
    text: Short,
}

/// An array of events, an event in it, its envelope, the usage, its details, and one more level of Cohere's.
const DEPTH: usize = 6;

/// An object or array that is being walked through.
#[derive(Clone, Copy, Debug)]
enum Level {
    Object(Place),
    /// The place of its elements.
    Array(Place),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Key,
    /// Behind a key.
    Colon,
    Value,
    /// Within a string.
    Text(Role),
    /// Behind a backslash in it.
    Escape(Role),
    /// Within a number or literal.
    Bare,
    /// Within an object or array that holds nothing of interest, this deep, outside of strings.
    Skip(u32),
    SkipText(u32),
    SkipEscape(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Key,
    Value,
}

/// A value that holds no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar<'a> {
    /// Without its quotes.
    Text(&'a [u8]),
    /// One that is longer than anything looked for, or spelled with escapes.
    OtherText,
    /// A number, `true`, `false` or `null`, as it stands.
    Bare(&'a [u8]),
}

impl Walk {
    pub(super) const fn new(root: Place) -> Self {
        Self {
            root,
            state: State::Value,
            place: root,
            open: [Level::Array(Place::Elsewhere); DEPTH],
            depth: 0,
            text: Short::new(),
        }
    }

    /// What came so far was one text; another begins.
    pub(super) fn restart(&mut self) {
        self.state = State::Value;
        self.place = self.root;
        self.depth = 0;
        self.text.clear();
    }

    /// Goes on through all of `bytes`, whatever values they hold.
    pub(super) fn feed_all(&mut self, bytes: &[u8], story: &mut Story) {
        let mut rest = bytes;
        while let Some(end) = self.feed(rest, story) {
            rest = &rest[end..];
        }
    }

    /// Goes on through `bytes` up to the end of an event, and returns where that is; `None`: it has not come yet.
    pub(super) fn feed(&mut self, bytes: &[u8], story: &mut Story) -> Option<usize> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let rest = &bytes[at..];
            at += match self.state {
                State::Colon => self.take_colon(byte),
                State::Key | State::Value => {
                    if self.step(byte, story) {
                        return Some(at + 1);
                    }
                    1
                }
                State::Text(role) => self.take_text(rest, role, story),
                State::Escape(role) => {
                    self.state = State::Text(role);
                    1
                }
                State::Bare => self.take_bare(rest, story),
                State::Skip(depth) => self.skip(rest, depth),
                State::SkipText(depth) => self.skip_text(rest, depth),
                State::SkipEscape(depth) => {
                    self.state = State::SkipText(depth);
                    1
                }
            };
        }
        None
    }

    /// An object or array has begun and has not ended.
    pub(super) fn is_within(&self) -> bool {
        self.depth > 0
    }

    /// Takes a byte between two tokens; true if it ends an event.
    fn step(&mut self, byte: u8, story: &mut Story) -> bool {
        let role = if self.state == State::Key { Role::Key } else { Role::Value };
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' | b':' => {}
            b',' => self.go_on(),
            b'"' => {
                self.text.clear();
                self.state = State::Text(role);
            }
            b'}' | b']' => return self.close(),
            b'{' => {
                story.opened(self.place);
                self.open(Level::Object(self.place), self.place.has_keys());
            }
            b'[' => {
                let (element, is_walked) = match self.place {
                    place if place.is_root() => (place, self.depth == 0),
                    Place::Choices => (Place::Choice, true),
                    place => (place, false),
                };
                self.open(Level::Array(element), is_walked);
            }
            _ => {
                self.text.clear();
                self.text.push(&[byte]);
                self.state = State::Bare;
            }
        }
        false
    }

    /// Without its colon a key was none.
    fn take_colon(&mut self, byte: u8) -> usize {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => 1,
            b':' => {
                self.state = State::Value;
                1
            }
            _ => {
                self.go_on();
                0
            }
        }
    }

    fn open(&mut self, level: Level, is_walked: bool) {
        if is_walked && self.depth < DEPTH {
            self.open[self.depth] = level;
            self.depth += 1;
            self.go_on();
        } else {
            self.state = State::Skip(1);
        }
    }

    fn close(&mut self) -> bool {
        let Some(depth) = self.depth.checked_sub(1) else { return false };
        self.depth = depth;
        let closed = self.open[depth];
        self.go_on();
        matches!(closed, Level::Object(place) if place.is_root())
    }

    /// A value is over, or an object or array has begun: what comes next is up to the innermost that is open.
    fn go_on(&mut self) {
        let innermost = self.depth.checked_sub(1).map(|top| self.open[top]);
        (self.state, self.place) = match innermost {
            Some(Level::Object(_)) => (State::Key, Place::Elsewhere),
            Some(Level::Array(element)) => (State::Value, element),
            None => (State::Value, self.root),
        };
    }

    /// Takes the text up to its end, or to the next backslash; returns how many bytes it took.
    fn take_text(&mut self, rest: &[u8], role: Role, story: &mut Story) -> usize {
        let Some(end) = text_end(rest) else {
            self.text.push(rest);
            return rest.len();
        };
        if rest[end] == b'\\' {
            self.text.spoil();
            self.state = State::Escape(role);
            return end + 1;
        }
        self.text.push(&rest[..end]);
        match role {
            Role::Key => {
                self.place = match self.depth.checked_sub(1).map(|top| self.open[top]) {
                    Some(Level::Object(place)) => place.below(self.text.as_bytes()),
                    _ => Place::Elsewhere,
                };
                self.state = State::Colon;
            }
            Role::Value => {
                let text = self.text.as_bytes();
                let is_other = text.is_empty() && !self.text.is_empty();
                story.note(self.place, if is_other { Scalar::OtherText } else { Scalar::Text(text) });
                self.go_on();
            }
        }
        end + 1
    }

    /// Takes the number or literal up to what ends it.
    fn take_bare(&mut self, rest: &[u8], story: &mut Story) -> usize {
        let is_end =
            |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' | b'}' | b']' | b'{' | b'[' | b'"');
        let end = rest.iter().position(is_end);
        self.text.push(&rest[..end.unwrap_or(rest.len())]);
        if end.is_some() {
            story.note(self.place, Scalar::Bare(self.text.as_bytes()));
            self.go_on();
        }
        end.unwrap_or(rest.len())
    }

    fn skip(&mut self, rest: &[u8], depth: u32) -> usize {
        let at = plain(rest);
        match rest.get(at) {
            Some(b'"') => self.state = State::SkipText(depth),
            // Deeper than this there is no way back, and none is needed.
            Some(b'{' | b'[') => self.state = State::Skip(depth.saturating_add(1)),
            Some(b'}' | b']') if depth == 1 => self.go_on(),
            Some(b'}' | b']') => self.state = State::Skip(depth - 1),
            _ => {}
        }
        (at + 1).min(rest.len())
    }

    fn skip_text(&mut self, rest: &[u8], depth: u32) -> usize {
        let Some(end) = text_end(rest) else { return rest.len() };
        self.state = if rest[end] == b'"' { State::Skip(depth) } else { State::SkipEscape(depth) };
        end + 1
    }
}

/// Where the text ends, or has a backslash. Most are keys and tokens: a call into `memchr` costs more than they do.
fn text_end(text: &[u8]) -> Option<usize> {
    let near = text.len().min(NEAR);
    let is_mark = |byte: &u8| matches!(byte, b'"' | b'\\');
    let far = || memchr2(b'"', b'\\', &text[near..]).map(|end| near + end);
    text[..near].iter().position(is_mark).or_else(far)
}

const NEAR: usize = 16;

/// How many bytes at the start are neither quotes nor brackets.
fn plain(json: &[u8]) -> usize {
    let near = json.len().min(NEAR);
    if let Some(at) = json[..near].iter().position(|byte| is_mark(*byte)) {
        return at;
    }
    // Vectors of embeddings are long runs of numbers.
    let is_plain = |chunk: &&[u8]| !chunk.iter().fold(false, |any, byte| any | is_mark(*byte));
    let far = near + json[near..].chunks_exact(CHUNK).take_while(is_plain).count() * CHUNK;
    json[far..].iter().position(|byte| is_mark(*byte)).map_or(json.len(), |at| far + at)
}

/// Without an early end within it, so that it compiles to vector instructions.
const CHUNK: usize = 32;

fn is_mark(byte: u8) -> bool {
    // `[` and `{`, `]` and `}` differ in one bit.
    matches!(byte | 0x20, b'{' | b'}') || byte == b'"'
}
