//! A ceiling that costs a pause to touch.

use super::table::{CEILING_MAX, PRICE, PRICE_MAX};

/// Where refusals ask for a pause, every look above the accepted level may cost one: `retry-after: 60` although a slot
/// is free a second later. Such a ceiling is remembered for many times that pause, and longer after each look that
/// failed.
#[derive(Debug)]
pub(super) struct Ceiling {
    calls: f64,
    until: f64,
    price: f64,
}

impl Ceiling {
    pub(super) const fn new() -> Self {
        Self { calls: 0.0, until: 0.0, price: PRICE }
    }

    /// Most calls that may be tried.
    pub(super) fn at(&self, now: f64) -> f64 {
        if now < self.until { self.calls } else { f64::INFINITY }
    }

    /// More than `calls` were refused, and a `pause` was asked for.
    pub(super) fn on_refused(&mut self, now: f64, calls: f64, pause: f64) {
        if now >= self.until {
            // A look at the same ceiling found it again; a new one is a new price.
            self.price = if calls <= self.calls { (2.0 * self.price).min(PRICE_MAX) } else { PRICE };
        }
        self.calls = calls;
        self.until = self.until.max(now + (self.price * pause).min(CEILING_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_for_many_times_the_pause_and_longer_when_found_again() {
        let mut ceiling = Ceiling::new();
        assert_eq!(ceiling.at(0.0), f64::INFINITY);
        ceiling.on_refused(10.0, 4.0, 60.0);
        ceiling.on_refused(10.1, 4.0, 60.0);
        assert_eq!(ceiling.at(1209.0), 4.0);
        assert_eq!(ceiling.at(1211.0), f64::INFINITY);
        ceiling.on_refused(2000.0, 4.0, 60.0);
        assert_eq!(ceiling.at(4399.0), 4.0);
        assert_eq!(ceiling.at(4401.0), f64::INFINITY);
    }

    #[test]
    fn no_pause_freezes_it() {
        let mut ceiling = Ceiling::new();
        ceiling.on_refused(10.0, 4.0, 1e9);
        assert_eq!(ceiling.at(3611.0), f64::INFINITY);
    }

    #[test]
    fn a_higher_one_starts_anew() {
        let mut ceiling = Ceiling::new();
        ceiling.on_refused(10.0, 4.0, 1.0);
        ceiling.on_refused(100.0, 9.0, 1.0);
        assert_eq!(ceiling.at(119.0), 9.0);
        assert_eq!(ceiling.at(121.0), f64::INFINITY);
    }
}
