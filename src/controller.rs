//! What decides how many calls may be in flight, from what happens to calls.
//!
//! **The limiter does not use these yet**: its limits are what its configuration says. For now they can be tried on a
//! modelled gateway, with the [`simulator`](crate::simulator).
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
//! use tower_inflight::controller::{Knee, KneeConfig};
//! use tower_inflight::simulator::{Gateway, Load, Scenario};
//!
//! let gateway = Gateway { slots: 8, ..Gateway::default() };
//! let scenario = Scenario::new(gateway, Load::Closed { callers: 40, think_s: 0.0 });
//! let run = scenario.run(1, |_client| Box::new(Knee::new(KneeConfig::default()).expect("the default is valid")))?;
//!
//! println!("{run}");
//! # Ok::<(), tower_inflight::simulator::InvalidScenario>(())
//! ```

pub use crate::engine::controller::{
    Aimd, AimdConfig, Controller, Fixed, Gradient, GradientConfig, GradientProbe, InvalidController, Knee, KneeConfig,
    LatencyTarget, Mark, Sample, Sent,
};
