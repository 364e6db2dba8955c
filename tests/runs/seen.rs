//! Q6: numbers.

use super::*;

#[tokio::test(start_paused = true)]
async fn stats_say_who_runs_queues_and_has_lent_in_all_and_by_user() {
    let (queue, limiter) = (slots(1), limiter());
    let _slot = hold(&limiter);
    let lender = start(&queue, "ann");
    let _call = wait_in_lane(&limiter, &lender).await;
    let _others = ["bob", "bob", "cyd"].map(|user| start(&queue, user));
    let mut stats = queue.stats();
    assert_eq!((stats.running, stats.queued, stats.lent), (1, 2, 1));
    stats.users.sort_by(|a, b| a.user.cmp(&b.user));
    let users: Vec<_> = stats.users.iter().map(|user| (&*user.user, user.running, user.queued, user.lent)).collect();
    assert_eq!(users, [("ann", 0, 0, 1), ("bob", 1, 1, 0), ("cyd", 0, 1, 0)]);
}
