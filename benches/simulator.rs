//! How fast the simulator is: attempts per second on one core, with the default controller.

// Benches measure, so they read the clock.
#![allow(clippy::disallowed_methods)]

use std::time::Instant;

use tower_inflight::controller::{Controller, Knee, KneeConfig};
use tower_inflight::simulator::Scenario;

const PASSES: u64 = 5;

fn main() {
    for (name, text) in [
        ("", include_str!("../scenarios/huge.toml")),
        ("_of_slow_tuesday", include_str!("../scenarios/slow_tuesday.toml")),
    ] {
        let scenario: Scenario = toml::from_str(text).expect("the scenario files are valid");
        println!("bar sim_calls_per_s{name} {:.0} calls/s", best_rate(&scenario));
    }
}

/// The best of some passes: others may use the machine.
fn best_rate(scenario: &Scenario) -> f64 {
    (1..=PASSES).map(|seed| rate(scenario, seed)).fold(0.0, f64::max)
}

fn rate(scenario: &Scenario, seed: u64) -> f64 {
    let started_at = Instant::now();
    let run = scenario.run(seed, |_| default_controller(scenario.initial_limit)).expect("the scenario files are valid");
    run.sent() as f64 / started_at.elapsed().as_secs_f64()
}

fn default_controller(initial_limit: u32) -> Box<dyn Controller> {
    let config = KneeConfig { initial_limit, ..KneeConfig::default() };
    Box::new(Knee::new(config).expect("the limits of the scenario files are valid"))
}
