//! What came of a run.

use std::fmt;

use super::scenario::Scenario;

/// The figures of one run.
///
/// ```
/// use tower_inflight::simulator::{Gateway, Load, Oracle, Scenario};
///
/// let scenario = Scenario::new(Gateway::default(), Load::Closed { callers: 100, think_s: 0.0 });
/// let run = scenario.run(1, |_client| Box::new(Oracle::new(&scenario)))?;
///
/// assert_eq!(run.fairness(), 1.0, "there is one client");
/// let in_flight: Vec<u32> = run.steps()[0].iter().map(|step| step.in_flight).collect();
/// assert_eq!(in_flight.len(), 60, "one step is ten seconds");
/// # Ok::<(), tower_inflight::simulator::InvalidScenario>(())
/// ```
#[derive(Clone, Debug)]
pub struct Run {
    pub(super) steps: Vec<Vec<Step>>,
    pub(super) step_s: f64,
    pub(super) measured_from_s: f64,
    pub(super) converging_from_s: f64,
    pub(super) measured_s: f64,
    pub(super) totals: Totals,
    /// Seconds.
    pub(super) interactive_waits: Vec<f32>,
}

/// One client at the end of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Step {
    /// Its limit.
    pub limit: u32,
    /// Its calls in flight.
    pub in_flight: u32,
    /// Its calls waiting for a slot.
    pub waiting: u32,
    /// Tokens of the calls that ended well in this step.
    pub tokens: f64,
}

/// Counts; all but `sent` from the start of the measurement on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    /// From the very start: what the simulator had to do.
    pub(super) sent: u64,
    pub(super) tokens: f64,
    pub(super) succeeded: u64,
    pub(super) refused: u64,
    pub(super) unanswered: u64,
    pub(super) expired: u64,
    pub(super) lost: u64,
}

/// Goodput is smoothed over this much before it is compared.
const SMOOTHED_S: f64 = 60.0;
/// A run has converged once it delivers this part of what the oracle does.
const CONVERGED_AT: f64 = 0.95;

impl Run {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            steps: (0..scenario.clients.count).map(|_| Vec::new()).collect(),
            step_s: scenario.step_s,
            measured_from_s: scenario.measured_from_s,
            converging_from_s: scenario.converging_from_s,
            measured_s: scenario.runs_s - scenario.measured_from_s,
            totals: Totals::default(),
            interactive_waits: Vec::new(),
        }
    }

    /// Tokens per second of calls that ended well.
    #[must_use]
    pub fn goodput(&self) -> f64 {
        self.totals.tokens / self.measured_s
    }

    /// Attempts that the gateway refused, or whose first byte did not come in time.
    #[must_use]
    pub fn wasted_calls(&self) -> u64 {
        self.totals.refused + self.totals.unanswered
    }

    /// Calls that ended well.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.totals.succeeded
    }

    /// Calls whose last attempt failed.
    #[must_use]
    pub fn lost_calls(&self) -> u64 {
        self.totals.lost
    }

    /// Calls that waited in vain in the client's own queue, or found it full.
    #[must_use]
    pub fn expired_calls(&self) -> u64 {
        self.totals.expired
    }

    /// Attempts sent, from the very start.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.totals.sent
    }

    /// The time from arrival to first token that 99 of 100 interactive calls did not exceed: queue and retries included.
    #[must_use]
    pub fn interactive_ttft_p99_s(&self) -> Option<f64> {
        let mut waits = self.interactive_waits.clone();
        waits.sort_by(f32::total_cmp);
        waits.get((waits.len() * 99 / 100).min(waits.len().saturating_sub(1))).map(|&wait| f64::from(wait))
    }

    /// The trajectory of each client.
    #[must_use]
    pub fn steps(&self) -> &[Vec<Step>] {
        &self.steps
    }

    /// One step of the trajectory covers this much.
    #[must_use]
    pub fn step_s(&self) -> f64 {
        self.step_s
    }

    /// Tokens per second of all clients together, step by step.
    #[must_use]
    pub fn goodput_by_step(&self) -> Vec<f64> {
        let count = self.steps.iter().map(Vec::len).max().unwrap_or(0);
        (0..count)
            .map(|at| self.steps.iter().filter_map(|client| client.get(at)).map(|step| step.tokens).sum::<f64>())
            .map(|tokens| tokens / self.step_s)
            .collect()
    }

    /// Seconds until a minute's goodput first was 0.95 of the oracle's of that minute, or `None`.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and checked")]
    #[expect(clippy::cast_precision_loss, reason = "few")]
    pub fn converged_s(&self, oracle: &Self) -> Option<f64> {
        let (ours, best) = (self.goodput_by_step(), oracle.goodput_by_step());
        let width = ((SMOOTHED_S / self.step_s).round() as usize).max(1);
        let first = (self.converging_from_s / self.step_s).round() as usize;
        let minutes = ours.windows(width).zip(best.windows(width)).skip(first);
        let mut reached = minutes.map(|(ours, best)| {
            let best: f64 = best.iter().sum();
            best > 0.0 && ours.iter().sum::<f64>() >= CONVERGED_AT * best
        });
        reached.position(|is_reached| is_reached).map(|steps| steps as f64 * self.step_s)
    }

    /// How evenly the clients were served: 1 is even, 1/n means that one of n got everything (Jain's index).
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and checked")]
    #[expect(clippy::cast_precision_loss, reason = "few")]
    pub fn fairness(&self) -> f64 {
        let first = (self.measured_from_s / self.step_s).round() as usize;
        let tokens: Vec<f64> =
            self.steps.iter().map(|client| client.iter().skip(first).map(|step| step.tokens).sum()).collect();
        let squares: f64 = tokens.iter().map(|tokens| tokens * tokens).sum();
        let sum: f64 = tokens.iter().sum();
        if squares > 0.0 { sum * sum / (squares * tokens.len() as f64) } else { 1.0 }
    }
}

/// The trajectory in whole numbers, one line a step: what golden files hold.
impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# end of step [s] | of each client: limit, in flight, waiting, goodput [tokens/s]")?;
        let mut ends_s = 0.0;
        for at in 0..self.steps.first().map_or(0, Vec::len) {
            ends_s += self.step_s;
            write!(f, "{ends_s:>6.0}")?;
            for step in self.steps.iter().filter_map(|client| client.get(at)) {
                let Step { limit, in_flight, waiting, tokens } = step;
                write!(f, " |{limit:>6}{in_flight:>6}{waiting:>6}{:>8.0}", tokens / self.step_s)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
