//! Heads and bodies of error answers: lines of `name: value`, an empty line, and the body.
#![no_main]

use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderName, HeaderValue, Response};
use tower_inflight::{BodyHints, Classify, Pause, ProviderClassify};

/// 1 January 2030.
const NOW: Duration = Duration::from_secs(1_893_456_000);

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let end = data.windows(2).position(|pair| pair == b"\n\n").unwrap_or(data.len());
    let (head, body) = data.split_at(end);
    let classify = ProviderClassify::new().body_hints(BodyHints::Honour);
    for status in [200, 400, 429, 503] {
        let mut parts = Response::builder().status(status).body(()).expect("a response").into_parts().0;
        for line in head.split(|&byte| byte == b'\n') {
            let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
            let (name, value) = line.split_at(colon);
            let value = value.strip_prefix(b": ").unwrap_or_default();
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
                parts.headers.append(name, value);
            }
        }
        let verdict = classify.response(&parts, body, UNIX_EPOCH + NOW);
        assert_eq!(verdict, classify.response(&parts, body, UNIX_EPOCH + NOW));
        if status < 400 {
            assert_eq!(verdict.pause(), None);
        }
        assert_ne!(verdict.pause(), Some(Pause::For(Duration::ZERO)), "zero is no pause");
    }
});
