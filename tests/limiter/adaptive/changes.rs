//! What is told to `on_change`, and code of the user's that misbehaves.

use std::sync::OnceLock;

use super::*;

#[tokio::test(start_paused = true)]
async fn each_change_is_told_once_with_old_new_and_cause() {
    let heard = Heard::default();
    let limiter = build(|limiter| heard.by(limiter.limit(aimd(16))));
    let (first, second) = (hold(&limiter), hold(&limiter));
    assert_eq!(heard.take(), [""; 0]);
    first.settle(busy(30));
    let told = heard.take();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("local|gemma: pause of 3") && told[0].ends_with("(overload)"), "{told:?}");
    assert_eq!(told[1], "local|gemma: limit 16 -> 8 (overload)");
    second.settle(busy(29));
    assert_eq!(heard.take(), [""; 0], "the same event, and no later end");
    reload(&limiter, |config| config.limit = aimd(4));
    assert_eq!(heard.take(), ["local|gemma: limit 8 -> 4 (config)"]);
    reload(&limiter, |config| config.max_inflight = 9);
    assert_eq!(heard.take(), [""; 0]);
    reload(&limiter, |config| config.limit = Limit::Fixed);
    assert_eq!(heard.take(), ["local|gemma: limit 4 -> 9 (config)"]);
    reload(&limiter, |config| (config.max_inflight, config.limit) = (64, aimd(16)));
    assert_eq!(heard.take(), ["local|gemma: limit 9 -> 16 (config)"], "and nothing that was never in force");
}

#[tokio::test(start_paused = true)]
async fn nonsense_is_clamped_and_told_once_until_it_was_sane() {
    let (puppet, heard) = (Puppet::new(3), Heard::default());
    let limiter = puppet.in_lanes(|limiter| heard.by(limiter.max_inflight(8)));
    let ask = |limit| {
        puppet.pull(|strings| strings.limit = limit);
        hold(&limiter).settle(Outcome::Success);
        let told = heard.take().into_iter().filter(|told| told.contains("taken as")).collect::<Vec<_>>();
        (figures(&limiter).limit, told)
    };
    assert_eq!(ask(0), (1, vec!["local|gemma: limit 0 taken as 1 (sent)".to_owned()]));
    assert_eq!(ask(u32::MAX), (8, vec![]));
    assert_eq!(ask(64), (8, vec![]), "it cannot know of max_inflight");
    assert_eq!(ask(0), (1, vec!["local|gemma: limit 0 taken as 1 (sent)".to_owned()]));
    assert_eq!(ask(1), (1, vec![]));
    assert_eq!(ask(0), (1, vec!["local|gemma: limit 0 taken as 1 (sent)".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_panics_is_told_of_once_and_calls_go_on_under_its_last_limit() {
    let (puppet, heard) = (Puppet::new(3), Heard::default());
    let limiter = puppet.in_lanes(|limiter| heard.by(limiter));
    let held = hold(&limiter);
    puppet.pull(|strings| (strings.is_angry, strings.limit, strings.pause) = (true, 1, Some(secs(60))));
    held.settle(Outcome::Overload);
    assert_eq!(heard.take(), ["local|gemma: controller panicked, limit kept (overload)"]);
    puppet.pull(|strings| strings.is_angry = false);
    let held: Vec<_> = (0..3).map(|_| hold(&limiter)).collect();
    assert_eq!(kind(limiter.try_acquire(&lane(), Priority::Default)), RejectKind::Busy);
    drop(held);
    assert_eq!(heard.take(), [""; 0]);
    assert_eq!((figures(&limiter).limit, puppet.samples().len()), (3, 0), "and it is not asked any more");
    assert_nothing_is_left(&limiter);
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_panics_takes_its_pause_along() {
    let puppet = Puppet::new(3);
    let limiter = puppet.in_lanes(|limiter| limiter);
    let (first, second) = (hold(&limiter), hold(&limiter));
    puppet.pull(|strings| strings.pause = Some(secs(60)));
    first.settle(Outcome::Success);
    let mut waiter = queue(&limiter, Priority::Default).await;
    puppet.pull(|strings| strings.is_angry = true);
    second.settle(Outcome::Success);
    assert!(poll!(&mut waiter).is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_panics_costs_nothing() {
    let limiter = build(|limiter| limiter.limit(aimd(16)).on_change(|_| std::panic::resume_unwind(Box::new("no"))));
    hold(&limiter).settle(busy(1));
    assert_eq!(figures(&limiter).limit, 8);
    let waiter = queue(&limiter, Priority::Default).await;
    waiter.await.expect("granted after the pause").settle(Outcome::Success);
    reload(&limiter, |config| config.limit = aimd(4));
    assert_eq!(figures(&limiter).limit, 4);
    assert_nothing_is_left(&limiter);
}

/// C8: it runs outside of every lock.
#[tokio::test(start_paused = true)]
async fn a_listener_may_look_call_and_reload() {
    let (handle, told) = (Arc::new(OnceLock::<Limiter>::new()), Arc::new(AtomicUsize::new(0)));
    let (in_listener, counted) = (handle.clone(), told.clone());
    let limiter = build(|limiter| {
        limiter.limit(aimd(16)).on_change(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            let limiter = in_listener.get().expect("built");
            assert!(!limiter.snapshot().lanes.is_empty());
            go(limiter, &model("another")).settle(Outcome::Success);
            reload(limiter, |config| config.limit = aimd(5));
        })
    });
    handle.set(limiter.clone()).expect("once");
    hold(&limiter).settle(Outcome::Overload);
    assert_eq!((told.load(Ordering::Relaxed), figures(&limiter).limit), (3, 5), "from 16 to 8, and both lanes to 5");
    reload(&limiter, |config| config.limit = aimd(7));
    assert_eq!(lane_of(&limiter, &model("another")).limit, 5, "in answer to a reload too, which is overtaken");
    assert_eq!(figures(&limiter).limit, 5);
    assert!(lane_of(&limiter, &model("another")).outcomes["success"] > 1);
    assert_nothing_is_left(&limiter);
}

#[tokio::test(start_paused = true)]
async fn a_listener_hears_of_changes_that_a_dropped_permit_makes_outside_of_a_runtime() {
    let (puppet, heard) = (Puppet::new(3), Heard::default());
    let limiter = puppet.in_lanes(|limiter| heard.by(limiter));
    let permit = hold(&limiter);
    puppet.pull(|strings| strings.limit = 2);
    std::thread::spawn(move || drop(permit)).join().expect("no panic");
    assert_eq!(heard.take(), ["local|gemma: limit 3 -> 2 (cancelled)"]);
}

/// Looks at the limiter when it is dropped.
#[derive(Debug)]
struct Curious(Arc<OnceLock<Limiter>>, Arc<AtomicUsize>);

impl Controller for Curious {
    fn limit(&self) -> u32 {
        1
    }

    fn on_end(&mut self, _: &Sample) {}
}

impl Drop for Curious {
    fn drop(&mut self) {
        if let Some(limiter) = self.0.get() {
            assert!(limiter.snapshot().enabled);
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_not_needed_is_dropped_outside_of_every_lock() {
    let (handle, dropped) = (Arc::new(OnceLock::<Limiter>::new()), Arc::new(AtomicUsize::new(0)));
    let (in_hook, in_controller, counted) = (handle.clone(), handle.clone(), dropped.clone());
    let is_nested = std::sync::atomic::AtomicBool::new(false);
    let limiter = build(|limiter| {
        limiter.lane_controller(move |lane| {
            // The same lane is made by another caller meanwhile.
            if !is_nested.swap(true, Ordering::Relaxed) {
                drop(go(in_hook.get().expect("built"), lane));
            }
            Some(Box::new(Curious(in_controller.clone(), counted.clone())))
        })
    });
    handle.set(limiter.clone()).expect("once");
    drop(hold(&limiter));
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
}
