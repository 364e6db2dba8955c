//! Q2: who goes next.

use super::*;

/// Ends the running one over and over, and says whose run came next each time.
fn served(queue: &RunQueue, mut runs: Vec<Run>) -> Vec<String> {
    let mut order = Vec::new();
    while let Some(at) = runs.iter().position(|run| is_running(run)) {
        order.push(runs[at].tenant().to_owned());
        runs.remove(at).finish().expect("nobody cancels");
    }
    assert_eq!(load(queue), (0, 0, 0));
    order
}

fn roomy() -> RunQueue {
    queue(|queue| queue.max_concurrent_runs(1).max_queue_depth(10_000).max_queued_runs_per_user(10_000))
}

fn of_tenant(queue: &RunQueue, tenant: &str) -> Run {
    queue.start(StartRun::new(tenant, "ann")).expect("there is room")
}

#[test]
fn runs_of_a_user_are_served_first_come_first_served() {
    let queue = roomy();
    let runs: Vec<Run> = (0..50).map(|_| start(&queue, "ann")).collect();
    for run in runs {
        assert!(is_running(&run), "those before it are over");
        run.finish().expect("nobody cancels");
    }
}

#[test]
fn users_take_turns() {
    let queue = roomy();
    let mut runs: Vec<Run> = (0..3).map(|_| of_tenant(&queue, "a")).collect();
    runs.extend((0..2).map(|_| of_tenant(&queue, "b")));
    assert_eq!(served(&queue, runs).concat(), "aabab");
}

#[test]
fn a_tenant_with_no_run_going_is_served_before_the_flooders_next() {
    let queue = roomy();
    let mut runs: Vec<Run> = (0..1_000).map(|_| of_tenant(&queue, "flood")).collect();
    runs.push(of_tenant(&queue, "quiet"));
    let order = served(&queue, runs);
    assert_eq!(order.iter().position(|tenant| tenant == "quiet"), Some(2), "one ran, one was next already");
}

#[test]
fn ten_tenants_with_one_flooding_get_equal_shares() {
    let queue = roomy();
    let mut runs: Vec<Run> = (0..1_000).map(|_| of_tenant(&queue, "t0")).collect();
    for tenant in 1..10 {
        runs.extend((0..20).map(|_| of_tenant(&queue, &format!("t{tenant}"))));
    }
    let order = served(&queue, runs);
    // While all of them have somebody waiting.
    let share = |tenant: usize| order[..190].iter().filter(|name| **name == format!("t{tenant}")).count() as f64;
    let shares: Vec<f64> = (0..10).map(share).collect();
    let [sum, squares] = [shares.iter().sum::<f64>(), shares.iter().map(|share| share * share).sum()];
    let jain = sum * sum / (10.0 * squares);
    assert!(jain >= 0.95, "Jain's index is {jain}, shares {shares:?}");
}

#[tokio::test(start_paused = true)]
async fn a_resumed_run_goes_before_any_new_one() {
    let (queue, limiter) = (slots(1), limiter());
    let slot = hold(&limiter);
    let lender = start(&queue, "ann");
    let mut call = wait_in_lane(&limiter, &lender).await;
    let running = start(&queue, "bob");
    let waiting = start(&queue, "cyd");
    slot.settle(Outcome::Success);
    assert!(poll!(&mut call).is_pending(), "its run slot is somebody else's");
    running.finish().expect("it ran");
    let permit = call.await.expect("both slots");
    assert_eq!((lender.status(), waiting.status()), (RunStatus::Running, RunStatus::Queued));
    drop(permit);
}
