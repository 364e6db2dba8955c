use super::*;

#[test]
fn users_take_turns_and_each_is_served_in_order() {
    let mut runs = runs(1, 100);
    let first = start(&mut runs, 0);
    let flood: Vec<RunRef> = (0..4).map(|_| start(&mut runs, 1)).collect();
    let other: Vec<RunRef> = (0..2).map(|_| start(&mut runs, 2)).collect();
    let mut order = Vec::new();
    let mut ending = first;
    while let [next] = *admitted(&end(&mut runs, ending)) {
        order.push(next);
        ending = next;
    }
    assert_eq!(order, [flood[0], other[0], flood[1], other[1], flood[2], flood[3]]);
}

#[test]
fn a_run_waits_for_its_user_first_and_then_for_everybody() {
    let mut runs = Plain::new(Limits { concurrent_per_user: Some(1), ..limits(2, 100) }, false);
    let [mine, yours] = [start(&mut runs, 1), start(&mut runs, 2)];
    let [second, third] = [start(&mut runs, 1), start(&mut runs, 1)];
    let stranger = start(&mut runs, 3);
    assert_eq!(runs.standing(second), queued(QueuedFor::UserCap, 1));
    assert_eq!(runs.standing(third), queued(QueuedFor::UserCap, 2));
    assert_eq!(runs.standing(stranger), queued(QueuedFor::GlobalCap, 1));
    let facts = end(&mut runs, mine);
    assert_eq!(admitted(&facts), [stranger]);
    assert_eq!(facts[1], (second, Fact::Queued { reason: QueuedFor::GlobalCap, position: 2 }));
    assert_eq!(runs.standing(second), queued(QueuedFor::GlobalCap, 1));
    assert_eq!(runs.standing(third), queued(QueuedFor::UserCap, 1));
    assert_eq!(admitted(&end(&mut runs, yours)), [second]);
}

#[test]
fn positions_are_those_of_round_robin_and_follow_those_who_leave() {
    let mut runs = runs(1, 100);
    start(&mut runs, 0);
    let flood: Vec<RunRef> = (0..3).map(|_| start(&mut runs, 1)).collect();
    let other = start(&mut runs, 2);
    let places = |runs: &Plain| -> Vec<u32> {
        let place = |run: &RunRef| match runs.standing(*run) {
            Standing::Queued { position, .. } => position,
            _ => 0,
        };
        flood.iter().chain([&other]).map(place).collect()
    };
    assert_eq!(places(&runs), [1, 3, 4, 2]);
    end(&mut runs, flood[1]);
    assert_eq!(places(&runs), [1, 0, 3, 2]);
    end(&mut runs, other);
    assert_eq!(places(&runs), [1, 0, 2, 0]);
}

#[test]
fn many_users_coming_and_going_leave_positions_right_and_no_memory() {
    let mut runs = runs(1, 100_000);
    let mut ending = start(&mut runs, 0);
    let waiting: Vec<RunRef> = (1..2_000).map(|name| start(&mut runs, name)).collect();
    for (n, run) in waiting.iter().enumerate() {
        assert_eq!(runs.standing(*run), queued(QueuedFor::GlobalCap, 1), "the {n}-th");
        assert_eq!(admitted(&end(&mut runs, ending)), [*run]);
        ending = *run;
        // Somebody is always behind.
        let name = u32::try_from(n).expect("small");
        let behind = start(&mut runs, 5_000 + name);
        assert_eq!(runs.standing(behind), queued(QueuedFor::GlobalCap, 1_999));
    }
    assert!(runs.turns.len() < 10_000);
    runs.close(Time::ZERO, &mut Effects::default());
    end(&mut runs, ending);
    assert_eq!((runs.turns.len(), runs.levels.len(), runs.entries.len(), runs.users.len()), (0, 0, 0, 0));
    assert!(runs.by_user.capacity() <= 64 && runs.by_id.is_empty());
}

#[test]
fn a_key_is_its_users_alone_and_free_again_after_the_run() {
    let mut runs = runs(1, 8);
    let key: Arc<str> = "nightly".into();
    let keyed = Ask { key: Some(key.clone()), ..ask(1) };
    let run = runs.start(keyed, |id| id, Time::ZERO, &mut Effects::default()).expect("free");
    assert_eq!(runs.by_key(&user(1), &key), Some(&run));
    assert_eq!(runs.by_key(&user(2), &key), None);
    end(&mut runs, run);
    assert_eq!(runs.by_key(&user(1), &key), None);
}

#[test]
fn a_refused_start_leaves_no_trace() {
    let mut runs = Plain::new(Limits { queued_per_user: 1, ..limits(1, 2) }, false);
    start(&mut runs, 1);
    start(&mut runs, 2);
    let mut refuse = |ask: Ask| {
        let mut effects = Effects::default();
        let refusal = runs.start(ask, |id| id, Time::ZERO, &mut effects).expect_err("over a bound");
        assert!(effects.facts.is_empty());
        refusal
    };
    let key: Option<Arc<str>> = Some("nightly".into());
    assert_eq!(refuse(Ask { key: key.clone(), ..ask(2) }), Refusal::Bound(RunBound::QueuedRunsPerUser));
    assert_eq!(refuse(Ask { patience: Patience::Reject, ..ask(7) }), Refusal::Bound(RunBound::ConcurrentRuns));
    start(&mut runs, 3);
    assert_eq!(runs.entries.len(), 3);
    let full = runs.start(ask(4), |id| id, Time::ZERO, &mut Effects::default());
    assert_eq!(full, Err(Refusal::Bound(RunBound::QueueDepth)));
    assert_eq!((runs.entries.len(), runs.users.len(), runs.by_key.len()), (3, 3, 0));
}
