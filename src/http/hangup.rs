//! What was read of an answer and reached nobody, because its caller was gone.
//!
//! Only a [`Relay`](super::Relay) reads ahead of the caller. It knows how much was not taken, and the body that it drops knows
//! the call, but between the two may be anybody's wrapper. So this is left on the thread for the time of the drop.

use std::cell::Cell;

use crate::usage::Reading;

/// Of an answer's body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) bytes: u64,
    pub(super) pieces: u64,
}

impl Amount {
    pub(super) fn less(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(other.bytes), pieces: self.pieces.saturating_sub(other.pieces) }
    }

    /// Its part of the output that was seen in all of the body's bytes; where that is not known, a token for each piece.
    pub(super) fn tokens(self, of_bytes: u64, reading: Option<&Reading>) -> u64 {
        match reading.map_or(0, |reading| reading.output_seen) {
            0 => self.pieces,
            seen => seen.saturating_mul(self.bytes).div_ceil(of_bytes.max(1)).min(seen),
        }
    }
}

thread_local! {
    static UNTAKEN: Cell<Amount> = const { Cell::new(Amount { bytes: 0, pieces: 0 }) };
}

/// Drops a body of which so much was read and not taken.
pub(super) fn drop_untaken<B>(body: B, untaken: Amount) {
    struct Clear;

    impl Drop for Clear {
        fn drop(&mut self) {
            UNTAKEN.take();
        }
    }

    let _clear = Clear;
    UNTAKEN.set(untaken);
    drop(body);
}

/// What was not taken of the body that is being dropped.
pub(super) fn untaken() -> Amount {
    UNTAKEN.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_taken_is_its_part_of_what_was_seen() {
        let untaken = Amount { bytes: 30, pieces: 3 };
        let seen = |output_seen| Reading { output_seen, ..Reading::default() };
        assert_eq!(untaken.tokens(100, Some(&seen(50))), 15);
        assert_eq!(untaken.tokens(100, Some(&seen(1))), 1, "rounded up");
        assert_eq!(untaken.tokens(0, Some(&seen(7))), 7);
        assert_eq!(untaken.tokens(100, Some(&seen(0))), 3);
        assert_eq!(untaken.tokens(100, None), 3);
        assert_eq!(Amount::default().tokens(100, Some(&seen(50))), 0);
    }
}
