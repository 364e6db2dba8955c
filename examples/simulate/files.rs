//! The scenario files.

use std::fs;
use std::path::{Path, PathBuf};

use tower_inflight::simulator::Scenario;

pub(crate) fn load(only: Option<&str>) -> Result<Vec<(String, Scenario)>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder)
        .map_err(|error| format!("{}: {error}", folder.display()))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    paths.sort();
    let scenarios: Result<Vec<_>, String> = paths.iter().map(|path| read(path)).collect();
    let mut scenarios = scenarios?;
    scenarios.retain(|(name, _)| only.is_none_or(|only| only == name));
    if scenarios.is_empty() { Err("no such scenario".to_owned()) } else { Ok(scenarios) }
}

fn read(path: &Path) -> Result<(String, Scenario), String> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let text = fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let scenario = toml::from_str(&text).map_err(|error| format!("{name}: {error}"))?;
    Ok((name, scenario))
}
