//! Server-sent events.
#![no_main]

mod cuts;

libfuzzer_sys::fuzz_target!(|data: &[u8]| cuts::check(
    data,
    "text/event-stream",
    b": whatever comes next is an event\n\n"
));
