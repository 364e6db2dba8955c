//! What listeners hear.

use super::*;

#[tokio::test(start_paused = true)]
async fn model_calls_report_that_they_queue_and_are_admitted_with_lane_and_wait() {
    let (queue, limiter) = (slots(1), limiter());
    let slot = hold(&limiter);
    let run = start(&queue, "ann");
    let mut events = run.events();
    let call = tokio::spawn(wait_in_lane(&limiter, &run).await);
    sleep(secs(2)).await;
    slot.settle(Outcome::Success);
    drop(call.await.expect("no panic").expect("both slots"));
    let json: Vec<String> =
        heard(&mut events).await.iter().map(|event| serde_json::to_string(event).unwrap()).collect();
    let expected = [
        r#"{"event":"admitted","wait_ms":0}"#,
        r#"{"event":"call_queued","lane":"local|gemma","position":1}"#,
        r#"{"event":"lent"}"#,
        r#"{"event":"resumed","away_ms":2000}"#,
        r#"{"event":"call_admitted","lane":"local|gemma","wait_ms":2000}"#,
    ];
    assert_eq!(json, expected);
}

#[tokio::test(start_paused = true)]
async fn a_tools_call_is_reported_as_well() {
    let (queue, limiter) = (slots(1), limiter());
    let slot = hold(&limiter);
    let run = start(&queue, "ann");
    let mut events = run.events();
    let mut call = Box::pin(run.beside(limiter.acquire(&local(), Priority::Default)));
    assert!(poll!(&mut call).is_pending());
    slot.settle(Outcome::Success);
    drop(call.await.expect("the lane's slot"));
    let heard = heard(&mut events).await;
    assert!(matches!(heard[1..], [RunEvent::CallQueued { .. }, RunEvent::CallAdmitted { .. }]), "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn events_of_a_run_begin_with_where_it_stands() {
    let (queue, limiter) = (slots(1), limiter());
    let _slot = hold(&limiter);
    let run = start(&queue, "ann");
    let _call = wait_in_lane(&limiter, &run).await;
    assert_eq!(heard(&mut run.events()).await, [RunEvent::Lent]);
    run.cancel().expect("it is there");
    let mut late = run.events();
    assert_eq!((late.next().await, late.next().await), (Some(RunEvent::Cancelled), None));
}

#[tokio::test(start_paused = true)]
async fn the_position_of_a_queued_run_is_kept_current_as_others_leave() {
    let queue = slots(1);
    let _running = start(&queue, "ann");
    let [first, second, third] = ["bob", "cyd", "dan"].map(|user| start(&queue, user));
    assert_eq!(third.position(), Some(3));
    let mut events = third.events();
    let position = |event: Option<RunEvent>| match event {
        Some(RunEvent::Queued { position, .. }) => position,
        other => panic!("{other:?}"),
    };
    assert_eq!(position(events.next().await), 3);
    drop(first);
    assert_eq!(third.position(), Some(2));
    assert_eq!(position(events.next().await), 2);
    drop(second);
    assert_eq!(position(events.next().await), 1);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_hears_of_all_runs_in_order() {
    let queue = slots(1);
    let mut notices = queue.subscribe();
    let running = start(&queue, "ann");
    let waiting = start(&queue, "bob");
    let ids = [running.id(), waiting.id()];
    running.finish().expect("it ran");
    drop(waiting);
    let mut heard = Vec::new();
    for _ in 0..5 {
        let notice = notices.next().await.expect("it never ends");
        let json = serde_json::to_value(&notice).expect("it serialises");
        heard.push((notice.run, json["event"].as_str().expect("a name").to_owned()));
    }
    let expected = [(0, "admitted"), (1, "queued"), (0, "finished"), (1, "admitted"), (1, "cancelled")];
    assert_eq!(heard, expected.map(|(at, name)| (ids[at], name.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_does_not_keep_up_is_told_so_and_holds_nobody_up() {
    let mut config = tower_inflight::RunConfig::default();
    config.event_buffer = 3;
    let queue = queue(|queue| queue.config(config));
    let mut notices = queue.subscribe();
    for _ in 0..10 {
        start(&queue, "ann").finish().expect("it ran");
    }
    assert_eq!(notices.next().await.expect("it never ends").event, RunEvent::Missed { events: 17 });
    let last = notices.next().await.expect("it never ends");
    assert_eq!(last.event, RunEvent::Finished);
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_is_asleep_is_woken() {
    let queue = slots(1);
    let _running = start(&queue, "ann");
    let waiting = start(&queue, "bob");
    let mut events = waiting.events();
    assert_eq!(heard(&mut events).await.len(), 1);
    let last = tokio::spawn(async move { events.collect::<Vec<_>>().await });
    tokio::task::yield_now().await;
    waiting.cancel().expect("it is there");
    assert_eq!(last.await.expect("no panic"), [RunEvent::Cancelled]);
}
