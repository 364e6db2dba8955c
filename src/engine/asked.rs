//! What is kept of the waiters of lanes that a controller or a budget follows: others need not have it, and every waiter's
//! future would have to make room.

use hashbrown::HashMap;

use super::quota::Tokens;
use super::steering::RequestFacts;

/// What a call says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) facts: RequestFacts,
    /// What it may use at most.
    pub(crate) tokens: Tokens,
}

/// By the waiter's index in the queue. Empty, and without memory, where nobody is followed.
#[derive(Debug, Default)]
pub(crate) struct AskedByWaiters(HashMap<u32, Asked, foldhash::fast::RandomState>);

impl AskedByWaiters {
    pub(crate) fn note(&mut self, waiter: u32, asked: Asked) {
        self.0.insert(waiter, asked);
    }

    /// Of one who came before anybody followed: nothing.
    pub(crate) fn of(&self, waiter: u32) -> Asked {
        self.0.get(&waiter).copied().unwrap_or_default()
    }

    /// The waiter is gone.
    #[inline]
    pub(crate) fn forget(&mut self, waiter: u32) -> Asked {
        if self.0.is_empty() { Asked::default() } else { self.take(waiter) }
    }

    #[cold]
    fn take(&mut self, waiter: u32) -> Asked {
        let asked = self.0.remove(&waiter).unwrap_or_default();
        if self.0.is_empty() {
            // The memory of the longest queue ever goes with its last waiter.
            self.0.shrink_to(64);
        }
        asked
    }
}
