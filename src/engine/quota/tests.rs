use super::*;

fn at(secs: u64) -> Time {
    Time::from_epoch(Duration::from_secs(secs))
}

fn policy(per_minute: [Option<u64>; 4]) -> QuotaPolicy {
    QuotaPolicy { per_minute, burst: Duration::from_secs(60), follow_headers: FollowHeaders::On }
}

fn quota(per_minute: [Option<u64>; 4]) -> Quota {
    Quota::new(policy(per_minute), at(0))
}

const CALL: Tokens = Tokens { input: 3_000, output: 1_000 };

#[test]
fn all_dimensions_must_fit() {
    let mut quota = quota([Some(60), None, Some(3_000), Some(60_000)]);
    assert_eq!(quota.fits_at(CALL, at(0)).0, at(0));
    quota.take(CALL);
    let (fits_at, dimension) = quota.fits_at(CALL, at(0));
    assert_eq!(dimension, Dimension::InputTokens);
    assert!(fits_at >= at(60));
    assert_eq!(quota.view(at(0)).left, [Some(59.0), None, Some(0.0), Some(59_000.0)]);
}

// Case 99.
#[test]
fn a_call_that_can_never_fit_is_named_with_its_dimension() {
    let quota = quota([None, Some(3_999), None, None]);
    assert_eq!(quota.too_large(CALL), Some((Dimension::Tokens, 3_999)));
    assert_eq!(quota.too_large(Tokens { input: 2_999, ..CALL }), None);
}

// Case 101.
#[test]
fn each_ending_gives_back_what_was_not_used() {
    let reported = |output| Reported { input: Some(2_900), output: Some(output), output_seen: Some(7) };
    let seen = Reported { output_seen: Some(12), ..Reported::default() };
    let none = Reported::default();
    let cases = [
        ("connect error", Outcome::Transport, false, none, None, 0),
        ("429", Outcome::Overload, false, none, Some((0, 0)), 1),
        ("400", Outcome::ClientError, false, none, Some((0, 0)), 1),
        ("503", Outcome::Unavailable, false, none, Some((0, 0)), 1),
        ("dropped before the answer", Outcome::Cancelled, false, none, Some((0, 0)), 1),
        ("dropped after three pieces", Outcome::Cancelled, true, seen, Some((3_000, 12)), 1),
        ("dropped after a report", Outcome::Cancelled, true, reported(120), Some((2_900, 120)), 1),
        ("ended without a report", Outcome::Success, true, seen, Some((3_000, 1_000)), 1),
        ("compressed", Outcome::Success, true, none, Some((3_000, 1_000)), 1),
        ("reset in the middle", Outcome::Transport, true, seen, Some((3_000, 12)), 1),
        ("ended with a report", Outcome::Success, true, reported(400), Some((2_900, 400)), 1),
        ("above the estimate", Outcome::Success, true, reported(4_000), Some((2_900, 4_000)), 1),
        ("refused further in", Outcome::Refused, false, none, None, 0),
    ];
    for (name, outcome, has_begun, usage, tokens, requests) in cases {
        let (input, output) = tokens.unwrap_or_default();
        let used = Used::of(CALL, outcome, has_begun, usage);
        assert_eq!(used, Used { tokens: Tokens { input, output }, is_request: requests == 1 }, "{name}");
    }
}

// Case 100.
#[test]
fn what_was_not_sent_comes_back_whole() {
    let mut quota = quota([Some(2), Some(10_000), Some(10_000), Some(10_000)]);
    let before = quota.view(at(0)).left;
    quota.take(CALL);
    quota.give_back(CALL, at(0));
    assert_eq!(quota.view(at(0)).left, before);
}

#[test]
fn a_wave_of_refusals_slows_down_once() {
    let rate = |refusals: &[(u64, u64)]| {
        let mut quota = quota([None, Some(600_000), None, None]);
        quota.take(Tokens { input: 600_000, output: 0 });
        refusals.iter().for_each(|&(granted, now)| quota.slow_down(at(granted), at(now)));
        quota.view(at(3)).left[1].unwrap()
    };
    assert_eq!(rate(&[(0, 1), (0, 1), (0, 1)]), rate(&[(0, 1)]));
    assert!(rate(&[(0, 1), (1, 2)]) < rate(&[(0, 1)]));
}

#[test]
fn the_provider_is_believed_where_that_is_asked_for_and_only_when_it_says_less() {
    let limited = [Some(10), Some(10_000), None, None];
    let says = |left| Remaining { said_at: at(0), left, of: [Some(1); 4] };
    let mut quota = quota(limited);
    quota.heed(says([Some(4), Some(20_000), Some(0), None]), at(0));
    assert_eq!(quota.view(at(0)).left, [Some(4.0), Some(10_000.0), None, None]);
    quota.set_policy(QuotaPolicy { follow_headers: FollowHeaders::Off, ..policy(limited) }, at(0));
    quota.heed(says([Some(0); 4]), at(0));
    assert_eq!(quota.view(at(0)).left, [Some(4.0), Some(10_000.0), None, None]);
}

#[test]
fn a_limit_that_the_provider_names_is_heeded_where_that_is_asked_for() {
    let limited = [Some(10), Some(10_000), None, None];
    let says = |of| Remaining { said_at: at(0), left: [None, Some(4_500), None, None], of };
    let mut quota = quota(limited);
    quota.set_policy(QuotaPolicy { follow_headers: FollowHeaders::Limits, ..policy(limited) }, at(0));
    quota.heed(says([Some(20), Some(5_000), Some(1), None]), at(0));
    let QuotaView { left, size, .. } = quota.view(at(0));
    assert_eq!((left, size), ([Some(10.0), Some(4_500.0), None, None], 0.5));
    assert_eq!(quota.too_large(Tokens { input: 9_000, output: 0 }), None);
    assert!(!quota.is_full(at(60)), "it is something to remember");
    assert!(quota.is_full(at(400)));
}

#[test]
fn another_policy_keeps_what_was_used() {
    let mut quota = quota([None, Some(10_000), None, None]);
    quota.take(Tokens { input: 4_000, output: 0 });
    let policy = policy([Some(5), Some(5_000), None, None]);
    quota.set_policy(policy, at(0));
    assert_eq!(quota.view(at(0)).left, [Some(5.0), Some(5_000.0), None, None]);
    quota.take(CALL);
    quota.set_policy(QuotaPolicy { per_minute: [None, Some(50_000), None, None], ..policy }, at(0));
    assert_eq!(quota.view(at(0)).left, [None, Some(1_000.0), None, None]);
}
