//! A slow Tuesday: a model that slows down without an error, then stalls in mid-answer, then is well again, and one
//! limiter with everything on that it has.
//!
//! ```text
//! cargo run --release --example slow_tuesday
//! cargo run --release --example slow_tuesday -- --json
//! ```
//!
//! 25 calls a second, a fifth of them interactive and three fifths bulk, each with a prompt of 3,000 tokens and an answer
//! of 400 for which it reserves 1,000, meet a quota of 8 million tokens a minute. The time to first token rises from 0.7 s
//! to 4 s; then three streams in ten fall silent half way; then all is well. The gateway is a real server on the loopback,
//! see `support/gateway.rs`. A minute takes three seconds here, and one call stands for five; what is printed is in the
//! minutes, seconds and tokens of the real day, and counts of calls are as they are here. See `scale.rs`.
//!
//! ```text
//! CallLayer -> retry -> whole answer -> InflightLimit -> hyper
//! ```
//!
//! The retry is around the reading of the answer, so that a stream that breaks off counts as a failed attempt. A caller
//! whose call was refused comes back later; one whose call was sent and failed, retries included, has failed.
//!
//! What to look at: the queue is in here and nobody times out in it but bulk work, which said that it would rather come
//! back. The limit follows the latency target down, long before an error. The breaker opens on the stalls, tries again
//! with four real calls, and closes once they succeed. The example ends with what it expects of all that, and with a
//! failure if it is not so.

// Examples measure, so they read the clock.
#![allow(clippy::disallowed_methods)]

mod caller;
mod day;
mod expect;
mod load;
mod measure;
mod plan;
mod plot;
mod record;
mod scale;
mod stack;
#[path = "../support/mod.rs"]
mod support;
mod timeline;

use std::path::Path;
use std::process::ExitCode;

use tower::BoxError;

use measure::Summary;

const PLOT: &str = "target/slow_tuesday.svg";
const USAGE: &str = "\
usage: slow_tuesday [--json]

  --json  print one JSON object instead of the timeline";

#[tokio::main]
async fn main() -> Result<ExitCode, BoxError> {
    let is_json = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--json") => true,
        Some(_) => {
            println!("{USAGE}");
            return Ok(ExitCode::FAILURE);
        }
    };
    if !is_json {
        println!("{}", timeline::HEAD);
    }
    let day = day::live_through(|minute| {
        if !is_json {
            println!("{}", timeline::line(minute));
        }
    })
    .await?;
    let summary = Summary::of(&day);
    let expectations = expect::all(&summary);

    plot::draw(&Path::new(env!("CARGO_MANIFEST_DIR")).join(PLOT), &day)?;
    if is_json {
        println!("{}", serde_json::to_string(&expect::Report { summary: &summary, expectations: &expectations })?);
    } else {
        print!("{}", expect::text(&expectations));
        println!("\nThe day over time: {PLOT}");
    }
    let all_hold = expectations.iter().all(|expectation| expectation.holds);
    Ok(if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
