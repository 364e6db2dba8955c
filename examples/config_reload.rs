//! Reloads the limits from a TOML file while calls run.
//!
//! ```sh
//! cargo run --example config_reload
//! ```
//!
//! Four callers share a lane with one slot, so three of them wait. Then the file is edited three times. The first edit
//! gives four slots, one of them for interactive callers only, so two waiters start at once. The second has a typo, the
//! third values that make no sense together: a file that is wrong changes nothing.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::time::{interval, sleep};
use tower_inflight::{Call, LaneKey, LimitConfig, Limiter, Priority};

type BoxError = Box<dyn Error + Send + Sync>;

const START: &str = "max_inflight = 1\nqueue_timeout = \"30s\"\n";

const EDITS: [(&str, &str); 3] = [
    ("more slots", "max_inflight = 4\nqueue_timeout = \"1m 30s\"\n"),
    ("a typo", "max_inflght = 6\n"),
    ("a reserve that does not fit", "max_inflight = 6\ninteractive_reserve = 9\n"),
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let path = std::env::temp_dir().join(format!("tower-inflight-{}.toml", std::process::id()));
    save(&path, START)?;
    let config = load(&path)?;
    let limiter = Limiter::builder().config(config.clone()).build()?;

    for caller in 1..=4 {
        tokio::spawn(call(limiter.clone(), caller));
    }
    tokio::spawn(watch(limiter.clone(), path.clone(), config));

    for (what, text) in EDITS {
        sleep(Duration::from_millis(700)).await;
        println!("\nedit: {what}");
        save(&path, text)?;
    }
    sleep(Duration::from_millis(700)).await;
    println!("\nat the end: {}", serde_json::to_string(&limiter.snapshot())?);
    fs::remove_file(&path)?;
    Ok(())
}

/// Applies the file each time it has changed. One that cannot be applied is reported, and the limits stay.
async fn watch(limiter: Limiter, path: PathBuf, mut current: LimitConfig) {
    let mut seen = modified_at(&path);
    let mut ticks = interval(Duration::from_millis(100));
    loop {
        ticks.tick().await;
        let modified = modified_at(&path);
        if modified.is_none() || modified == seen {
            continue;
        }
        seen = modified;
        match reload(&limiter, &path) {
            Ok(new) => {
                report(&current, &new);
                current = new;
            }
            Err(error) => println!("kept the old limits: {error}"),
        }
    }
}

fn reload(limiter: &Limiter, path: &Path) -> Result<LimitConfig, BoxError> {
    let config = load(path)?;
    limiter.reconfigure(config.clone())?;
    Ok(config)
}

fn load(path: &Path) -> Result<LimitConfig, BoxError> {
    Ok(toml::from_str(&fs::read_to_string(path)?)?)
}

/// By way of a second file, so that the watcher never reads half of a new one.
fn save(path: &Path, text: &str) -> std::io::Result<()> {
    let draft = path.with_extension("draft");
    fs::write(&draft, text)?;
    fs::rename(draft, path)
}

fn modified_at(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|file| file.modified()).ok()
}

fn report(old: &LimitConfig, new: &LimitConfig) {
    println!("reloaded");
    for (key, old, new) in changes(old, new).unwrap_or_default() {
        println!("  {key}: {old} -> {new}");
    }
}

fn changes(old: &LimitConfig, new: &LimitConfig) -> Result<Vec<(String, String, String)>, toml::ser::Error> {
    let (old, new) = (toml::Table::try_from(old)?, toml::Table::try_from(new)?);
    let shown =
        |table: &toml::Table, key: &str| table.get(key).map_or_else(|| "not set".into(), toml::Value::to_string);
    let added = new.keys().filter(|key| !old.contains_key(*key));
    let changed = old.keys().chain(added).filter(|key| old.get(*key) != new.get(*key));
    Ok(changed.map(|key| (key.clone(), shown(&old, key), shown(&new, key))).collect())
}

/// Holds a slot for as long as a model would take to answer.
async fn call(limiter: Limiter, caller: u32) {
    let lane = LaneKey::new("local", "gemma");
    match limiter.acquire(&lane, Call::new(Priority::Default)).await {
        Ok(_permit) => {
            println!("caller {caller} got a slot");
            sleep(Duration::from_millis(1_500)).await;
        }
        Err(error) => println!("caller {caller}: {error}"),
    }
}
