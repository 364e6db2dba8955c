//! The pure part: decides who goes next, and knows nothing of tasks, sockets, locks or clocks.
//!
//! A [`Pool`](pool::Pool) is one scheduling domain: the lanes of one provider and kind. It is a state machine. The shell
//! steps it under one lock with facts (`try_acquire`, `enqueue`, `collect`, `cancel`, `settle`, `reconfigure`,
//! `handle_timeout`), each with the time, and gets back grants, refusals and [`Effects`](step::Effects): whom to wake and
//! which lanes changed. It wakes and reports after it has unlocked.
//!
//! ```text
//!              try_acquire ──────────────────────────────┐
//!                  │ Busy                                ▼
//!  (new) ──▶   enqueue ──▶ QUEUED ──── dispatch ──▶ GRANTED ── collect ──▶ in flight ── settle ──▶ (gone)
//!                           │  ▲                    │     │
//!              cancel,      │  └──── collect ──┐    │     └── cancel: the slot goes to the next waiter
//!              expiry,      ▼                  │    │ not collected within the lease
//!              close     (gone)              PARKED ◀┘
//! ```
//!
//! Invariants, each held by a property test:
//! 1. Slots in use never exceed the limit in force at each grant.
//! 2. After all calls ended, every count is zero.
//! 3. If a waiter could be granted, it is granted in the step that made it possible.
//! 4. Within a class and tenant, grants follow arrival.
//! 5. offered = granted + refused + cancelled + queued.
//! 6. Callers that are not interactive together hold fewer than `limit - reserve` slots when one of them is granted.

pub(crate) mod asked;
pub(crate) mod breaker;
pub(crate) mod capacity;
pub(crate) mod change;
pub(crate) mod controller;
pub(crate) mod forecast;
pub(crate) mod health;
pub(crate) mod jitter;
pub(crate) mod lane;
pub(crate) mod list;
pub(crate) mod outcome;
pub(crate) mod pause;
pub(crate) mod policy;
pub(crate) mod pool;
pub(crate) mod priority;
pub(crate) mod queue;
pub(crate) mod quota;
pub(crate) mod retry_budget;
pub(crate) mod rolling;
pub(crate) mod runs;
pub(crate) mod shares;
pub(crate) mod slab;
pub(crate) mod steering;
pub(crate) mod step;
pub(crate) mod time;
pub(crate) mod totals;
pub(crate) mod valve;
pub(crate) mod waits;
pub(crate) mod window;
