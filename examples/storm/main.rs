//! The incident, replayed three times: no limit, tower's `ConcurrencyLimit`, this crate's layer.
//!
//! ```text
//! cargo run --release --example storm
//! cargo run --release --example storm -- --json
//! cargo run --release --example storm -- --upstream http://127.0.0.1:8089/v1 --model gemma-3-270m
//! ```
//!
//! Three review panels of five calls, two boards of coders and an operator's chat meet one gateway, half as much again
//! as it can serve. Every run gets the same seeded list of calls at the same times. The gateway is a real server with
//! a line of its own; see `support/gateway.rs`. Time is scaled: a call takes about a fifth of a second here and half a
//! minute in the incident.
//!
//! The clients are the same in all three runs. An SDK makes up to three attempts with exponential backoff, and the
//! caller opens the stream up to three times. An attempt times out when no response head came within four service
//! times, which is the incident's 120 s. Only the layer in the middle differs:
//!
//! ```text
//! reconnect -> retry -> (nothing | ConcurrencyLimit | InflightLimit) -> timeout -> hyper
//! ```
//!
//! Retries are outside, so that every attempt takes a slot of its own. The timeout is inside, so that it starts when
//! the call leaves and not when it begins to wait here: it judges the gateway, never our own queue. Both limiters get
//! this order, which is also the better one for `ConcurrencyLimit`.
//!
//! What to look at: the first run starves although the gateway works all the time, because it works for clients that
//! have left. (It notices a departure after two service times. A gateway that noticed at once would not collapse.) The
//! second run survives, but `ConcurrencyLimit` gives its slot back at the response head, so that twice as many calls
//! are open as the limit says, and its operator stands in line behind the reviews. It would survive less well behind a
//! gateway that sends heads early. The third run keeps to the limit and lets the operator go first. The reviews pay for
//! it with a longer makespan: they are served last, and never from the slot that is reserved for the operator.
//!
//! With `--upstream` the load is half as long, its times follow the server's own service time, and the capacity is
//! measured before the runs: a server that shares its processors with others has no constant one.

// Examples measure, so they read the clock.
#![allow(clippy::disallowed_methods)]

mod args;
mod client;
mod job;
mod measure;
mod plot;
mod record;
mod replay;
mod report;
mod stack;
#[path = "../support/mod.rs"]
mod support;
mod upstream;

use std::path::Path;

use tower::BoxError;

use args::Args;
use stack::Stack;
use upstream::Upstream;

const PLOT: &str = "target/storm.svg";

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let Some(args) = Args::parse(std::env::args().skip(1))? else {
        println!("{}", args::USAGE);
        return Ok(());
    };
    let upstream = Upstream::new(&args).await?;
    let jobs = job::seeded(args.seed, &upstream);
    let mut runs = Vec::new();
    for stack in Stack::ALL {
        runs.push(replay::replay(stack, &upstream, &jobs).await?);
    }
    let summaries: Vec<_> = runs.iter().map(|run| measure::Summary::of(run, &upstream)).collect();

    plot::draw(&Path::new(env!("CARGO_MANIFEST_DIR")).join(PLOT), &runs, &summaries, &upstream)?;
    if args.json {
        println!("{}", report::json(&summaries)?);
    } else {
        print!("{}", report::table(&summaries, &upstream));
        println!("\nThe three runs over time: {PLOT}");
    }
    Ok(())
}
