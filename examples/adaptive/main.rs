//! A limit that finds the capacity of its upstream, in real time.
//!
//! ```text
//! cargo run --release --example adaptive
//! cargo run --release --example adaptive -- --upstream http://127.0.0.1:8089/v1 --model gemma-3-270m
//! cargo run --release --example adaptive -- --upstream URL --model NAME --limits 1,2,4,8,16,adaptive:1,adaptive:16 \
//!     --json --plot target/adaptive.svg
//! ```
//!
//! So many callers, each of which calls again as soon as it has its answer, keep the lane full. Without `--upstream` they
//! meet the embedded gateway: it serves eight calls at a time and lets the others wait inside, first come first served,
//! so that nothing but the time to the first token tells of its capacity. Each limit has a run of its own: a number is
//! fixed, `adaptive:N` begins at N. Figures are of the second half of a run; `--plot` draws them over the limits.

// Examples measure, so they read the clock.
#![allow(clippy::disallowed_methods)]

mod args;
mod load;
mod plot;
mod record;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use tower::BoxError;
use tower_inflight::{Limiter, LimiterBuilder};

use args::{Args, Start};
use load::Load;
use record::Figures;
use support::{Gateway, GatewayConfig};

/// Long enough that a wait inside the gateway stands out from what the network adds.
const GATEWAY_SLOTS: usize = 8;
const FIRST_TOKEN: Duration = Duration::from_millis(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let args = Args::parse(std::env::args().skip(1))?;
    let mut rows = Vec::new();
    for start in &args.limits {
        // A new one for every run, so that none inherits what another left behind.
        let gateway = match &args.upstream {
            Some(_) => None,
            None => Some(Gateway::start(gateway_config()).await),
        };
        let url = args.upstream.clone().or_else(|| gateway.as_ref().map(|gateway| gateway.url().to_owned()));
        let load = Load {
            url: url.unwrap_or_default(),
            model: args.model.clone(),
            key: format!("{}-{start}", args.key),
            tokens: args.tokens,
            callers: args.callers,
        };
        let limiter = limiter(*start).max_queue(args.callers).queue_timeout(args.runs_for * 2).build()?;
        let figures = load.run(&limiter, args.runs_for, |tick| {
            if !args.is_json {
                println!("{:>12}  {tick}", start.to_string());
            }
        });
        rows.push((*start, figures.await?));
    }
    if args.is_json {
        println!("{:#}", Figures::to_json(&rows));
    } else {
        print!("{}", Figures::table(&rows));
    }
    if let Some(path) = &args.plot {
        plot::draw(path, &rows)?;
    }
    Ok(())
}

fn limiter(start: Start) -> LimiterBuilder {
    let limiter = Limiter::builder().interactive_reserve(0);
    match start {
        Start::Fixed(slots) => limiter.max_inflight(slots),
        Start::Adaptive(config) => limiter.limit(tower_inflight::Limit::Adaptive(config.into())),
    }
}

fn gateway_config() -> GatewayConfig {
    GatewayConfig { slots: GATEWAY_SLOTS, time_to_first_token: FIRST_TOKEN, ..GatewayConfig::default() }
}
