//! Compares controllers on modelled gateways.
//!
//! ```text
//! cargo run --release --features simulator --example simulate
//! cargo run --release --features simulator --example simulate -- --json
//! cargo run --release --features simulator --example simulate -- --initial 1 --seeds 5
//! cargo run --release --features simulator --example simulate -- --plot
//! cargo run --release --features simulator --example simulate -- --scenario step_down --controller ours --trajectory
//! ```
//!
//! Each scenario is a file in `scenarios/`. Goodput is what calls that ended well delivered, as a fraction of what an
//! oracle's limit delivers, which knows the capacity at every moment. A fixed limit knows the capacity at the start.
//! Nothing is tuned to a scenario; limits that adapt begin at 16, unless the scenario or `--initial N` says otherwise.

// Examples measure, so they read the clock.
#![allow(clippy::disallowed_methods)]

mod args;
mod contestants;
mod files;
mod measure;
mod peers;
mod plot;
mod table;

use std::path::Path;
use std::time::Instant;

use args::{Args, Form};
use contestants::{NAMES, OURS};

fn main() {
    if let Err(message) = run() {
        eprintln!("{message}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), String> {
    let args = Args::parse(std::env::args().skip(1))?;
    let mut scenarios = files::load(args.scenario.as_deref())?;
    for (_, scenario) in &mut scenarios {
        scenario.initial_limit = args.initial.unwrap_or(scenario.initial_limit);
    }
    if args.form == Form::Trajectory {
        let controller = args.controller.as_deref().unwrap_or(OURS);
        for (_, scenario) in &scenarios {
            print!("{}", measure::run(scenario, controller, 1)?);
        }
        return Ok(());
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/simulate");
    let started_at = Instant::now();
    let mut results = Vec::new();
    for (name, scenario) in scenarios {
        let names = NAMES.into_iter().filter(|name| args.takes(name));
        let rows = measure::compare(&scenario, names, args.seeds)?;
        match args.form {
            Form::Table => table::print(&name, &scenario.about, &rows),
            Form::Plot => {
                std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
                let path = plot::draw(&folder, &name, &scenario, &rows).map_err(|error| error.to_string())?;
                println!("{}", path.display());
            }
            Form::Json | Form::Trajectory => {}
        }
        results.push((name, rows));
    }
    if args.form == Form::Json {
        println!("{:#}", table::to_json(&results));
    }
    let calls: u64 = results.iter().flat_map(|(_, rows)| rows).map(|row| row.simulated_calls).sum();
    let took_s = started_at.elapsed().as_secs_f64();
    eprintln!("\n{calls} simulated calls in {took_s:.1} s: {:.0} calls/s", calls as f64 / took_s);
    Ok(())
}
