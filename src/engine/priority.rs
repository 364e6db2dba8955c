//! Who goes first.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The class of a call. `Interactive` goes before `Default`, `Default` before `Bulk`.
///
/// Classes are strict: while an interactive call waits, no default call of the same lane is granted. A waiter rises one
/// class for every [`aging_step`](crate::LimitConfig::aging_step) it has waited, so bulk work is slow but never stuck.
///
/// The order of the enum is the order of service, so the most urgent class is the least:
///
/// ```
/// use tower_inflight::Priority;
///
/// let mut classes = [Priority::Bulk, Priority::Interactive, Priority::Default];
/// classes.sort();
/// assert_eq!(classes, [Priority::Interactive, Priority::Default, Priority::Bulk]);
/// assert_eq!("bulk".parse(), Ok(Priority::Bulk));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// Somebody looks at the screen and waits. May use the reserved slots.
    Interactive,
    /// Everything that nobody classified.
    #[default]
    Default,
    /// Work that may take its time: batches, reviews, back-fills.
    Bulk,
}

impl Priority {
    /// Every class, in order of service.
    pub const ALL: [Self; 3] = [Self::Interactive, Self::Default, Self::Bulk];

    /// The name used in labels, headers and configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Default => "default",
            Self::Bulk => "bulk",
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Priority {
    type Err = UnknownPriority;

    fn from_str(name: &str) -> Result<Self, UnknownPriority> {
        Self::ALL
            .into_iter()
            .find(|class| name.eq_ignore_ascii_case(class.as_str()))
            .ok_or_else(|| UnknownPriority(name.chars().take(64).collect()))
    }
}

/// A class name from outside that is none of the known ones.
///
/// ```
/// use tower_inflight::Priority;
///
/// let error = "urgent".parse::<Priority>().unwrap_err();
/// assert_eq!(error.to_string(), "unknown priority \"urgent\", expected one of interactive, default, bulk");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPriority(String);

impl fmt::Display for UnknownPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown priority {:?}, expected one of interactive, default, bulk", self.0)
    }
}

impl std::error::Error for UnknownPriority {}
