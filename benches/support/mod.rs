//! Side by side in one process: passes of ours and of the peer take turns, and a bar is the median of their ratios.
//!
//! Neighbours on the machine slow single passes down, not ratios of two passes in a row, and not their median. Each bar
//! prints one line, `bar NAME VALUE UNIT  # …`, where the rest says what is allowed and what was measured.
//!
//! `cargo bench --bench limiter -- handoff` runs the bars with that in their names.

#![allow(dead_code, reason = "each bench uses a part of this")]

use std::time::{Duration, Instant};

/// How often a bar is measured. Odd, so that the median is a pass that took place. `PASSES=1` is for profilers.
pub(crate) struct Passes(pub(crate) usize);

/// Passes of a fraction of a millisecond: most fit between two interruptions by whatever else the machine does.
pub(crate) const MANY: Passes = Passes(501);

impl Passes {
    fn count(&self) -> usize {
        std::env::var("PASSES").ok().and_then(|count| count.parse().ok()).unwrap_or(self.0)
    }
}

/// Nanoseconds that `work` takes for each of its `operations`.
pub(crate) fn time(operations: usize, work: impl FnOnce()) -> f64 {
    let watch = Stopwatch::start();
    work();
    watch.per(operations)
}

pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        #[expect(clippy::disallowed_methods, reason = "a bench measures")]
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of operations")]
    pub(crate) fn per(&self, operations: usize) -> f64 {
        self.elapsed().as_nanos() as f64 / operations as f64
    }
}

/// What a bar allows.
pub(crate) struct AtMost(pub(crate) f64);

/// It is printed for information.
pub(crate) const ANYTHING: AtMost = AtMost(f64::INFINITY);

/// Runs `ours` and `peer`, which return nanoseconds per operation, and prints their ratio.
pub(crate) fn ratio(name: &str, limit: AtMost, passes: Passes, ours: impl FnMut() -> f64, peer: impl FnMut() -> f64) {
    if let Some(measured) = Measured::run(name, passes, ours, peer) {
        let note = format!("ours {:.0} ns, peer {:.0} ns", measured.median_ours(), measured.median_peer());
        print(name, measured.median_of(|ours, peer| ours / peer), "x", limit, &note);
    }
}

/// The same for what ours takes on top of the peer.
pub(crate) fn difference(
    name: &str,
    limit: AtMost,
    passes: Passes,
    ours: impl FnMut() -> f64,
    peer: impl FnMut() -> f64,
) {
    if let Some(measured) = Measured::run(name, passes, ours, peer) {
        let note = format!("ours {:.1} ns, peer {:.1} ns", measured.median_ours(), measured.median_peer());
        print(name, measured.median_of(|ours, peer| ours - peer), "ns", limit, &note);
    }
}

pub(crate) fn print(name: &str, value: f64, unit: &str, AtMost(limit): AtMost, note: &str) {
    let allowed = if limit.is_finite() { format!("at most {limit}") } else { "for information".to_owned() };
    let verdict = if value <= limit { "" } else { "  TOO MUCH" };
    println!("bar {name} {value:.3} {unit}  # {allowed}; {note}{verdict}");
}

/// Whether the bar was asked for.
pub(crate) fn is_wanted(name: &str) -> bool {
    let mut wanted = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).peekable();
    wanted.peek().is_none() || wanted.any(|part| name.contains(&part))
}

struct Measured(Vec<(f64, f64)>);

impl Measured {
    /// `None` if the bar was not asked for.
    fn run(name: &str, passes: Passes, mut ours: impl FnMut() -> f64, mut peer: impl FnMut() -> f64) -> Option<Self> {
        if !is_wanted(name) {
            return None;
        }
        // The first of each warms up; then who goes first takes turns.
        let _ = (ours(), peer());
        let pass = |n: usize| {
            if n % 2 == 0 {
                let ours = ours();
                (ours, peer())
            } else {
                let peer = peer();
                (ours(), peer)
            }
        };
        Some(Self((0..passes.count()).map(pass).collect()))
    }

    fn median_ours(&self) -> f64 {
        self.median_of(|ours, _| ours)
    }

    fn median_peer(&self) -> f64 {
        self.median_of(|_, peer| peer)
    }

    fn median_of(&self, value: impl Fn(f64, f64) -> f64) -> f64 {
        let mut values: Vec<f64> = self.0.iter().map(|&(ours, peer)| value(ours, peer)).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }
}

/// One thread, so that a hand-off is what is measured and not the way between cores.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}
