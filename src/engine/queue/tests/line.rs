//! Order, turns, sleepers, expiry and memory.

use super::*;
use Priority::{Bulk, Default as Normal, Interactive};

// Case 18.
#[test]
fn callers_of_a_class_go_in_the_order_of_their_arrival() {
    let mut bench = Bench::new();
    let came: Vec<WaiterId> = (0..50).map(|_| bench.come(Normal)).collect();
    assert_eq!(bench.serve_all(), came);
}

// Case 21.
#[test]
fn interactive_goes_before_default_and_default_before_bulk() {
    let mut bench = Bench::new();
    let [bulk, interactive, normal] = [Bulk, Interactive, Normal].map(|class| bench.come(class));
    assert_eq!(bench.serve_all(), [interactive, normal, bulk]);
}

#[test]
fn those_who_may_not_go_are_passed_over_and_keep_their_place() {
    let mut bench = Bench::new();
    let [bulk, interactive] = [Bulk, Interactive].map(|class| bench.come(class));
    bench.wait(300);
    assert_eq!(bench.grant_in(ClassSet::INTERACTIVE), Some(interactive));
    assert_eq!(bench.grant_in(ClassSet::INTERACTIVE), None);
    assert_eq!(bench.grant_in(ClassSet::NONE), None);
    assert_eq!(bench.grant(), Some(bulk));
}

#[test]
fn a_place_says_how_many_go_before_it() {
    let mut bench = Bench::new();
    bench.come(Bulk);
    bench.come(Normal);
    bench.come(Normal);
    let ask = |class| Ask {
        class,
        tenant: None,
        arrived_at: at(1_000_000),
        expires_at: Time::NEVER,
        expiry: Expiry::QueueTimeout,
    };
    let mut ahead = |class| bench.queue.enqueue(ask(class), Waker::noop().clone(), bench.now).1;
    assert_eq!([ahead(Interactive), ahead(Normal), ahead(Bulk)], [0, 3, 5]);
}

#[test]
fn tenants_take_turns_and_each_is_served_in_order() {
    let mut bench = Bench::new();
    let many: Vec<WaiterId> = (0..4).map(|_| bench.come_of("many", Normal)).collect();
    let few: Vec<WaiterId> = (0..2).map(|_| bench.come_of("few", Normal)).collect();
    let nameless = bench.come(Normal);
    assert_eq!(bench.serve_all(), [many[0], few[0], nameless, many[1], few[1], many[2], many[3]]);
}

#[test]
fn a_tenant_that_comes_anew_does_not_jump_the_turn_of_others() {
    let mut bench = Bench::new();
    let a = [bench.come_of("a", Normal), bench.come_of("a", Normal)];
    let b = bench.come_of("b", Normal);
    let first_of_c = bench.come_of("c", Normal);
    assert_eq!([bench.serve(), bench.serve(), bench.serve()], [Some(a[0]), Some(b), Some(first_of_c)]);
    let second_of_c = bench.come_of("c", Normal);
    assert_eq!(bench.serve_all(), [a[1], second_of_c]);
}

#[test]
fn tenants_take_turns_also_where_an_aged_class_meets_a_younger_one() {
    let mut bench = Bench::new();
    let aged: Vec<WaiterId> = (0..3).map(|_| bench.come_of("bulk", Bulk)).collect();
    bench.wait(120);
    let fresh: Vec<WaiterId> = (0..3).map(|_| bench.come_of("chat", Interactive)).collect();
    assert_eq!(bench.serve_all(), [aged[0], fresh[0], aged[1], fresh[1], aged[2], fresh[2]]);
}

#[test]
fn a_tenants_own_lines_meet_by_arrival_in_one_turn() {
    let mut bench = Bench::new();
    let mine = bench.come_of("a", Bulk);
    bench.wait(60);
    let later = bench.come_of("a", Normal);
    let other = bench.come_of("b", Normal);
    let mut served = bench.serve_all();
    let at = |id| served.iter().position(|&served| served == id);
    assert!(at(mine) < at(later), "{served:?}");
    served.retain(|&id| id != other);
    assert_eq!(served, [mine, later]);
}

#[test]
fn a_sleeper_is_passed_over_and_has_its_place_again_when_it_wakes() {
    let mut bench = Bench::new();
    let sleeper = bench.come(Normal);
    bench.wait(5);
    let [second, third, fourth] = [0; 3].map(|_| bench.come(Normal));
    assert_eq!(bench.grant(), Some(sleeper));
    assert_eq!(bench.queue.lapse(LEASE, bench.now), None);
    bench.wait(1);
    assert_eq!(bench.queue.lapse(LEASE, bench.now).map(|(_, class)| class), Some(Normal));
    assert_eq!(bench.queue.waiting(), 4);
    assert_eq!(bench.serve(), Some(second));
    assert_eq!(bench.collect(sleeper), Found::BackInLine);
    assert_eq!(bench.collect(sleeper), Found::Waiting);
    assert_eq!(bench.serve_all(), [sleeper, third, fourth]);
}

#[test]
fn a_sleeper_ages_while_it_sleeps() {
    let mut bench = Bench::new();
    let sleeper = bench.come(Bulk);
    bench.grant();
    bench.wait(1);
    assert_eq!(bench.queue.lapse(LEASE, bench.now).map(|(_, class)| class), Some(Bulk));
    bench.wait(200);
    let interactive = bench.come(Interactive);
    bench.collect(sleeper);
    assert_eq!(bench.serve_all(), [sleeper, interactive]);
}

#[test]
fn a_sleeper_alone_gets_nothing() {
    let mut bench = Bench::new();
    let sleeper = bench.come(Normal);
    bench.grant();
    bench.wait(1);
    bench.queue.lapse(LEASE, bench.now);
    assert_eq!(bench.grant(), None);
    assert_eq!(bench.cancel(sleeper), Left::Place);
    assert!(bench.queue.is_empty());
}

#[test]
fn the_dead_expire_in_the_order_of_their_bounds() {
    let mut bench = Bench::new();
    let bounds = [300, 5, 300, 20, 300, 10, 400];
    for secs in bounds {
        bench.come_for(Normal, secs);
    }
    let mut expired = Vec::new();
    while !bench.queue.is_empty() {
        bench.now = bench.queue.next_timeout(LEASE);
        while bench.queue.expire(bench.now).is_some() {
            expired.push(bench.now.since(at(1_000_000)).as_secs());
        }
    }
    assert_eq!(expired, [5, 10, 20, 300, 300, 300, 400]);
    assert_eq!(bench.queue.next_timeout(LEASE), Time::NEVER);
}

#[test]
fn a_holder_does_not_expire_and_a_sleeper_does() {
    let mut bench = Bench::new();
    bench.come_for(Normal, 1);
    bench.come_for(Normal, 5);
    bench.grant();
    bench.wait(1);
    assert!(bench.queue.expire(bench.now).is_none());
    assert_eq!(bench.queue.lapse(LEASE, bench.now).map(|(_, class)| class), Some(Normal));
    assert!(bench.queue.expire(bench.now).is_some());
    assert!(bench.queue.expire(bench.now).is_none());
    assert_eq!(bench.queue.waiting(), 1);
}

#[test]
fn whoever_leaves_gives_up_what_it_had() {
    let mut bench = Bench::new();
    let [granted, waiting] = [0; 2].map(|_| bench.come(Normal));
    bench.grant();
    assert_eq!(bench.cancel(granted), Left::Slot(Normal));
    assert_eq!(bench.cancel(waiting), Left::Place);
    assert_eq!(bench.cancel(waiting), Left::Nothing);
    assert_eq!(bench.collect(granted), Found::Gone);
}

#[test]
fn the_name_of_one_who_left_finds_nobody_else() {
    let mut bench = Bench::new();
    let first = bench.come(Normal);
    bench.cancel(first);
    let second = bench.come(Normal);
    assert_eq!(first.index, second.index);
    assert_eq!(bench.collect(first), Found::Gone);
    assert_eq!(bench.cancel(first), Left::Nothing);
    assert_eq!(bench.serve(), Some(second));
}

#[test]
fn those_who_wait_longest_are_seen_past_holders() {
    let mut bench = Bench::new();
    bench.come(Normal);
    bench.wait(3);
    bench.come(Normal);
    assert_eq!(bench.queue.oldest(), Some(at(1_000_000)));
    bench.grant();
    assert_eq!(bench.queue.oldest(), Some(at(1_000_003)));
    bench.grant();
    assert_eq!(bench.queue.oldest(), None);
}

// Case 154.
#[test]
fn memory_comes_back_after_a_hundred_thousand_expiries_while_one_waits_on() {
    let mut bench = Bench::new();
    for n in 0..100_000_u32 {
        let tenant = format!("tenant {n}");
        let expires_at = bench.now + Duration::from_millis(10);
        bench.enqueue(Normal, Some(&tenant), u64::from(n % 3), expires_at);
    }
    let live = bench.come_of("live", Bulk);
    bench.wait(1);
    let mut expired = 0;
    while bench.queue.expire(bench.now).is_some() {
        expired += 1;
    }
    assert_eq!((expired, bench.queue.waiting()), (100_000, 1));
    let queue = &bench.queue;
    assert!(queue.waiters.chunks_held() <= 2 && queue.tenants.chunks_held() <= 2);
    assert!(queue.by_name.capacity() < 1_000, "{}", queue.by_name.capacity());
    assert_eq!((queue.steps.len(), queue.early.len()), (0, 0));
    assert_eq!(bench.serve(), Some(live));
}

#[test]
fn tenants_that_come_and_go_leave_little_behind() {
    let mut bench = Bench::new();
    let live = bench.come_of("live", Bulk);
    for n in 0..10_000 {
        let id = bench.come_of(&format!("tenant {n}"), Normal);
        match n % 2 {
            0 => assert_eq!(bench.cancel(id), Left::Place),
            _ => assert_eq!(bench.serve(), Some(id)),
        }
        assert!(bench.queue.by_name.len() <= 2 + ABSENT_TENANTS);
    }
    assert_eq!(bench.queue.tenants.chunks_held(), 1);
    assert_eq!(bench.serve(), Some(live));
}

#[test]
fn a_tenant_that_comes_back_is_the_one_it_was() {
    let mut bench = Bench::new();
    for _ in 0..100 {
        let [one, two] = ["acme", "acme"].map(|tenant| bench.come_of(tenant, Normal));
        assert_eq!(bench.queue.waiting_of_tenant(Some(&"acme".into())), 2);
        assert_eq!(bench.serve_all(), [one, two]);
        assert_eq!((bench.queue.by_name.len(), bench.queue.absent), (1, 1));
    }
}
