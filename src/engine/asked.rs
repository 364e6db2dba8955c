//! What is kept of the waiters of lanes that a controller or a budget follows: others need not have it, and every waiter's
//! future would have to make room.

use hashbrown::HashMap;

use super::breaker::Pass;
use super::quota::Tokens;
use super::steering::RequestFacts;

/// What a call says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) facts: RequestFacts,
    /// What it may use at most.
    pub(crate) tokens: Tokens,
}

/// The same of a waiter, and what it was let in with once it is granted a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(super) asked: Asked,
    pub(super) pass: Pass,
}

/// By the waiter's index in the queue. Empty, and without memory, where nobody is followed.
#[derive(Debug, Default)]
pub(crate) struct KeptOfWaiters(HashMap<u32, Kept, foldhash::fast::RandomState>);

impl KeptOfWaiters {
    pub(super) fn note(&mut self, waiter: u32, asked: Asked) {
        self.0.insert(waiter, Kept { asked, pass: Pass::default() });
    }

    pub(super) fn note_pass(&mut self, waiter: u32, pass: Pass) {
        self.0.entry(waiter).or_default().pass = pass;
    }

    /// Of one who came before anybody followed: nothing.
    pub(super) fn of(&self, waiter: u32) -> Kept {
        self.0.get(&waiter).copied().unwrap_or_default()
    }

    /// The waiter is gone.
    #[inline]
    pub(super) fn forget(&mut self, waiter: u32) -> Kept {
        if self.0.is_empty() { Kept::default() } else { self.take(waiter) }
    }

    #[cold]
    fn take(&mut self, waiter: u32) -> Kept {
        let kept = self.0.remove(&waiter).unwrap_or_default();
        if self.0.is_empty() {
            // The memory of the longest queue ever goes with its last waiter.
            self.0.shrink_to(64);
        }
        kept
    }
}
