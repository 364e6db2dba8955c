//! A JSON value on each line.
#![no_main]

mod cuts;

libfuzzer_sys::fuzz_target!(|data: &[u8]| cuts::check(data, "application/x-ndjson", b"{\"done\":false}\n"));
