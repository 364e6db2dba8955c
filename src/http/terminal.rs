//! Whether a stream has said that it is complete.
//!
//! Clients stop reading at the last event and drop the body, often before the transport has said that it ends. Such a call
//! was answered in full.

use bytes::Buf;

/// Whether a piece of a body ends with the last event of a stream: `data: [DONE]`, or Anthropic's `message_stop`.
///
/// Looks at the end of one piece alone. An ending cut in two is missed, and the call then counts as cancelled.
#[inline]
pub(super) fn is_ending(data: &impl Buf) -> bool {
    let piece = data.chunk();
    if piece.len() < data.remaining() {
        return false;
    }
    let piece = piece.trim_ascii_end();
    match piece {
        [.., b']'] => piece.ends_with(b"[DONE]"),
        // The event may be padded with spaces.
        [object @ .., b'}'] => object.trim_ascii_end().ends_with(b"\"message_stop\""),
        _ => false,
    }
}

/// Whether a piece of a body is nothing but white space.
#[inline]
pub(super) fn is_blank(data: &impl Buf) -> bool {
    let piece = data.chunk();
    piece.len() == data.remaining() && piece.trim_ascii_start().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_events_of_streams_are_known() {
        let endings: [&[u8]; 5] = [
            b"data: [DONE]\n\n",
            b"data:[DONE]\r\n\r\n",
            b"data: {\"choices\":[]}\n\ndata: [DONE]",
            b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
            b"event: message_stop\ndata: {\"type\": \"message_stop\"      }\n\n",
        ];
        for ending in endings {
            assert!(is_ending(&ending), "{}", String::from_utf8_lossy(ending));
        }
    }

    #[test]
    fn the_blank_line_after_an_event_is_blank() {
        assert!([&b""[..], b"\n", b"\r\n\r\n"].iter().all(is_blank));
        assert!(![&b"\n: ping"[..], b"}"].iter().any(is_blank));
    }

    #[test]
    fn other_events_are_not() {
        let others: [&[u8]; 5] = [b"", b"\n\n", b"data: {\"text\":\"[DONE]\"}\n\n", b"data: [DON", b"}"];
        for other in others {
            assert!(!is_ending(&other), "{}", String::from_utf8_lossy(other));
        }
    }
}
