//! The layer between hand-written services and bodies: no sockets, no real clock.

mod adaptive;
mod deadlines;
mod drop_order;
mod endings;
mod guards;
mod hold;
mod lanes;
mod load;
mod metrics;
mod nested;
mod once;
mod pass;
mod pauses;
mod recorders;
mod refusals;
mod retries;
mod scheduling;
mod shutdown;
mod snapshot;
mod support;
mod usage;
