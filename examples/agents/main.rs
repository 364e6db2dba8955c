//! An agent server that answers a burst of runs with places in line instead of refusals, and what lending does for it.
//!
//! There is a local model that computes one call at a time, and a cloud model with many slots, both in this process. Forty
//! runs of two tenants come at once, half of them for each model. All of them need a run slot; the local ones would keep
//! every slot busy with waiting, were it not lent. With routing, a local run whose model is busy when it starts goes to the
//! cloud instead.
//!
//! `cargo run --release --example agents` prints how long the runs for each model waited. With `-- --page` it serves the
//! page instead, at the address that it prints, with new runs coming in all the time.

#[path = "../support/mod.rs"]
mod support;

mod agent;
mod driver;
mod models;
mod server;

use std::time::Duration;

use agent::Lending;
use driver::{Burst, Waits};
use models::Model;
use server::Server;
use tower::BoxError;
use tower_inflight::Routing;

const OFF: Routing = Routing::FirstCandidate;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    if std::env::args().any(|arg| arg == "--page") {
        return page().await;
    }
    println!("20 runs for a local model with one slot, 20 for a cloud model with many, 8 run slots\n");
    println!("{:34} {:>15} {:>15} {:>10}", "", "cloud runs wait", "local runs wait", "all done");
    let all = Burst { local: 20, cloud: 20 };
    row("idle: the cloud runs alone", Lending::Off, OFF, Burst { local: 0, ..all }).await?;
    row("all runs, no lending", Lending::Off, OFF, all).await?;
    row("all runs, lending", Lending::On, OFF, all).await?;
    row("all runs, lending and routing", Lending::On, Routing::QueueAware, all).await?;
    println!("\nwait: from the start of a run until it has its slot, and for lanes after that; median / longest");
    Ok(())
}

async fn row(name: &str, lending: Lending, routing: Routing, burst: Burst) -> Result<(), BoxError> {
    let server = Server::start(lending, routing).await?;
    let outcome = driver::run(&server, burst).await?;
    let [cloud, local] = [Model::Cloud, Model::Local].map(|model| shown(&outcome.waits(model)));
    println!("{name:34} {cloud:>15} {local:>15} {:>8.1} s", outcome.took.as_secs_f64());
    server.stop().await;
    Ok(())
}

fn shown(waits: &Waits) -> String {
    match (waits.median(), waits.longest()) {
        (Some(median), Some(longest)) => format!("{:.1} / {:.1} s", median.as_secs_f64(), longest.as_secs_f64()),
        _ => "-".to_owned(),
    }
}

async fn page() -> Result<(), BoxError> {
    let server = Server::start(Lending::On, OFF).await?;
    println!("{}/", server.url());
    loop {
        driver::run(&server, Burst { local: 12, cloud: 60 }).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
