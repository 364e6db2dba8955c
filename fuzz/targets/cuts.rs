//! A stream is read the same however it is cut.

use tower_inflight::{Reading, UsageTap};

/// The first byte says how the rest is cut.
pub fn check(data: &[u8], content_type: &str, opening: &[u8]) {
    let (size, body) = data.split_first().map_or((1, data), |(first, rest)| (usize::from(*first % 64) + 1, rest));
    let read = |size: usize| {
        let mut tap = UsageTap::new();
        tap.header("content-type", content_type.as_bytes());
        tap.feed(opening);
        body.chunks(size).for_each(|chunk| tap.feed(chunk));
        tap.finish()
    };
    let (whole, cut) = (read(body.len().max(1)), read(size));
    assert_eq!(whole.usage, cut.usage, "cut in pieces of {size}");
    // What is not cut is not looked at as closely: the type of a Responses event at its start alone, and a null only as to
    // what is before it.
    let has = |word: &[u8]| data.windows(word.len()).any(|bytes| bytes == word);
    if !has(b"response.") && !has(b":null") {
        let end = |reading: Reading| (reading.trouble, reading.has_ended);
        assert_eq!(end(whole), end(cut), "cut in pieces of {size}");
    }
    // It read no more pieces than there are bytes to tell them apart.
    assert!(whole.pieces <= data.len() as u64 + 1);
    assert!(size_of::<UsageTap>() < 1024);
}
