//! Where a stream is cut changes nothing.

use proptest::prelude::*;

use super::{SAMPLES, Sample};
use crate::usage::{Reading, UsageTap};

#[test]
fn every_providers_answer_is_read() {
    for sample in &SAMPLES {
        sample.expect(sample.read([sample.body]), "whole");
    }
}

// Case 114.
#[test]
fn a_cut_at_any_byte_changes_nothing() {
    for sample in &SAMPLES {
        let whole = sample.read([sample.body]);
        for cut in 0..=sample.body.len() {
            let (head, tail) = sample.body.split_at(cut);
            let how = format!("cut at {cut}");
            let reading = sample.read([head, tail]);
            sample.expect(reading, &how);
            assert_same(sample, reading, whole, &how);
            // An empty chunk in the cut.
            sample.expect(sample.read([head, b"", tail]), &how);
        }
    }
}

// Case 114.
#[test]
fn chunks_of_any_one_size_change_nothing() {
    for sample in &SAMPLES {
        let whole = sample.read([sample.body]);
        for size in 1..64 {
            let reading = sample.read(sample.body.chunks(size));
            sample.expect(reading, &format!("chunks of {size}"));
            assert_same(sample, reading, whole, "chunks");
        }
    }
}

#[test]
fn the_type_in_the_head_is_not_needed() {
    for sample in &SAMPLES {
        for content_type in ["", "text/plain", "application/json", "text/event-stream", "application/octet-stream"] {
            let mut tap = UsageTap::new();
            tap.header("content-type", content_type.as_bytes());
            tap.feed(sample.body);
            sample.expect(tap.finish(), content_type);
        }
    }
}

#[test]
fn the_end_is_known_as_soon_as_its_event_is_over() {
    for sample in &SAMPLES {
        let mut tap = sample.tap();
        tap.feed(sample.body);
        assert_eq!(tap.has_ended(), sample.end != super::End::Body, "{}", sample.name);
    }
}

/// Events walked through count as pieces like those that are not, and their lengths are the same but for white space.
fn assert_same(sample: &Sample, reading: Reading, whole: Reading, how: &str) {
    let without_seen = |reading: Reading| Reading { output_seen: 0, ..reading };
    assert_eq!(without_seen(reading), without_seen(whole), "{}, {how}", sample.name);
}

proptest! {
    #[test]
    fn random_cuts_change_nothing(which in 0..SAMPLES.len(), mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        let sample = &SAMPLES[which];
        cuts.sort_by_key(|cut| cut.index(sample.body.len() + 1));
        let mut chunks = Vec::new();
        let mut start = 0;
        for cut in cuts.iter().map(|cut| cut.index(sample.body.len() + 1)) {
            chunks.push(&sample.body[start..cut]);
            start = cut;
        }
        chunks.push(&sample.body[start..]);
        sample.expect(sample.read(chunks), "random cuts");
    }

    /// Two readers of the same bytes agree, whatever the bytes are.
    #[test]
    fn garbage_is_read_the_same_however_it_is_cut(
        which in 0..SAMPLES.len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        size in 1_usize..40,
    ) {
        let sample = &SAMPLES[which];
        let mut body = sample.body.to_vec();
        for (at, byte) in edits {
            let at = at.index(body.len());
            body[at] = byte;
        }
        let (whole, cut) = (sample.read([&body[..]]), sample.read(body.chunks(size)));
        prop_assert_eq!(whole.usage, cut.usage);
        prop_assert_eq!((whole.trouble, whole.has_ended), (cut.trouble, cut.has_ended));
    }
}
