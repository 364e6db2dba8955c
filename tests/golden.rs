//! Each scenario, with the default controller, gives the trajectory that is committed, and one with latency targets does.
//!
//! A change of the controller changes them on purpose: `GOLDEN=write cargo test --features simulator --test golden`, then
//! look at the difference.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tower_inflight::controller::{Aimd, AimdConfig, Controller, Knee, KneeConfig, LatencyTarget};
use tower_inflight::simulator::{Run, Scenario};

const SEED: u64 = 1;

#[test]
fn trajectories_of_the_default_controller_are_the_committed_ones() {
    let mut differing = Vec::new();
    for path in scenario_files() {
        let scenario = load(&path);
        let run = scenario.run(SEED, |_| default_controller(scenario.initial_limit)).unwrap();
        differing.extend(difference(&path.file_stem().unwrap().to_string_lossy(), &run));
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

/// 25 calls a second. The time to the first token rises from 0.7 s to 4 s after 300 s, and falls again after 480 s.
#[test]
fn a_latency_target_takes_a_limit_from_180_to_about_106_in_a_minute_and_back_over_minutes() {
    let scenario = load(&root().join("scenarios/slow_tuesday.toml"));
    let run = scenario.run(SEED, |_| with_target(scenario.initial_limit)).unwrap();
    assert_eq!(difference("slow_tuesday_latency_target", &run), None);

    let limits: Vec<u32> = run.steps()[0].iter().map(|step| step.limit).collect();
    let at = |second: usize| limits[second / 10 - 1];
    assert!((180..=195).contains(&at(300)), "{}", at(300));
    assert!((100..=115).contains(&at(360)), "{}", at(360));
    assert!((100..=120).contains(&at(480)), "{}", at(480));
    let back: Vec<u32> = limits[49..].to_vec();
    assert!(back.is_sorted(), "no second collapse: {back:?}");
    assert!(at(780) < 180 && at(1200) > 180, "over minutes: {back:?}");
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn load(path: &Path) -> Scenario {
    toml::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Between the run and its committed trajectory. When they are being written, there is none.
fn difference(name: &str, run: &Run) -> Option<String> {
    let golden = root().join("tests/golden").join(name).with_extension("txt");
    if std::env::var_os("GOLDEN").is_some_and(|mode| mode == "write") {
        fs::write(&golden, run.to_string()).unwrap();
        return None;
    }
    let difference = first_difference(&fs::read_to_string(&golden).unwrap(), &run.to_string())?;
    Some(format!("{}: {difference}", golden.display()))
}

fn with_target(initial_limit: u32) -> Box<dyn Controller> {
    let target = LatencyTarget { first_byte: Some(Duration::from_millis(1_500)), ..LatencyTarget::default() };
    Box::new(Aimd::new(AimdConfig { initial_limit, latency: Some(target), ..AimdConfig::default() }).unwrap())
}

fn default_controller(initial_limit: u32) -> Box<dyn Controller> {
    Box::new(Knee::new(KneeConfig { initial_limit, ..KneeConfig::default() }).unwrap())
}

fn scenario_files() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(root().join("scenarios")).unwrap().map(|entry| entry.unwrap().path()).collect();
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
