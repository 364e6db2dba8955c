//! Who is compared, and how each is made.

use std::num::NonZeroU32;
use std::time::Duration;

use tower_inflight::controller::{
    Aimd, AimdConfig, Controller, Fixed, Gradient, GradientConfig, Knee, KneeConfig, LatencyTarget,
};
use tower_inflight::simulator::{Oracle, Scenario};

use crate::peers::{EnvoyGradient, GoAimd, NetflixAimd, NetflixGradient2, NetflixVegas};

pub(crate) const ORACLE: &str = "oracle";
pub(crate) const OURS: &str = "ours";

/// As the columns are called, in their order.
pub(crate) const NAMES: [&str; 13] = [
    ORACLE,
    OURS,
    "aimd",
    "aimd_latency",
    "gradient",
    "fixed_half",
    "fixed_exact",
    "fixed_double",
    "netflix_aimd",
    "netflix_vegas",
    "netflix_gradient2",
    "envoy_gradient",
    "go_aimd",
];

/// The controller of one client; a fixed limit knows the capacity that the gateway has at the start.
pub(crate) fn make(name: &str, scenario: &Scenario) -> Option<Box<dyn Controller>> {
    let initial = scenario.initial_limit;
    let share = scenario.gateway.capacity() / scenario.clients.count;
    let constant = |limit: u32| Box::new(Fixed::new(NonZeroU32::new(limit).unwrap_or(NonZeroU32::MIN)));
    Some(match name {
        ORACLE => Box::new(Oracle::new(scenario)),
        OURS => knee(initial),
        "aimd" => aimd(initial, None),
        "aimd_latency" => aimd(initial, Some(target())),
        "gradient" => gradient(initial),
        "fixed_half" => constant(share / 2),
        "fixed_exact" => constant(share),
        "fixed_double" => constant(share * 2),
        "netflix_aimd" => Box::new(NetflixAimd::new(initial)),
        "netflix_vegas" => Box::new(NetflixVegas::new(initial)),
        "netflix_gradient2" => Box::new(NetflixGradient2::new(initial)),
        "envoy_gradient" => Box::new(EnvoyGradient::new(initial)),
        "go_aimd" => Box::new(GoAimd::new(initial)),
        _ => return None,
    })
}

const VALID: &str = "all but where it begins is the default";

fn knee(initial_limit: u32) -> Box<dyn Controller> {
    let config = KneeConfig::default();
    let max_limit = config.max_limit.max(initial_limit);
    Box::new(Knee::new(KneeConfig { initial_limit, max_limit, ..config }).expect(VALID))
}

fn aimd(initial_limit: u32, latency: Option<LatencyTarget>) -> Box<dyn Controller> {
    let config = AimdConfig::default();
    let max_limit = config.max_limit.max(initial_limit);
    Box::new(Aimd::new(AimdConfig { initial_limit, max_limit, latency, ..config }).expect(VALID))
}

fn gradient(initial_limit: u32) -> Box<dyn Controller> {
    let config = GradientConfig::default();
    let max_limit = config.max_limit.max(initial_limit);
    Box::new(Gradient::new(GradientConfig { initial_limit, max_limit, ..config }).expect(VALID))
}

/// The target of the worked example, `slow_tuesday`.
fn target() -> LatencyTarget {
    LatencyTarget { first_byte: Some(Duration::from_millis(1_500)), ..LatencyTarget::default() }
}
