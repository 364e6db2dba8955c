//! What every controller promises, whatever it is told.

use std::time::Duration;

use proptest::prelude::*;

use super::testing::{Call, call};
use super::*;

const MIN: u32 = 2;
const MAX: u32 = 40;

fn controllers() -> Vec<Box<dyn Controller>> {
    let aimd = AimdConfig {
        initial_limit: 10,
        min_limit: MIN,
        max_limit: MAX,
        latency: Some(LatencyTarget { first_byte: Some(Duration::from_secs(1)), ..LatencyTarget::default() }),
        ..AimdConfig::default()
    };
    let gradient = GradientConfig { initial_limit: 10, min_limit: MIN, max_limit: MAX, ..GradientConfig::default() };
    let knee = KneeConfig { initial_limit: 10, min_limit: MIN, max_limit: MAX };
    vec![
        Box::new(Aimd::new(aimd).unwrap()),
        Box::new(Gradient::new(gradient).unwrap()),
        Box::new(Knee::new(knee).unwrap()),
    ]
}

fn any_call() -> impl Strategy<Value = Call> {
    let outcome = prop::sample::select(Outcome::ALL.to_vec());
    let retry_after = prop::option::of(prop::sample::select(vec![0.0, 0.5, 60.0, 1e9]));
    (outcome, 0.0..3.0_f64, 0.0..30.0_f64, 0.0..30.0_f64, any::<bool>(), 0..3_u32, retry_after, 0..200_u32).prop_map(
        |(outcome, gap, wait, rest, is_saturated, further_chunks, retry_after, in_flight)| Call {
            // A gap for now: the time since the last call was sent.
            sent_at: gap,
            first_byte_at: (rest > 5.0).then_some(wait),
            ended_at: wait + rest,
            is_saturated,
            further_chunks,
            retry_after,
            in_flight,
            ..call(outcome)
        },
    )
}

proptest! {
    #[test]
    fn the_limit_stays_within_its_bounds_and_a_pause_ends(calls in prop::collection::vec(any_call(), 1..300)) {
        for mut controller in controllers() {
            let mut now = 0.0;
            for call in &calls {
                now += call.sent_at;
                let moved = Call {
                    sent_at: now,
                    first_byte_at: call.first_byte_at.map(|wait| now + wait),
                    ended_at: now + call.ended_at,
                    ..*call
                };
                moved.run(&mut *controller);
                prop_assert!((MIN..=MAX).contains(&controller.limit()), "{controller:?}");
                let paused_for = controller.paused_until().map_or(0.0, |until| until.as_secs_f64() - moved.ended_at);
                prop_assert!(paused_for < 20.0, "{controller:?}");
            }
        }
    }

    #[test]
    fn neutral_ends_and_an_unused_limit_move_nothing(
        calls in prop::collection::vec(any_call(), 1..300),
        outcome in prop::sample::select(vec![Outcome::ClientError, Outcome::Quota, Outcome::Cancelled]),
    ) {
        for mut controller in controllers() {
            let mut now = 0.0;
            for call in &calls {
                now += call.sent_at;
                let idle = Call { in_flight: 1, is_saturated: false, first_byte_at: None, outcome, ..*call };
                idle.at(now, now + 0.5).run(&mut *controller);
                prop_assert_eq!(controller.limit(), 10);
            }
        }
    }
}

#[test]
fn random_numbers_are_spread_and_repeatable() {
    let numbers = |seed| {
        let mut jitter = crate::engine::jitter::Jitter::new(seed);
        (0..1000).map(|_| jitter.fraction()).collect::<Vec<_>>()
    };
    assert_eq!(numbers(1), numbers(1));
    assert_ne!(numbers(1), numbers(2));
    let mean = numbers(1).iter().sum::<f64>() / 1000.0;
    assert!((0.45..0.55).contains(&mean));
}
