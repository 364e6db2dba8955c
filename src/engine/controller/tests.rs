//! What every controller promises, whatever it is told.

use std::time::Duration;

use proptest::prelude::*;

use super::testing::{self, Call, call};
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

/// Those that lower their limit by a part of it.
fn cutting() -> Vec<Box<dyn Controller>> {
    let aimd = AimdConfig { initial_limit: MAX, max_limit: MAX, ..AimdConfig::default() };
    let gradient = GradientConfig { initial_limit: MAX, max_limit: MAX, probe: None, ..GradientConfig::default() };
    vec![Box::new(Aimd::new(aimd).unwrap()), Box::new(Gradient::new(gradient).unwrap())]
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

    #[test]
    fn a_limit_that_nobody_uses_does_not_grow(calls in prop::collection::vec(any_call(), 1..300)) {
        for mut controller in controllers() {
            let mut now = 0.0;
            for call in &calls {
                let ended_at = now + 0.01 + call.ended_at;
                let idle = Call { in_flight: 1, is_saturated: false, ..testing::call(Outcome::Success) };
                Call { further_chunks: call.further_chunks, ..idle.at(now, ended_at) }.run(&mut *controller);
                prop_assert!(controller.limit() <= 10, "{controller:?}");
                now = ended_at + call.sent_at;
            }
        }
    }

    /// Calls overlap, and end in any order.
    #[test]
    fn no_call_that_was_sent_before_a_cut_makes_another(calls in prop::collection::vec(any_call(), 1..300)) {
        for mut controller in cutting() {
            let mut sent_at = 0.0;
            let mut ends: Vec<Call> = calls.iter().map(|call| {
                sent_at += call.sent_at;
                Call { first_byte_at: None, ..call.at(sent_at, sent_at + call.ended_at) }
            }).collect();
            ends.sort_by(|a, b| a.ended_at.total_cmp(&b.ended_at));
            let mut cut_at = -1.0;
            for call in ends {
                let before = controller.limit();
                controller.on_end(&call.sample());
                if controller.limit() < before {
                    prop_assert!(call.sent_at > cut_at, "{controller:?}");
                    cut_at = call.ended_at;
                }
            }
        }
    }

    #[test]
    fn a_wave_of_refusals_takes_the_default_no_lower_than_what_was_accepted(
        (wave, refused) in (2_u32..200).prop_flat_map(|wave| (Just(wave), 1..wave)),
    ) {
        let mut knee = Knee::new(KneeConfig { initial_limit: wave, ..KneeConfig::default() }).unwrap();
        let sent = |n| Call { in_flight: n, ..call(Outcome::Overload) }.at(0.001 * f64::from(n), 1.0);
        let marks: Vec<Mark> = (1..=wave).map(|n| knee.on_sent(&sent(n).sent())).collect();
        for (n, mark) in (1..=refused).zip(marks) {
            knee.on_end(&Sample { mark, in_flight: wave + 1 - n, ..sent(n).sample() });
        }
        prop_assert_eq!(knee.limit(), wave - refused);
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
