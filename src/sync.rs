//! The locks and atomics that loom has to see.

#[cfg(not(inflight_loom))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

#[cfg(inflight_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard, atomic};

/// A panic elsewhere cannot leave the engine half-stepped in a way that matters more than going on.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
