use serde::{Deserialize, Serialize};

use super::switch::Named;
use crate::engine::shares;

/// What part of a lane's limit each class may count on while others want more than theirs.
///
/// ```
/// use tower_inflight::{LimitConfig, Shares};
///
/// let config: LimitConfig = toml::from_str(
///     r#"
///     max_inflight = 10
///     shares = { interactive = 0.5, default = 0.3, bulk = 0.2 }
///
///     [[overrides]]
///     lane = "*|acme/batch"
///     shares = { bulk = 0.8 }
///     "#,
/// )?;
/// assert_eq!(config.shares, Some(Shares { interactive: 0.5, default: 0.3, bulk: 0.2 }));
/// # Ok::<(), toml::de::Error>(())
/// ```
///
/// # The rule
///
/// Each share is turned into whole slots of the limit that is in force, less than one slot off. Rounding favours the higher
/// classes: interactive alone, and interactive and default together, never get less than their shares. So of a limit that
/// shrinks, bulk first gives up what can no longer be given, then default: ten slots of the example are 5, 3 and 2, four
/// are 2, 2 and 0, and one is 1, 0 and 0.
///
/// When a slot is free:
///
/// 1. Among the waiters of classes that hold fewer slots than that, the first goes, in the usual order: by class, with
///    aging, by turns of tenants, by arrival.
/// 2. If none of these waits, the first of all waiters goes, in the same order. So slots that a class does not use are lent
///    to the others, and none is kept free. They come back as calls end; no running call is cut.
/// 3. Aging stays what keeps a class from waiting for ever: a waiter that comes first in the usual order, and is of the first
///    class or has risen to it, goes before rule 1 while its own class holds no slot at all.
///
/// The [`interactive_reserve`](crate::LimitConfig::interactive_reserve) goes before all of this: slots in it are for
/// interactive calls, whatever the others' shares. What a lane may take of a [pool](crate::PoolLimit) that several lanes
/// share is decided as without shares, by class and arrival.
///
/// # Errors
///
/// Refused are a share below 0 or above 1, and shares that are more than 1 together. They may be less: what is nobody's share
/// goes by rule 2 alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shares {
    /// Of interactive calls. Default 0.
    pub interactive: f64,
    /// Of default calls. Default 0.
    pub default: f64,
    /// Of bulk calls. Default 0.
    pub bulk: f64,
}

impl Shares {
    /// By class.
    pub(super) fn parts(self) -> [f64; 3] {
        [self.interactive, self.default, self.bulk]
    }

    pub(super) fn policy(self) -> shares::Shares {
        shares::Shares::new(self.parts())
    }
}

impl Named for Shares {
    const NAMES: &'static [&'static str] = &["off"];

    fn with_defaults(_: &str) -> Option<Self> {
        None
    }
}
