//! Server-sent events, cut anywhere.
//!
//! Nearly all events of a stream carry a piece of text and nothing else. An event that comes in one piece is searched for
//! two words, one of which is in everything that is looked for, and goes no further without them. All others are walked
//! through as they pass.

use std::sync::LazyLock;

use memchr::memchr2;
use memchr::memmem::Finder;

use super::codes::Kind;
use super::place::Place;
use super::short::Short;
use super::story::Story;
use super::walk::Walk;

#[derive(Debug)]
pub(super) struct Events {
    line: Line,
    /// Of the line under way: its field while that is not known, then the name.
    text: Short,
    /// A line feed that comes next belongs to the line end before it.
    is_after_return: bool,
    name: Option<Kind>,
    data: Data,
    walk: Walk,
    /// The last event that was not walked through. It may turn out to have a second line, or to be the last of all.
    kept: Vec<u8>,
}

/// The line under way, where it came in more than one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// Its field is not known yet.
    Field,
    /// Nothing of the data has come yet; a space in front of it is not part of it.
    BeforeData,
    Data,
    Name,
    /// A comment, or a field that says nothing here.
    Other,
}

/// The data of the event under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    None,
    Kept,
    /// So many bytes were walked through.
    Walked(u64),
}

/// Longer events are walked through at once.
const KEPT: usize = 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// `sage` is in `usage`, in `usageMetadata`, in the types of first and last messages and in the `message` of an error.
static WORDS: LazyLock<[Finder<'static>; 2]> = LazyLock::new(|| [Finder::new("sage"), Finder::new("error")]);

impl Events {
    pub(super) const fn new() -> Self {
        Self {
            line: Line::Field,
            text: Short::new(),
            is_after_return: false,
            name: None,
            data: Data::None,
            walk: Walk::new(Place::Root),
            kept: Vec::new(),
        }
    }

    pub(super) fn feed(&mut self, bytes: &[u8], story: &mut Story) {
        let mut rest = bytes;
        if self.is_after_return && rest.first() == Some(&b'\n') {
            rest = &rest[1..];
        }
        self.is_after_return &= bytes.is_empty();
        while let Some(end) = line_end(rest) {
            let line = &rest[..end];
            if self.line == Line::Field && self.text.is_empty() {
                self.whole_line(line, story);
            } else {
                self.part(line, story);
                self.end_line(story);
            }
            let is_pair = rest[end..].starts_with(b"\r\n");
            self.is_after_return = rest[end] == b'\r' && end + 1 == rest.len();
            rest = &rest[end + 1 + usize::from(is_pair)..];
        }
        self.part(rest, story);
    }

    /// Nothing comes any more: an event without the blank line behind it counts too.
    pub(super) fn finish(&mut self, story: &mut Story) {
        self.end_line(story);
        self.dispatch(story);
        if !self.kept.is_empty() {
            self.walk.feed_all(&self.kept, story);
            self.walk.restart();
            self.kept.clear();
            story.look_back();
        }
    }

    #[cfg(test)]
    pub(super) fn on_heap(&self) -> usize {
        self.kept.capacity()
    }

    fn whole_line(&mut self, line: &[u8], story: &mut Story) {
        if line.is_empty() {
            return self.dispatch(story);
        }
        let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        if let Some(data) = line.strip_prefix(b"data:") {
            self.whole_data(data.strip_prefix(b" ").unwrap_or(data), story);
        } else if let Some(name) = line.strip_prefix(b"event:") {
            self.text.push(name);
            self.take_name();
            self.text.clear();
        }
    }

    fn whole_data(&mut self, data: &[u8], story: &mut Story) {
        if self.data == Data::None && is_dull(data) {
            self.kept.clear();
            self.kept.extend_from_slice(data);
            self.data = Data::Kept;
        } else {
            self.walk(data, story);
            self.walk(b"\n", story);
        }
    }

    fn walk(&mut self, data: &[u8], story: &mut Story) {
        if self.data == Data::Kept {
            self.walk.feed_all(&self.kept, story);
            self.walk.feed_all(b"\n", story);
            self.data = Data::Walked(self.kept.len() as u64);
        }
        let before = if let Data::Walked(length) = self.data { length } else { 0 };
        self.data = Data::Walked(before + data.len() as u64);
        self.walk.feed_all(data, story);
    }

    /// Takes a part of a line.
    fn part(&mut self, part: &[u8], story: &mut Story) {
        match self.line {
            Line::Field => {
                let Some(colon) = part.iter().position(|&byte| byte == b':') else {
                    self.text.push(part);
                    return;
                };
                self.text.push(&part[..colon]);
                let field = self.text.as_bytes();
                self.line = match field.strip_prefix(BYTE_ORDER_MARK).unwrap_or(field) {
                    b"data" => Line::BeforeData,
                    b"event" => Line::Name,
                    _ => Line::Other,
                };
                self.text.clear();
                self.part(&part[colon + 1..], story);
            }
            Line::BeforeData if part.is_empty() => {}
            Line::BeforeData => {
                self.line = Line::Data;
                self.walk(part.strip_prefix(b" ").unwrap_or(part), story);
            }
            Line::Data => self.walk(part, story),
            Line::Name => self.text.push(part),
            Line::Other => {}
        }
    }

    /// Ends a line that came in parts.
    fn end_line(&mut self, story: &mut Story) {
        match self.line {
            Line::Field if self.text.is_empty() => self.dispatch(story),
            Line::BeforeData | Line::Data => self.walk(b"\n", story),
            Line::Name => self.take_name(),
            Line::Field | Line::Other => {}
        }
        self.line = Line::Field;
        self.text.clear();
    }

    fn take_name(&mut self) {
        self.name = Some(Kind::of(self.text.as_bytes().trim_ascii()));
    }

    /// The event is over.
    fn dispatch(&mut self, story: &mut Story) {
        let name = self.name.take();
        match std::mem::replace(&mut self.data, Data::None) {
            Data::None => {}
            Data::Kept if matches!(name, None | Some(Kind::Delta)) => story.piece(self.kept.len()),
            Data::Kept => {
                self.walk.feed_all(&self.kept, story);
                self.conclude(name, self.kept.len() as u64, story);
            }
            // A sign of life.
            Data::Walked(0) => self.walk.restart(),
            Data::Walked(length) => self.conclude(name, length, story),
        }
    }

    fn conclude(&mut self, name: Option<Kind>, length: u64, story: &mut Story) {
        self.kept.clear();
        self.walk.restart();
        story.conclude(name, length);
    }
}

/// Where the line ends, at a line feed or carriage return.
fn line_end(bytes: &[u8]) -> Option<usize> {
    // Every event ends with an empty line.
    if let Some(b'\n' | b'\r') = bytes.first() { Some(0) } else { memchr2(b'\n', b'\r', bytes) }
}

/// Has a piece of the answer and nothing else, as far as can be seen without a walk.
fn is_dull(data: &[u8]) -> bool {
    data.first() == Some(&b'{')
        && data.len() <= KEPT
        && is_of_dull_type(data)
        && WORDS.iter().all(|word| has_only_null(word, data))
}

/// OpenAI's last events may have neither word in them. Their type comes first.
fn is_of_dull_type(data: &[u8]) -> bool {
    let Some(kind) = data.strip_prefix(b"{\"type\":\"") else { return true };
    let end = kind.iter().position(|&byte| byte == b'"').unwrap_or(0);
    matches!(Kind::of(&kind[..end]), Kind::Delta | Kind::Other)
}

/// OpenAI sends `"usage":null` with each event before the last.
fn has_only_null(word: &Finder<'_>, data: &[u8]) -> bool {
    let mut rest = data;
    while let Some(at) = word.find(rest) {
        rest = &rest[at + word.needle().len()..];
        if !rest.starts_with(b"\":null,") && !rest.starts_with(b"\":null}") {
            return false;
        }
    }
    true
}
