//! One document, or whatever its first bytes make of it.
#![no_main]

mod cuts;

libfuzzer_sys::fuzz_target!(|data: &[u8]| cuts::check(data, "application/json", b""));
