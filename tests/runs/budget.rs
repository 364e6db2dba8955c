//! Q5: budgets.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tower_inflight::{
    Admission, BudgetAsk, BudgetChecks, BudgetError, BudgetFault, BudgetMoment, BudgetRefused, TokenBudget,
};

use super::*;

fn fault(started: Result<Run, StartError>) -> BudgetFault {
    over(started.map(drop).expect_err("the budget says no")).fault()
}

fn over(error: StartError) -> BudgetRefused {
    match error {
        StartError::Budget(refused) => refused,
        other => panic!("{other}"),
    }
}

/// A budget that says no at this moment once it is told to.
fn says_no_at(moment: BudgetMoment) -> (Arc<AtomicBool>, impl Fn(BudgetAsk) -> std::future::Ready<Answer>) {
    let says_no = Arc::new(AtomicBool::new(false));
    let told = says_no.clone();
    let budget = move |ask: BudgetAsk| {
        let is_over = ask.moment() == moment && told.load(Ordering::Relaxed);
        std::future::ready(if is_over { Err(BudgetError::over("nothing left")) } else { Ok(()) })
    };
    (says_no, budget)
}

type Answer = Result<(), BudgetError>;

#[test]
fn over_budget_is_refused_at_the_door_and_leaves_no_trace() {
    let (says_no, budget) = says_no_at(BudgetMoment::Door);
    let queue = queue(|queue| queue.budget(budget));
    drop(start(&queue, "ann"));
    says_no.store(true, Ordering::Relaxed);
    assert_eq!(fault(queue.start(of("ann"))), BudgetFault::Over);
    assert_eq!((load(&queue), queue.stats().users.len()), ((0, 0, 0), 0));
}

#[tokio::test(start_paused = true)]
async fn the_budget_is_asked_again_when_the_run_starts() {
    let (says_no, budget) = says_no_at(BudgetMoment::Start);
    let queue = queue(|queue| queue.max_concurrent_runs(1).budget(budget));
    let running = start(&queue, "ann");
    let [mut refused, mut next] = ["bob", "cyd"].map(|user| start(&queue, user));
    let mut events = refused.events();
    says_no.store(true, Ordering::Relaxed);
    running.finish().expect("it ran");
    let error = refused.admitted().await.expect_err("over budget by now");
    assert_eq!((error.status(), refused.status()), (RunStatus::Refused, RunStatus::Refused));
    assert!(matches!(error.refused(), Some(StartError::Budget(_))));
    assert!(matches!(heard(&mut events).await.last(), Some(RunEvent::Refused { why }) if why.contains("nothing left")));
    // Its slot went on.
    says_no.store(false, Ordering::Relaxed);
    next.admitted().await.expect("the slot");
}

#[tokio::test(start_paused = true)]
async fn strict_mode_asks_before_each_further_call() {
    let (says_no, budget) = says_no_at(BudgetMoment::Call);
    let limiter = limiter();
    let queue = queue(|queue| queue.budget(budget).budget_checks(BudgetChecks::EveryCall));
    let mut run = start(&queue, "ann");
    run.admitted().await.expect("a slot is free");
    drop(run.turn(limiter.acquire(&local(), Priority::Default)).await.expect("within the budget"));
    says_no.store(true, Ordering::Relaxed);
    assert_eq!(kind(run.turn(limiter.acquire(&local(), Priority::Default)).await), RejectKind::OverBudget);
    assert_eq!(kind(run.beside(limiter.acquire(&local(), Priority::Default)).await), RejectKind::OverBudget);
    assert!(is_running(&run), "it may end in its own way");
    run.finish().expect("it ran");
    assert_nothing_is_left(&queue, &limiter);
}

#[tokio::test(start_paused = true)]
async fn without_strict_mode_calls_are_not_asked_for() {
    let (says_no, budget) = says_no_at(BudgetMoment::Call);
    says_no.store(true, Ordering::Relaxed);
    let (queue, limiter) = (queue(|queue| queue.budget(budget)), limiter());
    let run = start(&queue, "ann");
    drop(run.turn(limiter.acquire(&local(), Priority::Default)).await.expect("not asked"));
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_takes_its_time_is_waited_for_before_the_run_queues() {
    let queue = queue(|queue| {
        queue.max_concurrent_runs(1).budget(|ask: BudgetAsk| async move {
            if ask.user() == "slow" && ask.moment() == BudgetMoment::Door {
                sleep(secs(2)).await;
            }
            Ok(())
        })
    });
    let running = start(&queue, "ann");
    let mut slow = start(&queue, "slow");
    assert_eq!((slow.status(), slow.position()), (RunStatus::Queued, None));
    let waiting = start(&queue, "bob");
    let mut admitted = Box::pin(slow.admitted());
    assert!(poll!(&mut admitted).is_pending());
    sleep(secs(3)).await;
    assert!(poll!(&mut admitted).is_pending());
    drop(admitted);
    assert_eq!((waiting.position(), slow.position()), (Some(1), Some(2)));
    drop((running, waiting));
    slow.admitted().await.expect("the slot is free");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_not_to_wait_is_refused_if_its_budget_answers_when_the_slots_are_gone() {
    let queue = queue(|queue| {
        queue.max_concurrent_runs(1).budget(|ask: BudgetAsk| async move {
            if ask.user() == "slow" {
                sleep(secs(2)).await;
            }
            Ok(())
        })
    });
    // The slot is its own while its budget is asked: nobody takes it, and nothing has to be refused later.
    let mut slow = queue.start(of("slow").with_admission(Admission::Reject)).expect("a slot is free");
    assert_eq!(full(queue.start(of("ann").with_admission(Admission::Reject))).bound(), RunBound::ConcurrentRuns);
    slow.admitted().await.expect("within the budget");
}

#[test]
fn past_the_soft_limit_no_new_run_starts_and_past_the_hard_one_none_goes_on() {
    let limiter = limiter();
    let tokens = TokenBudget::new(100).with_soft_limit(50);
    let queue =
        queue(|queue| queue.max_concurrent_runs(1).budget(tokens.clone()).budget_checks(BudgetChecks::EveryCall));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let running = start(&queue, "ann");
        let [mut lucky, mut unlucky] = ["bob", "cyd"].map(|user| start(&queue, user));
        tokens.record("acme", 50);
        assert_eq!(fault(queue.start(of("dan"))), BudgetFault::Over, "past the soft limit");
        assert!(queue.start(StartRun::new("other", "dan")).is_ok(), "another tenant has its own");
        drop(running.turn(limiter.acquire(&local(), Priority::Default)).await.expect("below the hard limit"));
        running.finish().expect("it ran");
        lucky.admitted().await.expect("it queued in time");
        tokens.record("acme", 50);
        assert_eq!(kind(lucky.turn(limiter.acquire(&local(), Priority::Default)).await), RejectKind::OverBudget);
        lucky.finish().expect("it ran");
        let over = unlucky.admitted().await.expect_err("past the hard limit");
        assert_eq!(
            over.to_string(),
            "run 3 is over: refused, over budget: \"acme\" has used 100 of 100 tokens (hard limit)"
        );
    });
    tokens.reset("acme");
    assert_eq!(tokens.spent("acme"), 0);
    assert!(queue.start(of("ann")).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_fails_hangs_or_panics_refuses_and_holds_no_slot() {
    let queue = queue(|queue| {
        queue.max_concurrent_runs(1).budget(|ask: BudgetAsk| async move {
            match ask.user() {
                "fails" => Err(std::io::Error::other("the database is away").into()),
                "panics" => panic!("a bug in the budget"),
                "panics late" => {
                    tokio::task::yield_now().await;
                    panic!("a bug in the budget")
                }
                "hangs" => pending().await,
                _ => Ok(()),
            }
        })
    });
    assert_eq!(fault(queue.start(of("fails"))), BudgetFault::Failed);
    assert_eq!(fault(queue.start(of("panics"))), BudgetFault::Panicked);
    for (user, expected) in [("panics late", BudgetFault::Panicked), ("hangs", BudgetFault::TimedOut)] {
        let mut run = start(&queue, user);
        let error = run.admitted().await.expect_err("no answer is no");
        let refused = error.refused().cloned().map(over);
        assert_eq!(refused.map(|refused| refused.fault()), Some(expected));
        assert_eq!(load(&queue), (0, 0, 0));
    }
    assert!(is_running(&start(&queue, "ann")));
}

#[test]
fn a_budget_that_panics_when_it_is_asked_refuses_too() {
    fn panics(_: BudgetAsk) -> std::future::Ready<Answer> {
        panic!("a bug in the budget")
    }
    let queue = queue(|queue| queue.budget(panics));
    assert_eq!(fault(queue.start(of("ann"))), BudgetFault::Panicked);
}

#[tokio::test(start_paused = true)]
async fn a_run_can_be_cancelled_while_its_budget_is_asked() {
    let queue = queue(|queue| queue.max_concurrent_runs(1).budget(|_: BudgetAsk| pending::<Answer>()));
    let mut run = start(&queue, "ann");
    let handle = run.handle().clone();
    let waiting = tokio::spawn(async move { run.admitted().await });
    tokio::task::yield_now().await;
    handle.cancel().expect("it is there");
    assert_eq!(waiting.await.expect("no panic").expect_err("cancelled").status(), RunStatus::Cancelled);
    assert_eq!(load(&queue), (0, 0, 0));
}
