//! One task per pool that has waiters: calls the engine when it wants to be called.
//!
//! The first waiter starts it, and it ends when nobody waits. If its runtime goes away, it asks every waiter to look
//! again on its way out, and the first that does starts another.

#![cfg_attr(inflight_loom, allow(dead_code, reason = "no timer in a model"))]

use std::sync::{Arc, Weak};
use std::time::Duration;

#[cfg(not(inflight_loom))]
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::clock;
use super::pool::Pool;
use crate::engine::time::Time;

/// Upper bound of one sleep: a timer whose waiters are gone outlives them by no more than this.
const LINGER: Duration = Duration::from_secs(10);

/// What the pool knows of its timer, under the pool's lock.
#[derive(Debug)]
pub(super) struct State {
    is_running: bool,
    /// When it will call next.
    armed_at: Time,
}

impl Default for State {
    fn default() -> Self {
        Self { is_running: false, armed_at: Time::NEVER }
    }
}

/// What a step asks of the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Nothing,
    Start,
    Nudge,
}

impl State {
    /// For a step of anybody: the running timer has to know if something is due earlier.
    pub(super) fn plan(&mut self, due_at: Option<Time>) -> Order {
        match due_at {
            Some(due_at) if self.is_running && due_at < self.armed_at => {
                self.armed_at = due_at;
                Order::Nudge
            }
            _ => Order::Nothing,
        }
    }

    /// For a step of a waiter that is being polled: it also sees to it that there is a timer. Others do not start one:
    /// they may be running in a destructor or in a runtime that is going down. Where there is no runtime, there is no
    /// timer until a waiter is polled in one.
    pub(super) fn plan_for_waiter(&mut self, due_at: Option<Time>) -> Order {
        match due_at {
            Some(due_at) if !self.is_running && has_runtime() => {
                *self = Self { is_running: true, armed_at: due_at };
                Order::Start
            }
            _ => self.plan(due_at),
        }
    }

    fn stop(&mut self) {
        *self = Self::default();
    }
}

impl Order {
    #[inline]
    pub(super) fn carry_out(self, pool: &Pool) {
        match self {
            Self::Nothing => {}
            Self::Nudge => pool.nudge.notify_one(),
            Self::Start => start(pool),
        }
    }
}

#[cfg(not(inflight_loom))]
fn has_runtime() -> bool {
    Handle::try_current().is_ok()
}

#[cfg(inflight_loom)]
fn has_runtime() -> bool {
    true
}

#[cfg(not(inflight_loom))]
fn start(pool: &Pool) {
    let running = Running { pool: pool.me.clone(), is_arming: false, is_done: false };
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(drive(running, pool.nudge.clone()));
    }
}

#[cfg(inflight_loom)]
fn start(_: &Pool) {}

async fn drive(mut running: Running, nudge: Arc<Notify>) {
    while let Some(due_at) = running.run() {
        running.is_arming = true;
        let timeout = tokio::time::timeout_at(clock::instant(due_at), nudge.notified());
        running.is_arming = false;
        // A nudge and a timeout mean the same: look again.
        let _ = timeout.await;
    }
    running.is_done = true;
}

/// Held by the timer task; its end, however it comes, is noted in the pool.
struct Running {
    pool: Weak<Pool>,
    /// Asking the runtime for a timer, which panics where the runtime has none.
    is_arming: bool,
    is_done: bool,
}

impl Running {
    /// Does what is due. Returns when to call next, or `None` if there is nothing to wait for.
    fn run(&self) -> Option<Time> {
        let now = clock::now();
        self.pool.upgrade()?.step_all(|state, effects| {
            state.engine.handle_timeout(now, effects);
            let Some(due_at) = state.engine.poll_timeout() else {
                state.timer.stop();
                return None;
            };
            state.timer.armed_at = due_at.min(now + LINGER);
            Some(state.timer.armed_at)
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        if let Some(pool) = self.pool.upgrade() {
            pool.step_all(|state, effects| {
                state.timer.stop();
                // Where there can be no timer, whoever is asked to look again would only start another that cannot be.
                if !self.is_arming {
                    state.engine.wake_all(effects);
                }
            });
        }
    }
}
