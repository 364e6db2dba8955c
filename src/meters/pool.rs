//! The facts of a pool that has a limit of its own; of others there is nothing to tell that their lanes do not.

use metrics::{Counter, Gauge};

use super::{FOLDED, Lazy, Level, Shifted, contained};
use crate::engine::pool::PoolFigures;

pub(crate) struct PoolMeters {
    prefix: &'static str,
    pool: String,
    /// Several pools are counted together here.
    is_shared: bool,
    in_flight: Level,
    limit: Level,
    gauges: Lazy<Gauges>,
    pauses: Lazy<Counter>,
}

struct Gauges {
    in_flight: Gauge,
    limit: Gauge,
}

/// The names and what they mean, for recorders that show descriptions.
#[cfg(feature = "prometheus")]
pub(crate) const POOL_DESCRIPTIONS: [(&str, metrics::Unit, &str); 3] = [
    ("pool_inflight", metrics::Unit::Count, "Calls that hold a slot of a pool with a limit, over all its lanes."),
    ("pool_limit", metrics::Unit::Count, "Most slots in use at once over all lanes of the pool; 0 since it has none."),
    ("pool_pauses_total", metrics::Unit::Count, "Pauses of a pool as a whole, whose limit is adaptive."),
];

impl PoolMeters {
    pub(crate) fn new(prefix: &'static str, pool: String) -> Self {
        Self {
            prefix,
            is_shared: pool == FOLDED,
            pool,
            in_flight: Level::default(),
            limit: Level::default(),
            gauges: Lazy::default(),
            pauses: Lazy::default(),
        }
    }

    /// As with [`Meters::shift`](super::Meters::shift).
    #[inline]
    pub(crate) fn shift(&self, from: PoolFigures, to: PoolFigures) -> Shifted {
        let mut shifted = 0;
        if from.in_use != to.in_use {
            self.in_flight.shift(from.in_use, to.in_use, self.is_shared);
            shifted |= Shifted::IN_FLIGHT;
        }
        if from.limit != to.limit {
            self.limit.shift(from.limit, to.limit, false);
            shifted |= Shifted::LIMIT;
        }
        Shifted(shifted)
    }

    #[inline]
    pub(crate) fn publish(&self, shifted: Shifted) {
        if shifted.0 != 0 {
            self.publish_each(shifted);
        }
    }

    fn publish_each(&self, Shifted(shifted): Shifted) {
        contained(|| {
            let gauges = self.gauges();
            if shifted & Shifted::IN_FLIGHT != 0 {
                self.in_flight.publish(&gauges.in_flight);
            }
            if shifted & Shifted::LIMIT != 0 {
                self.limit.publish(&gauges.limit);
            }
        });
    }

    /// Shows the limit of a pool that is new, if it has one.
    pub(crate) fn publish_limit(&self) {
        if !self.limit.is_zero() {
            contained(|| self.limit.publish(&self.gauges().limit));
        }
    }

    pub(crate) fn paused(&self) {
        contained(|| {
            let made = || metrics::counter!(self.name("pool_pauses_total"), "pool" => self.pool.clone());
            self.pauses.get_or_make(made).increment(1);
        });
    }

    fn gauges(&self) -> &Gauges {
        let gauge = |what: &str| metrics::gauge!(self.name(what), "pool" => self.pool.clone());
        self.gauges.get_or_make(|| Gauges { in_flight: gauge("pool_inflight"), limit: gauge("pool_limit") })
    }

    fn name(&self, what: &str) -> String {
        format!("{}_{what}", self.prefix)
    }
}

impl std::fmt::Debug for PoolMeters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PoolMeters").field("pool", &self.pool).finish_non_exhaustive()
    }
}
