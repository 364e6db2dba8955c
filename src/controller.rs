//! What decides how many calls may be in flight, from what happens to calls.
//!
//! A lane or a pool gets one with [`Limit`](crate::Limit) in its configuration, or one of your own making with
//! [`LimiterBuilder::lane_controller`](crate::LimiterBuilder::lane_controller). The feature `simulator` has a modelled gateway
//! to try them on.
//!
//! | controller | for |
//! |---|---|
//! | [`Knee`] | an upstream of which nothing is known; needs no tuning |
//! | [`Aimd`] | an upstream that refuses what is too much, and whose refusals are cheap |
//! | [`Gradient`] | an upstream whose first bytes take about equally long from call to call |
//! | [`Fixed`] | a capacity that somebody promised |
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use tower_inflight::controller::{AimdConfig, LatencyTarget};
//! use tower_inflight::{LaneOverride, Limit, Limiter};
//!
//! // Every lane finds its limit, but for one whose upstream only ever becomes slow.
//! let target = LatencyTarget { first_byte: Some(Duration::from_millis(1500)), ..LatencyTarget::default() };
//! let slow = Limit::Aimd(AimdConfig { latency: Some(target), ..AimdConfig::default() });
//! let limiter = Limiter::builder().adaptive().lane(LaneOverride::new("*|acme/slow").limit(slow)).build()?;
//! # let _ = limiter;
//! # Ok::<(), tower_inflight::ConfigError>(())
//! ```

pub use crate::engine::controller::{
    Aimd, AimdConfig, Controller, Fixed, Gradient, GradientConfig, GradientProbe, InvalidController, Knee, KneeConfig,
    LatencyTarget, Mark, Sample, Sent,
};
