//! What all pools of a limiter share.

use tokio::sync::Notify;

use super::observer::Hooks;

use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[derive(Debug)]
pub(crate) struct Shared {
    waiting: AtomicUsize,
    max_waiting: AtomicUsize,
    is_closed: AtomicBool,
    /// Told each time a closed pool has nothing in flight any more.
    pub(super) drained: Notify,
    pub(super) hooks: Hooks,
}

impl Shared {
    pub(super) fn new(max_waiting: usize, hooks: Hooks) -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            max_waiting: AtomicUsize::new(max_waiting),
            is_closed: AtomicBool::new(false),
            drained: Notify::new(),
            hooks,
        }
    }

    pub(super) fn set_max_waiting(&self, max: usize) {
        self.max_waiting.store(max, Ordering::Relaxed);
    }

    pub(super) fn max_waiting(&self) -> usize {
        self.max_waiting.load(Ordering::Relaxed)
    }

    /// Takes one place in the total, or none if all are taken.
    pub(super) fn reserve(&self) -> bool {
        let is_free = self.waiting.fetch_add(1, Ordering::Relaxed) < self.max_waiting();
        if !is_free {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        is_free
    }

    /// The waiters of one pool, counted as `before`, are now `after`.
    pub(super) fn recount(&self, before: usize, after: usize) {
        if after > before {
            self.waiting.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.waiting.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }
}
