//! Runs a scenario with a controller, over several seeds.

use tower_inflight::simulator::{Run, Scenario};

use crate::contestants::{ORACLE, make};

/// Means over the seeds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// As a fraction of the oracle's.
    pub(crate) goodput: f64,
    pub(crate) interactive_ttft_p99_s: f64,
    pub(crate) wasted_calls: f64,
    /// `None` if it did not converge with some seed.
    pub(crate) converged_s: Option<f64>,
    pub(crate) fairness: f64,
    /// Calls that failed for good, or waited in vain.
    pub(crate) failed_calls: f64,
}

#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) controller: &'static str,
    pub(crate) figures: Figures,
    /// With the first seed.
    pub(crate) sample: Run,
    pub(crate) simulated_calls: u64,
}

pub(crate) fn run(scenario: &Scenario, controller: &str, seed: u64) -> Result<Run, String> {
    scenario
        .run(seed, |_| make(controller, scenario).expect("the arguments were checked against the names"))
        .map_err(|error| error.to_string())
}

pub(crate) fn compare(
    scenario: &Scenario,
    controllers: impl Iterator<Item = &'static str>,
    seeds: u64,
) -> Result<Vec<Row>, String> {
    let oracles: Vec<Run> = (1..=seeds).map(|seed| run(scenario, ORACLE, seed)).collect::<Result<_, _>>()?;
    controllers.map(|controller| row(scenario, controller, &oracles)).collect()
}

fn row(scenario: &Scenario, controller: &'static str, oracles: &[Run]) -> Result<Row, String> {
    let runs: Vec<Run> = if controller == ORACLE {
        oracles.to_vec()
    } else {
        (1..).zip(oracles).map(|(seed, _)| run(scenario, controller, seed)).collect::<Result<_, _>>()?
    };
    let mean = |figure: &dyn Fn(&Run) -> f64| runs.iter().map(figure).sum::<f64>() / runs.len() as f64;
    let times: Option<Vec<f64>> = runs.iter().zip(oracles).map(|(run, oracle)| run.converged_s(oracle)).collect();
    let fractions = runs.iter().zip(oracles).map(|(run, oracle)| run.goodput() / oracle.goodput());
    let figures = Figures {
        goodput: fractions.sum::<f64>() / runs.len() as f64,
        interactive_ttft_p99_s: mean(&|run| run.interactive_ttft_p99_s().unwrap_or(f64::NAN)),
        wasted_calls: mean(&|run| run.wasted_calls() as f64),
        converged_s: times.map(|times| times.iter().sum::<f64>() / times.len() as f64),
        fairness: mean(&Run::fairness),
        failed_calls: mean(&|run| (run.lost_calls() + run.expired_calls()) as f64),
    };
    let simulated_calls = runs.iter().map(Run::sent).sum();
    let sample = runs.into_iter().next().ok_or("at least one seed")?;
    Ok(Row { controller, figures, sample, simulated_calls })
}
