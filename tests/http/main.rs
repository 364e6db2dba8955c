//! The layer between hand-written services and bodies: no sockets, no real clock.

mod adaptive;
mod breaker;
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
mod quota;
mod recorders;
mod refusals;
mod relay;
mod retries;
mod scheduling;
mod shutdown;
mod snapshot;
mod support;
mod usage;
