//! Tries a controller on a model of a gateway: deterministic, in virtual time, without sleeping.
//!
//! The clients' side is the real engine of this crate: classes, queue, aging, reserve and timeouts are what they are in
//! production. The gateway is modelled: continuous batching, its own queue, refusals, faults, changes of capacity.
//!
//! ```text
//!  load ──▶ station: engine + controller ──▶ network ──▶ gateway: refuse · line · prefill · decode
//!             ▲                                                          │
//!             └───────────── first token, end, refusal, fault ◀──────────┘
//! ```
//!
//! # Example
//!
//! ```
//! use tower_inflight::simulator::{Gateway, Load, Oracle, Scenario};
//!
//! let gateway = Gateway { slots: 4, queue: Some(0), ..Gateway::default() };
//! let scenario = Scenario::new(gateway, Load::Closed { callers: 40, think_s: 0.0 });
//!
//! let run = scenario.run(1, |_client| Box::new(Oracle::new(&scenario)))?;
//! assert_eq!(run.wasted_calls(), 0);
//! assert!(run.goodput() > 100.0, "tokens per second: {}", run.goodput());
//! # Ok::<(), tower_inflight::simulator::InvalidScenario>(())
//! ```
//!
//! # What is random
//! Lengths, classes, faults and gaps are thrown from the seed, per call and purpose, so that two controllers meet the same
//! calls. The same seed gives the same run, to the last digit, on the same kind of machine.

mod agenda;
mod call;
mod check;
mod dice;
mod gateway;
mod oracle;
mod run;
mod scenario;
mod simulation;
mod station;
#[cfg(test)]
mod tests;

pub use self::check::InvalidScenario;
pub use self::oracle::Oracle;
pub use self::run::{Run, Step};
pub use self::scenario::{Answer, Calls, Change, Clients, Faults, Gateway, Load, Prefill, Scenario, Spread};

use self::simulation::Simulation;
use crate::engine::controller::Controller;

impl Scenario {
    /// Runs it once. `controller` makes the controller of each client, by number.
    ///
    /// # Errors
    /// When a field is out of its range.
    pub fn run(
        &self,
        seed: u64,
        mut controller: impl FnMut(u32) -> Box<dyn Controller>,
    ) -> Result<Run, InvalidScenario> {
        check::check(self)?;
        let controllers = (0..self.clients.count).map(&mut controller).collect();
        Ok(Simulation::new(self, seed, controllers).run())
    }
}
