//! Steps against what was promised, after each of them.

mod lanes;
mod lend;
mod line;
mod world;

use super::*;

/// Runs known by their number.
type Plain = Runs<RunRef>;

fn user(name: u32) -> UserKey {
    UserKey { tenant: format!("tenant-{}", name % 3).into(), user: format!("user-{name}").into() }
}

fn ask(name: u32) -> Ask {
    Ask { user: user(name), key: None, patience: Patience::Wait, door: Door::Open }
}

fn limits(concurrent: u32, depth: u32) -> Limits {
    Limits { concurrent, concurrent_per_user: None, depth, queued_per_user: u32::MAX }
}

fn runs(concurrent: u32, depth: u32) -> Plain {
    Runs::new(limits(concurrent, depth), false)
}

fn start(runs: &mut Plain, name: u32) -> RunRef {
    runs.start(ask(name), |id| id, Time::ZERO, &mut Effects::default()).expect("within the bounds")
}

fn end(runs: &mut Plain, run: RunRef) -> Vec<(RunRef, Fact)> {
    let mut effects = Effects::default();
    runs.end(run, Ending::Finished, Time::ZERO, &mut effects);
    effects.facts.into_vec()
}

fn admitted(facts: &[(RunRef, Fact)]) -> Vec<RunRef> {
    facts.iter().filter(|(_, fact)| matches!(fact, Fact::Admitted { .. })).map(|(run, _)| *run).collect()
}

fn small(n: usize) -> u32 {
    u32::try_from(n).expect("tests are small")
}

fn is_running(runs: &Plain, run: RunRef) -> bool {
    matches!(runs.standing(run), Standing::Running { .. })
}

fn queued(reason: QueuedFor, position: u32) -> Standing {
    Standing::Queued { reason, position }
}
