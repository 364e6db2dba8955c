//! Retry throttling as gRPC has it: proposal A6, "gRPC Retry Design", section "Throttling Retry Attempts and Hedged RPCs".
//!
//! The tokens begin at their most. A failure costs one, a success earns `token_ratio` of one, and no retry is sent while no
//! more than half of them are there. First attempts go on, so successes can earn the way back.

/// A6 keeps three decimals of the ratio; whole thousandths add up exactly.
const MILLI: u32 = 1_000;

#[derive(Debug)]
pub(super) struct Grpc {
    max: u32,
    earns: u32,
    tokens: u32,
}

impl Grpc {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float that is too large saturates")]
    pub(super) fn new(max_tokens: u32, token_ratio: f64) -> Self {
        let max = max_tokens.saturating_mul(MILLI);
        Self { max, earns: (token_ratio * f64::from(MILLI)).round() as u32, tokens: max }
    }

    pub(super) fn admits(&self) -> bool {
        self.tokens > self.max / 2
    }

    pub(super) fn on_end(&mut self, is_accepted: bool) {
        self.tokens = if is_accepted {
            self.tokens.saturating_add(self.earns).min(self.max)
        } else {
            self.tokens.saturating_sub(MILLI)
        };
    }
}
