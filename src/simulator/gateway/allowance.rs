//! A cap on the request rate, as a token bucket.

use crate::engine::time::Time;

#[derive(Debug, Default)]
pub(super) struct Allowance {
    balance: f64,
    as_of: Time,
}

const BURST_S: f64 = 1.0;

impl Allowance {
    pub(super) fn take(&mut self, per_s: f64, now: Time) -> bool {
        let refill = now.since(self.as_of).as_secs_f64() * per_s;
        self.balance = (self.balance + refill).min((per_s * BURST_S).max(1.0));
        self.as_of = now;
        let is_granted = self.balance >= 1.0;
        if is_granted {
            self.balance -= 1.0;
        }
        is_granted
    }
}
