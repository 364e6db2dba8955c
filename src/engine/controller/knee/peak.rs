//! The level that worked lately, and quick looks whether it does again.

use super::table::{PEAK, QUICK_FIRST};

/// After a fall, the upstream often comes back to what it was. A look by one call costs next to nothing, so these looks
/// come soon and become rarer, and wait for no round to end.
#[derive(Debug)]
pub(super) struct Peak {
    level: f64,
    look: Option<Look>,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    at: f64,
    gap: f64,
}

impl Peak {
    pub(super) const fn new() -> Self {
        Self { level: 0.0, look: None }
    }

    pub(super) fn level(&self) -> f64 {
        self.level
    }

    /// A round with `in_flight` calls went well.
    pub(super) fn on_worked(&mut self, in_flight: f64) {
        if !self.is_above(in_flight) {
            *self = Self { level: in_flight.round(), look: None };
        }
    }

    /// The limit was lowered.
    pub(super) fn on_cut(&mut self, now: f64, limit: f64) {
        if self.look.is_none() && self.is_above(limit) {
            self.look = Some(Look { at: now + QUICK_FIRST, gap: QUICK_FIRST });
        }
    }

    /// `limit` calls do all the work that more could do.
    pub(super) fn forget(&mut self, limit: f64) {
        *self = Self { level: limit, look: None };
    }

    /// Worth going back to from `limit`.
    pub(super) fn is_above(&self, limit: f64) -> bool {
        self.level > PEAK * limit
    }

    /// Whether a quick look is due, which is then taken as done.
    pub(super) fn is_look_due(&mut self, now: f64, limit: f64) -> bool {
        if !self.is_above(limit) {
            return false;
        }
        let Some(look) = self.look.as_mut().filter(|look| now >= look.at) else { return false };
        look.gap *= 2.0;
        look.at = now + look.gap;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fallen() -> Peak {
        let mut peak = Peak::new();
        peak.on_worked(32.0);
        peak.on_cut(100.0, 8.0);
        peak
    }

    #[test]
    fn looks_become_rarer() {
        let mut peak = fallen();
        let looks: Vec<u32> = (100..2000).filter(|now| peak.is_look_due(f64::from(*now), 8.0)).collect();
        assert_eq!(looks[..5], [102, 106, 114, 130, 162]);
    }

    #[test]
    fn rounds_below_do_not_lower_it() {
        let mut peak = fallen();
        peak.on_worked(8.0);
        assert_eq!(peak.level(), 32.0);
        peak.on_worked(25.0);
        assert_eq!(peak.level(), 25.0, "that is back");
        assert!(!peak.is_look_due(1e6, 24.0));
    }

    #[test]
    fn a_small_cut_is_no_fall() {
        let mut peak = Peak::new();
        peak.on_worked(32.0);
        peak.on_cut(100.0, 30.0);
        assert!(!peak.is_look_due(1e6, 30.0));
    }
}
