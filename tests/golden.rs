//! Each scenario, with the default controller, gives the trajectory that is committed.
//!
//! A change of the controller changes them on purpose: `GOLDEN=write cargo test --features simulator --test golden`, then
//! look at the difference.

use std::fs;
use std::path::{Path, PathBuf};

use tower_inflight::controller::{Controller, Knee, KneeConfig};
use tower_inflight::simulator::Scenario;

const SEED: u64 = 1;

#[test]
fn trajectories_of_the_default_controller_are_the_committed_ones() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_writing = std::env::var_os("GOLDEN").is_some_and(|mode| mode == "write");
    let mut differing = Vec::new();
    for path in scenario_files(&root.join("scenarios")) {
        let scenario: Scenario = toml::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let run = scenario.run(SEED, |_| default_controller(scenario.initial_limit)).unwrap();
        let golden = root.join("tests/golden").join(path.with_extension("txt").file_name().unwrap());
        if is_writing {
            fs::write(&golden, run.to_string()).unwrap();
        } else if let Some(difference) = first_difference(&fs::read_to_string(&golden).unwrap(), &run.to_string()) {
            differing.push(format!("{}: {difference}", golden.display()));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

fn default_controller(initial_limit: u32) -> Box<dyn Controller> {
    Box::new(Knee::new(KneeConfig { initial_limit, ..KneeConfig::default() }).unwrap())
}

fn scenario_files(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn first_difference(golden: &str, actual: &str) -> Option<String> {
    let lines = || golden.lines().zip(actual.lines());
    if let Some((golden, actual)) = lines().find(|(golden, actual)| golden != actual) {
        return Some(format!("\n  golden {golden}\n  actual {actual}"));
    }
    let (golden, actual) = (golden.lines().count(), actual.lines().count());
    (golden != actual).then(|| format!("{golden} lines are {actual} now"))
}
