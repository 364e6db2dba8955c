use super::*;

fn lend(runs: &mut Plain, run: RunRef) -> Vec<(RunRef, Fact)> {
    let mut effects = Effects::default();
    runs.lend(run, Time::ZERO, &mut effects);
    effects.facts.into_vec()
}

fn take_back(runs: &mut Plain, run: RunRef) -> Back {
    runs.take_back(run, Time::ZERO, &mut Effects::default())
}

#[test]
fn a_lent_slot_goes_to_the_next_in_line_and_comes_back_before_every_new_run() {
    let mut runs = runs(1, 8);
    let [lender, next, last] = [start(&mut runs, 1), start(&mut runs, 2), start(&mut runs, 3)];
    assert_eq!(admitted(&lend(&mut runs, lender)), [next]);
    assert_eq!(runs.standing(lender), Standing::Lent);
    assert_eq!(take_back(&mut runs, lender), Back::Waiting);
    let facts = end(&mut runs, next);
    assert!(matches!(facts[..], [_, (run, Fact::Resumed { .. })] if run == lender));
    assert!(is_running(&runs, lender) && !is_running(&runs, last));
}

#[test]
fn at_the_bound_the_slot_is_kept() {
    let mut runs = runs(1, 1);
    let [lender, next] = [start(&mut runs, 1), start(&mut runs, 2)];
    assert_eq!(lend(&mut runs, lender), []);
    assert!(is_running(&runs, lender) && !is_running(&runs, next));
    assert_eq!(take_back(&mut runs, lender), Back::Held);
}

#[test]
fn a_kept_slot_is_lent_as_soon_as_there_is_room() {
    let mut runs = runs(1, 2);
    let [lender, next, leaver] = [start(&mut runs, 1), start(&mut runs, 2), start(&mut runs, 3)];
    assert_eq!(lend(&mut runs, lender), []);
    assert_eq!(admitted(&end(&mut runs, leaver)), [next]);
    assert_eq!(runs.standing(lender), Standing::Lent);
}

#[test]
fn a_kept_slot_goes_to_one_who_comes_back() {
    let mut runs = runs(1, 1);
    let first = start(&mut runs, 1);
    lend(&mut runs, first);
    let second = start(&mut runs, 2);
    assert_eq!(lend(&mut runs, second), [], "one is lent already, and no more may be");
    assert_eq!(take_back(&mut runs, first), Back::Held);
    assert_eq!(runs.standing(second), Standing::Lent);
    assert_eq!(runs.counts(), Counts { running: 1, queued: 0, lent: 1 });
}

#[test]
fn a_lent_run_keeps_its_users_place() {
    let mut runs = Plain::new(Limits { concurrent_per_user: Some(1), ..limits(2, 8) }, false);
    let lender = start(&mut runs, 1);
    lend(&mut runs, lender);
    let other = start(&mut runs, 1);
    assert_eq!(runs.standing(other), queued(QueuedFor::UserCap, 1));
}

#[test]
fn a_run_that_has_not_started_neither_lends_nor_has_a_slot_to_take() {
    let mut runs = runs(1, 8);
    start(&mut runs, 1);
    let waiting = start(&mut runs, 2);
    assert_eq!(lend(&mut runs, waiting), []);
    assert_eq!(take_back(&mut runs, waiting), Back::Waiting);
    assert_eq!(runs.standing(waiting), queued(QueuedFor::GlobalCap, 1));
}
