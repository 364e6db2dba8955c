use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::engine::controller::{Mark, Sample, Sent};

#[derive(Debug)]
struct Constant(u32);

impl Controller for Constant {
    fn limit(&self) -> u32 {
        self.0
    }

    fn on_end(&mut self, _: &Sample) {}
}

fn closed(gateway: Gateway) -> Scenario {
    Scenario::new(gateway, Load::Closed { callers: 100, think_s: 0.0 })
}

fn run(scenario: &Scenario, limit: u32) -> Run {
    scenario.run(1, |_| Box::new(Constant(limit))).unwrap()
}

fn refusing(slots: u32) -> Gateway {
    Gateway { slots, queue: Some(0), ..Gateway::default() }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let scenario = closed(Gateway { faults: Faults { reset: 0.1, ..Faults::default() }, ..refusing(8) });
    let text = |seed| scenario.run(seed, |_| Box::new(Constant(12))).unwrap().to_string();
    assert_eq!(text(3), text(3));
    assert_ne!(text(3), text(4));
}

#[test]
fn a_limit_at_the_capacity_is_never_refused_and_one_above_it_is() {
    assert_eq!(run(&closed(refusing(8)), 8).wasted_calls(), 0);
    assert!(run(&closed(refusing(8)), 9).wasted_calls() > 0);
}

#[test]
fn the_limit_bounds_the_calls_in_flight() {
    let run = run(&closed(Gateway::default()), 5);
    assert!(run.steps()[0].iter().all(|step| step.in_flight == 5 && step.limit == 5 && step.waiting == 95));
}

// Little's law: each slot gives one token per `token_s` while it decodes.
#[test]
fn busy_slots_deliver_what_their_pace_allows() {
    let calls = Calls { output_tokens: Spread { median: 400.0, sigma: 0.0 }, ..Calls::default() };
    let gateway =
        Gateway { slots: 10, prefill_s: 0.0, prefill_tokens_per_s: 1e9, network_s: 0.0, ..Gateway::default() };
    let run = run(&Scenario { calls, ..closed(gateway) }, 10);
    assert!((run.goodput() - 500.0).abs() < 10.0, "{}", run.goodput());
}

#[test]
fn a_larger_batch_is_slower_for_each_and_faster_for_all() {
    let gateway = Gateway { slots: 64, token_s: 0.01, token_s_per_call: 0.001, ..Gateway::default() };
    let goodput = |limit| run(&closed(gateway.clone()), limit).goodput();
    let (few, many) = (goodput(8), goodput(16));
    assert!(many > few && many < 1.9 * few, "{few} {many}");
}

#[test]
fn a_wait_inside_the_gateway_shows_in_the_time_to_first_token() {
    let load = Load::Closed { callers: 30, think_s: 0.0 };
    let scenario = Scenario::new(Gateway { slots: 8, ..Gateway::default() }, load);
    let p99 = |limit| run(&scenario, limit).interactive_ttft_p99_s().unwrap();
    assert!(p99(30) > 2.0 * p99(8), "{} {}", p99(30), p99(8));
}

#[test]
fn a_black_hole_costs_each_call_its_timeout_and_no_slot_for_ever() {
    let dead = Change { at_s: 200.0, black_hole: Some(true), ..Change::default() };
    let alive = Change { at_s: 260.0, black_hole: Some(false), ..Change::default() };
    let scenario = Scenario { changes: vec![dead, alive], ..closed(Gateway::default()) };
    let run = run(&scenario, 16);
    assert_eq!(run.wasted_calls(), 16);
    let by_step = run.goodput_by_step();
    assert_eq!(by_step[25], 0.0);
    assert!(by_step[50] > 0.5 * by_step[15]);
}

#[test]
fn a_capped_rate_is_kept_whatever_the_limit() {
    let run = run(&closed(Gateway { calls_per_s: Some(2.0), ..Gateway::default() }), 50);
    assert!(run.calls() <= 2 * 481 && run.wasted_calls() > 0, "{}", run.calls());
}

#[test]
fn faults_do_not_use_slots_up() {
    let faults = Faults { stall: 0.1, reset: 0.1, server_error: 0.1, stray_429: 0.1 };
    let load = Load::Bursts { calls_per_s: 5.0, quiet_calls_per_s: 0.0, burst_s: 60.0, quiet_s: 500.0 };
    let run = run(&Scenario::new(Gateway { faults, ..Gateway::default() }, load), 16);
    let last = run.steps()[0][54];
    assert_eq!((last.in_flight, last.waiting), (0, 0));
}

#[test]
fn whoever_calls_within_the_pause_is_refused_where_it_is_enforced() {
    let wasted = |enforces_retry_after| {
        // One client's pause is unknown to the other.
        let clients = Clients { count: 2, ..Clients::default() };
        let gateway = Gateway { retry_after_s: Some(5.0), enforces_retry_after, ..refusing(8) };
        run(&Scenario { clients, ..closed(gateway) }, 5).wasted_calls()
    };
    assert!(wasted(true) > wasted(false), "{} {}", wasted(true), wasted(false));
}

#[test]
fn clients_share_a_gateway() {
    let clients = Clients { count: 2, ..Clients::default() };
    let run = run(&Scenario { clients, ..closed(refusing(8)) }, 4);
    assert_eq!((run.steps().len(), run.wasted_calls()), (2, 0));
    assert!(run.fairness() > 0.99);
}

/// Asks for a pause of 20 s after the first call that ends.
#[derive(Debug, Default)]
struct PausedOnce {
    until: Option<Duration>,
}

impl Controller for PausedOnce {
    fn limit(&self) -> u32 {
        8
    }

    fn paused_until(&self) -> Option<Duration> {
        self.until
    }

    fn on_sent(&mut self, sent: &Sent) -> Mark {
        assert!(self.until.is_none_or(|until| sent.at >= until), "{:?} is in the pause", sent.at);
        Mark::default()
    }

    fn on_end(&mut self, sample: &Sample) {
        self.until.get_or_insert(sample.ended_at + Duration::from_secs(20));
    }
}

#[test]
fn nobody_is_sent_before_a_pause_ends_and_somebody_is_right_after() {
    let scenario = Scenario { step_s: 1.0, ..closed(Gateway::default()) };
    let run = scenario.run(1, |_| Box::new(PausedOnce::default())).unwrap();
    let in_flight: Vec<u32> = run.steps()[0].iter().map(|step| step.in_flight).collect();
    let shut = in_flight.iter().position(|&calls| calls < 8).unwrap();
    assert!(in_flight[shut..shut + 18].iter().all(|&calls| calls < 8));
    assert!(in_flight[shut + 22..].iter().all(|&calls| calls == 8));
}

#[test]
fn an_invalid_scenario_names_its_field() {
    let field = |scenario: Scenario| scenario.run(1, |_| Box::new(Constant(1))).unwrap_err().field();
    assert_eq!(field(closed(Gateway { slots: 0, ..Gateway::default() })), "gateway.slots");
    assert_eq!(field(closed(Gateway { token_s: f64::NAN, ..Gateway::default() })), "gateway.token_s");
    assert_eq!(field(Scenario { runs_s: f64::INFINITY, ..closed(Gateway::default()) }), "runs_s");
    assert_eq!(field(Scenario::new(Gateway::default(), Load::Open { calls_per_s: -1.0 })), "load.calls_per_s");
}

fn any_gateway() -> impl Strategy<Value = Gateway> {
    let serial = prop_oneof![Just(Prefill::Parallel), Just(Prefill::Serial)];
    let faults = (0.0..0.3, 0.0..0.3, 0.0..0.3, 0.0..0.3).prop_map(|(stall, reset, server_error, stray_429)| Faults {
        stall,
        reset,
        server_error,
        stray_429,
    });
    (1_u32..20, prop::option::of(0_u32..10), prop::option::of(1.0..20.0), serial, faults, any::<bool>()).prop_map(
        |(slots, queue, calls_per_s, prefill, faults, enforces_retry_after)| Gateway {
            slots,
            queue,
            calls_per_s,
            prefill,
            faults,
            enforces_retry_after,
            retry_after_s: Some(3.0),
            token_s_per_call: 0.001,
            ..Gateway::default()
        },
    )
}

fn any_load() -> impl Strategy<Value = Load> {
    prop_oneof![
        (1_u32..40, 0.0..3.0).prop_map(|(callers, think_s)| Load::Closed { callers, think_s }),
        (0.1..10.0).prop_map(|calls_per_s| Load::Open { calls_per_s }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_happens_to_a_gateway_the_limit_holds_and_the_run_ends(
        gateway in any_gateway(), load in any_load(), limit in 1_u32..30, seed in any::<u64>(),
        holes in prop::collection::vec((10.0..280.0, any::<bool>(), 1_u32..20), 0..4), whole in any::<bool>(),
    ) {
        let changes = holes.into_iter().map(|(at_s, black_hole, slots)| Change {
            at_s, black_hole: Some(black_hole), slots: Some(slots), ..Change::default()
        });
        let answer = if whole { Answer::Whole } else { Answer::Stream };
        let clients = Clients { count: 2, first_byte_timeout_s: 20.0, queue_timeout_s: 30.0, answer, ..Clients::default() };
        let scenario = Scenario {
            runs_s: 300.0, measured_from_s: 0.0, changes: changes.collect(), clients, ..Scenario::new(gateway, load)
        };
        let run = scenario.run(seed, |_| Box::new(Constant(limit))).unwrap();
        prop_assert_eq!(run.steps()[1].len(), 30);
        prop_assert!(run.steps().iter().flatten().all(|step| step.in_flight <= limit));
        prop_assert!(run.calls() + run.wasted_calls() <= run.sent());
    }
}
