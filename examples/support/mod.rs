//! What the examples share: a gateway to call, the request that calls it, a client that sends it and a reader for its answer;
//! and a hand that draws.

// Every example compiles this module for itself and uses a part of it.
#![allow(dead_code, unused_imports)]
// The gateway has a clock of its own.
#![allow(clippy::disallowed_methods)]

mod answer;
mod dice;
mod gateway;
pub(crate) mod plot;
mod request;
mod slots;
mod wire;

pub(crate) use answer::Answer;
pub(crate) use dice::Dice;
pub(crate) use gateway::{Gateway, GatewayConfig, Head, Refusal};
pub(crate) use request::{ChatRequest, completions_url};
pub(crate) use slots::GatewayStats;
pub(crate) use wire::{CountedBody, HttpRequest, Wire, http_client};
