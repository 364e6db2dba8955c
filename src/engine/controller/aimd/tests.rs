use super::*;
use crate::engine::controller::testing::{Call, call};

const SUCCESS: Outcome = Outcome::Success;
const OVERLOAD: Outcome = Outcome::Overload;

fn aimd(config: AimdConfig) -> Aimd {
    Aimd::new(config).unwrap()
}

fn from(initial_limit: u32) -> AimdConfig {
    AimdConfig { initial_limit, ..AimdConfig::default() }
}

fn run(aimd: &mut Aimd, calls: impl IntoIterator<Item = Call>) {
    calls.into_iter().for_each(|call| call.run(aimd));
}

fn seconds(secs: f64) -> Duration {
    Duration::from_secs_f64(secs)
}

/// Calls one after another, each sent a second after the one before.
fn one_by_one(outcome: Outcome, count: u32, from: f64) -> impl Iterator<Item = Call> {
    (0..count).map(move |n| call(outcome).at(from + f64::from(n), from + f64::from(n) + 0.5))
}

// Case 86.
#[test]
fn no_cut_goes_below_the_minimum_nor_below_one() {
    let mut tiny = aimd(AimdConfig { decrease: 0.3, ..from(2) });
    run(&mut tiny, one_by_one(OVERLOAD, 3, 0.0));
    assert_eq!(tiny.limit(), 1);

    let mut steep = aimd(AimdConfig { decrease: 0.01, ..from(50) });
    run(&mut steep, one_by_one(OVERLOAD, 1, 0.0));
    assert_eq!(steep.limit(), 1);

    let mut floored = aimd(AimdConfig { min_limit: 5, ..from(6) });
    run(&mut floored, one_by_one(OVERLOAD, 1, 0.0));
    assert_eq!(floored.limit(), 5);
}

// Case 87.
#[test]
fn a_wave_of_refusals_is_one_event() {
    let mut aimd = aimd(from(64));
    run(&mut aimd, (0..64).map(|n| call(OVERLOAD).at(0.0, 0.001 * f64::from(n))));
    assert_eq!(aimd.limit(), 32);
    run(&mut aimd, [call(OVERLOAD).at(0.1, 0.2)]);
    assert_eq!(aimd.limit(), 16, "a call sent after the cut is news");
}

#[test]
fn a_window_holds_back_further_cuts() {
    let mut aimd = aimd(AimdConfig { cut_window: seconds(10.0), ..from(64) });
    run(&mut aimd, one_by_one(OVERLOAD, 10, 0.0));
    assert_eq!(aimd.limit(), 32);
    run(&mut aimd, one_by_one(OVERLOAD, 1, 11.0));
    assert_eq!(aimd.limit(), 16);
}

// Case 90: the limit itself; that no call is sent above it is the engine's.
#[test]
fn a_cut_below_what_is_running_grows_again_from_there() {
    let mut aimd = aimd(from(8));
    run(&mut aimd, [Call { in_flight: 8, ..call(OVERLOAD) }]);
    assert_eq!(aimd.limit(), 4);
    run(&mut aimd, (0..7).map(|_| call(SUCCESS).at(0.0, 2.0)));
    assert_eq!(aimd.limit(), 4, "the calls of the old limit say nothing about the new one");
    run(&mut aimd, one_by_one(SUCCESS, 4 + 5, 2.0));
    assert_eq!(aimd.limit(), 6);
}

// Case 91.
#[test]
fn only_a_limit_in_use_grows() {
    let mut aimd = aimd(AimdConfig { max_limit: 100, ..from(10) });
    run(&mut aimd, one_by_one(SUCCESS, 10_000, 0.0).map(|call| Call { is_saturated: false, ..call }));
    assert_eq!(aimd.limit(), 10);
    run(&mut aimd, one_by_one(SUCCESS, 10 + 11, 10_000.0));
    assert_eq!(aimd.limit(), 12);
    run(&mut aimd, one_by_one(SUCCESS, 10_000, 20_000.0));
    assert_eq!(aimd.limit(), 100);
}

// Case 93.
#[test]
fn only_a_success_counts_as_one() {
    let mut aimd = aimd(from(4));
    let others = [Outcome::Quota, Outcome::ClientError, Outcome::ServerError, Outcome::Cancelled, Outcome::Refused];
    run(&mut aimd, (0..200).map(|n| call(others[n % 5]).at(n as f64, n as f64 + 0.5)));
    assert_eq!(aimd.limit(), 4);
}

#[test]
fn what_lowers_the_limit() {
    for outcome in Outcome::ALL {
        let mut aimd = aimd(from(16));
        run(&mut aimd, one_by_one(outcome, 2, 0.0));
        let lowers = [Outcome::Overload, Outcome::Transport, Outcome::Stalled, Outcome::Unavailable].contains(&outcome);
        assert_eq!(aimd.limit() < 16, lowers, "{outcome:?}");
    }
}

// Case 95.
#[test]
fn a_config_that_can_never_admit_is_refused_by_field() {
    let base = AimdConfig::default();
    let latency = |first_byte, window| AimdConfig {
        latency: Some(LatencyTarget { first_byte, between_chunks: None, window }),
        ..AimdConfig::default()
    };
    let second = Some(seconds(1.0));
    for (config, field) in [
        (AimdConfig { initial_limit: 0, ..base.clone() }, "initial_limit"),
        (AimdConfig { min_limit: 0, ..base.clone() }, "min_limit"),
        (AimdConfig { max_limit: 0, ..base.clone() }, "max_limit"),
        (AimdConfig { min_limit: 20, max_limit: 10, ..base.clone() }, "max_limit"),
        (AimdConfig { initial_limit: 20, max_limit: 10, ..base.clone() }, "initial_limit"),
        (AimdConfig { max_limit: u32::MAX, ..base.clone() }, "max_limit"),
        (AimdConfig { decrease: 0.0, ..base.clone() }, "decrease"),
        (AimdConfig { decrease: 1.0, ..base.clone() }, "decrease"),
        (AimdConfig { decrease: 1.5, ..base.clone() }, "decrease"),
        (AimdConfig { decrease: f64::NAN, ..base.clone() }, "decrease"),
        (AimdConfig { increase: 0, ..base.clone() }, "increase"),
        (AimdConfig { cut_window: Duration::MAX, ..base }, "cut_window"),
        (latency(None, seconds(10.0)), "latency"),
        (latency(Some(Duration::ZERO), seconds(10.0)), "latency.first_byte"),
        (latency(second, Duration::ZERO), "latency.window"),
    ] {
        assert_eq!(Aimd::new(config).unwrap_err().field(), field);
    }
}

#[test]
fn one_broken_connection_costs_nothing() {
    let mut aimd = aimd(from(16));
    run(&mut aimd, one_by_one(Outcome::Transport, 1, 0.0));
    assert_eq!(aimd.limit(), 16);
    run(&mut aimd, one_by_one(SUCCESS, 20, 1.0));
    run(&mut aimd, one_by_one(Outcome::Transport, 1, 30.0));
    assert_eq!(aimd.limit(), 17, "a limit's worth of successes between them");
    run(&mut aimd, one_by_one(Outcome::Transport, 1, 31.0));
    assert_eq!(aimd.limit(), 8, "two in a row are news");
}

/// 25 answers a second in full use of the limit, with that time to the first byte.
fn busy_lane(from: u32, until: u32, first_byte_after: f64) -> impl Iterator<Item = Call> {
    (25 * from..25 * until).map(move |n| {
        let first_byte_at = f64::from(n) / 25.0;
        let sent_at = (first_byte_at - first_byte_after).max(0.0);
        let call = call(SUCCESS).at(sent_at, first_byte_at + 0.2);
        Call { first_byte_at: Some(first_byte_at), in_flight: 180, ..call }
    })
}

#[test]
fn a_slow_tuesday() {
    let latency = LatencyTarget { first_byte: Some(seconds(1.5)), ..LatencyTarget::default() };
    let mut aimd = aimd(AimdConfig { max_limit: 180, latency: Some(latency), ..from(180) });
    run(&mut aimd, busy_lane(0, 100, 0.7));
    assert_eq!(aimd.limit(), 180);
    run(&mut aimd, busy_lane(100, 158, 4.0));
    assert_eq!(aimd.limit(), 105);
    run(&mut aimd, busy_lane(158, 218, 0.7));
    assert!((105..=125).contains(&aimd.limit()), "no jump back: {}", aimd.limit());
    run(&mut aimd, busy_lane(218, 900, 0.7));
    assert_eq!(aimd.limit(), 180);
}

#[test]
fn slow_pieces_cut_too_and_hold_back_growth() {
    let latency = LatencyTarget { between_chunks: Some(seconds(0.05)), ..LatencyTarget::default() };
    let mut aimd = aimd(AimdConfig { latency: Some(latency), ..from(100) });
    let slow = |n: u32| Call { further_chunks: 5, ..call(SUCCESS).at(f64::from(n), f64::from(n) + 1.0) };
    run(&mut aimd, (0..35).map(slow));
    assert_eq!(aimd.limit(), 72, "three windows of 100 ms between pieces");
    let fast = |n: u32| Call { further_chunks: 50, ..call(SUCCESS).at(f64::from(n), f64::from(n) + 1.0) };
    run(&mut aimd, (35..45).map(fast));
    assert_eq!(aimd.limit(), 64, "the rest of the slow ones");
    run(&mut aimd, (45..145).map(fast));
    assert_eq!(aimd.limit(), 65);
}

#[test]
fn a_quiet_lane_is_judged_by_as_many_calls() {
    let latency = LatencyTarget { first_byte: Some(seconds(0.1)), ..LatencyTarget::default() };
    let mut aimd = aimd(AimdConfig { latency: Some(latency), ..from(100) });
    let slow = |n: u32| call(SUCCESS).at(20.0 * f64::from(n), 20.0 * f64::from(n) + 1.0);
    run(&mut aimd, (0..4).map(slow));
    assert_eq!(aimd.limit(), 100);
    run(&mut aimd, (4..6).map(slow));
    assert_eq!(aimd.limit(), 90);
}

#[test]
fn an_answer_in_one_piece_is_measured_by_its_size() {
    let latency = LatencyTarget { between_chunks: Some(seconds(0.05)), ..LatencyTarget::default() };
    let mut aimd = aimd(AimdConfig { latency: Some(latency), ..from(100) });
    // 40 bytes are 10 tokens, in one second.
    run(&mut aimd, one_by_one(SUCCESS, 12, 0.0).map(|call| Call { further_chunks: 0, ..call }));
    assert_eq!(aimd.limit(), 100, "0.5 s for 10 tokens are 50 ms each");
    let slow = |n: u32| Call { further_chunks: 0, ..call(SUCCESS).at(f64::from(n), f64::from(n) + 1.0) };
    run(&mut aimd, (12..35).map(slow));
    assert_eq!(aimd.limit(), 81);
}
