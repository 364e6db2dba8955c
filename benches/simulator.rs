//! How fast the simulator is (attempts per second on one core, with the default controller), and how much of a call the
//! controller costs.

// Benches measure, so they read the clock.
#![allow(clippy::disallowed_methods)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use tower_inflight::Outcome;
use tower_inflight::controller::{Controller, Knee, KneeConfig, Mark, Sample, Sent};
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
    println!("bar sample_ns {:.1} ns", (0..PASSES).map(|_| sample_ns()).fold(f64::INFINITY, f64::min));
}

const CALLS: u32 = 1_000_000;
/// Calls that overlap.
const IN_FLIGHT: u32 = 64;
const BETWEEN_CALLS: Duration = Duration::from_micros(250);
/// Calls sent between a call and its first byte.
const FIRST_BYTE_AFTER: u32 = 16;

/// All hooks of one call through the default controller: sent, first byte, end, and the limit asked for after each.
fn sample_ns() -> f64 {
    let mut controller = default_controller(IN_FLIGHT);
    let mut open = [None::<(Sent, Mark)>; IN_FLIGHT as usize];
    let mut now = Duration::ZERO;
    let started_at = Instant::now();
    for n in 0..CALLS {
        now += BETWEEN_CALLS;
        if let Some((sent, mark)) = open[(n % IN_FLIGHT) as usize].take() {
            let mut sample = Sample::new(sent, mark, now, Outcome::Success);
            sample.first_byte_at = Some(sent.at + BETWEEN_CALLS * FIRST_BYTE_AFTER);
            (sample.further_chunks, sample.answer_bytes, sample.in_flight) = (40, 8_000, IN_FLIGHT);
            controller.on_end(&sample);
            black_box((controller.limit(), controller.paused_until()));
        }
        let mut sent = Sent::new(now, IN_FLIGHT);
        (sent.is_saturated, sent.request_bytes) = (true, Some(2_000 + n % 4_000));
        let mark = controller.on_sent(&sent);
        black_box((controller.limit(), controller.paused_until()));
        open[(n % IN_FLIGHT) as usize] = Some((sent, mark));
        if let Some((sent, mark)) = &open[((n + IN_FLIGHT - FIRST_BYTE_AFTER) % IN_FLIGHT) as usize] {
            controller.on_first_byte(now, sent, *mark);
            black_box((controller.limit(), controller.paused_until()));
        }
    }
    started_at.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
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
