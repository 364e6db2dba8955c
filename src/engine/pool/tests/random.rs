//! Random operations over several lanes, checked after every step by [`World`].

use proptest::prelude::*;

use super::world::{Op, World};
use super::*;
use crate::engine::shares::Shares;

fn lane_policy() -> impl Strategy<Value = LanePolicy> {
    let slots = (0_u32..5, 0_u32..4).prop_map(|(limit, reserve)| (limit, reserve.min(limit.saturating_sub(1))));
    let bound = || prop::option::weighted(0.2, 1_u32..4);
    let step = prop::option::weighted(0.8, (100_u64..5_000).prop_map(Duration::from_millis));
    let part = || (0_u32..4).prop_map(|quarters| f64::from(quarters) / 9.0);
    let shares = prop::option::weighted(0.3, (part(), part(), part()).prop_map(|(a, b, c)| Shares::new([a, b, c])));
    let bounds = (0_u32..9, bound(), bound());
    (slots, shares, bounds, step).prop_map(|((limit, reserve), shares, (most, of_class, of_tenant), aging_step)| {
        LanePolicy {
            shares,
            slots: SlotPolicy { limit, reserve },
            max_queue: if most == 0 { 0 } else { most + 3 },
            max_queue_per_class: of_class,
            max_queue_per_tenant: of_tenant,
            aging_step,
            pauses: PauseBounds { min: SECOND / 4, max: 3 * SECOND },
            ..policy(limit)
        }
    })
}

fn pool_policy() -> impl Strategy<Value = SlotPolicy> {
    let capped =
        (1_u32..6, 0_u32..3).prop_map(|(limit, reserve)| SlotPolicy { limit, reserve: reserve.min(limit - 1) });
    prop_oneof![Just(SlotPolicy::default()), capped]
}

fn verdict() -> impl Strategy<Value = Verdict> {
    let overloaded = |pause| Verdict::new(Outcome::Overload).with_pause(pause);
    prop_oneof![
        5 => prop::sample::select(&Outcome::ALL[..]).prop_map(Verdict::new),
        1 => (0_u64..4_000).prop_map(move |millis| overloaded(Pause::For(Duration::from_millis(millis)))),
        1 => Just(overloaded(Pause::Minimum)),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let class = prop::sample::select(&Priority::ALL[..]);
    let age = prop_oneof![2 => Just(0), 1 => 0_u64..4_000].prop_map(Duration::from_millis);
    let bound = || prop_oneof![1 => 0_u64..2_000, 2 => 2_000_u64..9_000].prop_map(Duration::from_millis);
    let deadline = prop::option::weighted(0.4, bound());
    let time = || prop_oneof![2 => 0_u64..40, 2 => 0_u64..1_100, 1 => 0_u64..4_000].prop_map(Duration::from_millis);
    prop_oneof![
        16 => (0_usize..3, class, 0_u8..3, age, bound(), deadline)
            .prop_map(|(lane, class, tenant, age, timeout, deadline)| {
                Op::Arrive { lane, class, tenant, age, timeout, deadline }
            }),
        10 => (0_usize..64).prop_map(Op::Poll),
        3 => (0_usize..64).prop_map(Op::Cancel),
        8 => (0_usize..64, verdict()).prop_map(|(call, verdict)| Op::Settle(call, verdict)),
        8 => time().prop_map(Op::Drive),
        3 => time().prop_map(Op::Jump),
        1 => (0_usize..3, lane_policy()).prop_map(|(lane, policy)| Op::SetLane(lane, policy)),
        1 => pool_policy().prop_map(Op::SetPool),
    ]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let closing = prop::option::weighted(0.2, 0_usize..60);
    (prop::collection::vec(op(), 1..100), closing).prop_map(|(mut ops, closing)| {
        if let Some(at) = closing {
            ops.insert(at.min(ops.len()), Op::Close);
        }
        ops
    })
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::with_cases(cases(20_000)) })]

    #[test]
    fn every_invariant_holds_after_every_step(
        pool in pool_policy(), lanes in prop::collection::vec(lane_policy(), 1..4), ops in ops(),
    ) {
        let mut world = World::new(pool, lanes);
        for op in &ops {
            world.apply(op)?;
        }
        world.end()?;
    }
}

fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default)
}
