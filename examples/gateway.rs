//! The embedded gateway on its own, to put other software in front of it.
//!
//! ```text
//! cargo run --release --example gateway -- 8 2
//! ```
//!
//! serves eight calls at a time, each at two tokens per second, prints its URL and ends with the input or Ctrl-C.

#[path = "support/mod.rs"]
mod support;

use support::{Gateway, GatewayConfig};
use tower::BoxError;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut words = std::env::args().skip(1);
    let default = GatewayConfig::default();
    let slots = words.next().map_or(Ok(default.slots), |word| word.parse())?;
    let tokens_per_second = words.next().map_or(Ok(default.tokens_per_second), |word| word.parse())?;
    let gateway = Gateway::start(GatewayConfig { slots, tokens_per_second, ..default }).await;
    println!("{}", gateway.url());
    tokio::task::spawn_blocking(|| std::io::stdin().lines().for_each(drop)).await?;
    Ok(())
}
