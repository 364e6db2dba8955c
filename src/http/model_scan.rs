//! Finds the top-level `model` of a JSON body, and whether it asks for a stream, without parsing the rest.
//!
//! The scan walks the keys of the outermost object and jumps over their values: a string from quote to quote, an array or
//! object by counting brackets outside strings. It holds a position and a depth, so neither depth nor size can overflow
//! anything, and it allocates only to decode a model that is spelled with escapes.
//!
//! It always reads to the end: a later `model` wins over an earlier one, as in common decoders, also when the later one is
//! no usable name.
//!
//! # What is checked
//!
//! The body is an object, with or without a byte order mark; its own keys, colons and commas stand where they must; strings
//! are closed and brackets even out; nothing but whitespace follows; the model is a JSON string in valid UTF-8. A body that
//! fails this (cut short, for example) has no model, since no server would read one out of it either.
//!
//! What is jumped over is *not* checked: escapes, control characters and UTF-8 in strings other than the model, the
//! spelling of numbers and literals, everything between the brackets of a nested value (commas, colons, whether `[` is
//! closed by `]` or `}`). A body that is wrong only there yields its model; the server will refuse it.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr;

/// What a body says at its top level.
#[derive(Debug, Default)]
pub(crate) struct TopLevel<'a> {
    /// The last `model`, if it is a string that is not blank.
    pub(crate) model: Option<Cow<'a, str>>,
    /// The last `stream`, if it is true or false.
    pub(crate) stream: Option<bool>,
}

/// Nothing is found in what is no JSON object.
pub(crate) fn top_level(body: &[u8]) -> TopLevel<'_> {
    let json = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    let Some(Found { model, stream }) = scan(json) else { return TopLevel::default() };
    let model = model.and_then(decode).filter(|model| !model.trim().is_empty());
    TopLevel { model, stream }
}

/// Where in `body` that model stands, with its quotes: for putting another one there.
pub(crate) fn model_span(body: &[u8]) -> Option<Range<usize>> {
    let json = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    let model = scan(json)?.model?;
    let start = model.as_ptr().addr() - body.as_ptr().addr();
    Some(start..start + model.len())
}

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The longest spelling of `"model"`: five escapes of six bytes, and the quotes.
const LONGEST_MODEL_KEY: usize = 5 * br"\u006d".len() + 2;

/// A string as it stands in the body, with its quotes.
type Quoted<'a> = &'a [u8];

struct Found<'a> {
    model: Option<Quoted<'a>>,
    stream: Option<bool>,
}

fn scan(json: &[u8]) -> Option<Found<'_>> {
    let mut scan = Scan { json, at: 0 };
    if scan.token()? != b'{' {
        return None;
    }
    let (mut model, mut stream) = (None, None);
    loop {
        // Also ends the scan of an empty object, which has no model.
        if scan.token()? != b'"' {
            return None;
        }
        let key = scan.string()?;
        if scan.token()? != b':' {
            return None;
        }
        let start = scan.at;
        let value = scan.value()?;
        if key == STREAM {
            stream = literal(&json[start..scan.at]);
        } else if is_model(key) {
            model = value;
        }
        match scan.token()? {
            b',' => {}
            b'}' => break,
            _ => return None,
        }
    }
    scan.token().is_none().then_some(Found { model, stream })
}

const STREAM: Quoted<'_> = br#""stream""#;

fn literal(value: &[u8]) -> Option<bool> {
    match value.trim_ascii() {
        b"true" => Some(true),
        b"false" => Some(false),
        _ => None,
    }
}

fn is_model(key: Quoted<'_>) -> bool {
    key == br#""model""# || (may_spell_model(key) && decode(key).is_some_and(|key| key == "model"))
}

fn may_spell_model(key: Quoted<'_>) -> bool {
    key.len() <= LONGEST_MODEL_KEY && key.contains(&b'\\')
}

fn decode(string: Quoted<'_>) -> Option<Cow<'_, str>> {
    if memchr(b'\\', string).is_some() {
        return serde_json::from_slice(string).ok().map(Cow::Owned);
    }
    let text = std::str::from_utf8(&string[1..string.len() - 1]).ok()?;
    text.bytes().all(|byte| byte >= b' ').then_some(Cow::Borrowed(text))
}

struct Scan<'a> {
    json: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    /// Takes the next byte that is not whitespace.
    fn token(&mut self) -> Option<u8> {
        loop {
            let byte = *self.json.get(self.at)?;
            self.at += 1;
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(byte);
            }
        }
    }

    /// Passes over a value; `Some(Some(_))` if it is a string.
    fn value(&mut self) -> Option<Option<Quoted<'a>>> {
        match self.token()? {
            b'"' => self.string().map(Some),
            b'{' | b'[' => {
                self.at = nested_end(self.json, self.at)?;
                Some(None)
            }
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => {
                self.scalar();
                Some(None)
            }
            _ => None,
        }
    }

    /// Passes over the rest of a number or literal; what ends it is for the caller to judge.
    fn scalar(&mut self) {
        let rest = &self.json[self.at..];
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'E' | b'+' | b'-' | b'.');
        self.at += rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
    }

    /// Takes the rest of a string whose opening quote was taken.
    fn string(&mut self) -> Option<Quoted<'a>> {
        let start = self.at - 1;
        self.at = string_end(self.json, self.at)?;
        Some(&self.json[start..self.at])
    }
}

/// Where the array or object ends whose contents start at `at`.
fn nested_end(json: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 1_usize;
    while depth > 0 {
        let byte = *json.get(at)?;
        at += 1;
        if byte == b'"' {
            at = string_end(json, at)?;
        } else if byte == b',' || byte == b':' {
            // Between two strings, most often.
        } else if byte | BRACE_BIT == b'{' {
            depth += 1;
        } else if byte | BRACE_BIT == b'}' {
            depth -= 1;
        } else {
            at += plain(&json[at..]);
        }
    }
    Some(at)
}

/// Where the string ends that starts at `start`, past its quote.
///
/// Most strings of a request are roles and keys, and end within a word.
#[inline(always)]
fn string_end(json: &[u8], start: usize) -> Option<usize> {
    if let Some(word) = json.get(start..).and_then(<[u8]>::first_chunk) {
        let quotes = quotes(u64::from_le_bytes(*word));
        let length = quotes.trailing_zeros() as usize / 8;
        // The byte before an empty string is its own opening quote.
        if quotes != 0 && json[start + length - 1] != b'\\' {
            return Some(start + length + 1);
        }
    }
    long_string_end(json, start)
}

/// Looks for quotes alone and asks of each whether it is escaped, so that `\n` and its like cost nothing. The look back
/// never passes an earlier quote, so that the whole stays linear.
#[inline(never)]
fn long_string_end(json: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        at += quote(&json[at..])?;
        let is_escaped = json[start..at].last() == Some(&b'\\') && is_escaped(&json[start..at]);
        at += 1;
        if !is_escaped {
            return Some(at);
        }
    }
}

fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

/// Where the next quote is. Quotes in a text come in pairs: a call into `memchr` costs more than they do.
#[inline]
fn quote(text: &[u8]) -> Option<usize> {
    if let Some(found) = first_mark(text, 1, quotes) {
        return Some(found);
    }
    let mut at = (text.len() / WORD).min(1) * WORD;
    for chunk in text[at..].chunks_exact(LANES).take(NEAR_CHUNKS) {
        if chunk.iter().fold(false, |found, &byte| found | (byte == b'"')) {
            return first_mark(chunk, LANES / WORD, quotes).map(|n| at + n);
        }
        at += LANES;
    }
    memchr(b'"', &text[at..]).map(|n| at + n)
}

/// How many bytes are neither quotes nor brackets: a lower bound, zero if the end is near.
#[inline(never)]
fn plain(json: &[u8]) -> usize {
    first_mark(json, NEAR_WORDS, structurals).unwrap_or_else(|| {
        let near = NEAR_WORDS.min(json.len() / WORD) * WORD;
        let far = json[near..].chunks_exact(LANES).take_while(|chunk| !has_structural(chunk)).count();
        near + far * LANES
    })
}

const WORD: usize = size_of::<u64>();
/// So many words are searched one by one before the search is handed on: of 2, 4 and 6 the fastest over whole bodies.
const NEAR_WORDS: usize = 4;
/// Long runs go by chunks of this size: a vector or two.
const LANES: usize = 32;
/// So many chunks of a string are searched before `memchr` is called.
const NEAR_CHUNKS: usize = 4;

/// Where the first mark is in the first `words` of `text`. `marks` sets the high bits of the bytes looked for, and perhaps
/// of bytes after one of them.
#[inline]
fn first_mark(text: &[u8], words: usize, marks: impl Fn(u64) -> u64) -> Option<usize> {
    for (n, word) in text.chunks_exact(WORD).take(words).enumerate() {
        let marks = marks(u64::from_le_bytes(word.try_into().ok()?));
        if marks != 0 {
            return Some(n * WORD + marks.trailing_zeros() as usize / 8);
        }
    }
    None
}

fn quotes(word: u64) -> u64 {
    zeros(word ^ each(b'"'))
}

fn structurals(word: u64) -> u64 {
    let folded = word | each(BRACE_BIT);
    zeros(word ^ each(b'"')) | zeros(folded ^ each(b'{')) | zeros(folded ^ each(b'}'))
}

/// Without an early end, so that it compiles to vector instructions.
fn has_structural(chunk: &[u8]) -> bool {
    let is_structural = |byte: u8| byte == b'"' || byte | BRACE_BIT == b'{' || byte | BRACE_BIT == b'}';
    chunk.iter().fold(false, |found, &byte| found | is_structural(byte))
}

/// `[` and `{`, `]` and `}` differ in this bit alone.
const BRACE_BIT: u8 = b'[' ^ b'{';

/// Marks the zero bytes: the lowest mark is right, those above it may be carries.
fn zeros(word: u64) -> u64 {
    word.wrapping_sub(each(0x01)) & !word & each(0x80)
}

const fn each(byte: u8) -> u64 {
    u64::from_le_bytes([byte; WORD])
}

#[cfg(test)]
mod tests;
