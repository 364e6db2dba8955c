//! Scenarios as data: a gateway, what happens to it, who calls it, and what is measured.

use serde::Deserialize;

use super::dice::Dice;

/// A model of a gateway and of its clients.
///
/// Every field is public and has a serde name, so that a scenario can be built in code or read from a file. Times are
/// seconds. See `scenarios/` of the repository for examples.
///
/// ```
/// use tower_inflight::simulator::Scenario;
///
/// let scenario: Scenario = toml::from_str(
///     r#"
///     about = "Half of the slots go away after five minutes."
///     runs_s = 600
///     measured_from_s = 300
///     gateway = { slots = 32, queue = 0 }
///     load = { kind = "closed", callers = 100 }
///     change = [{ at_s = 300, slots = 16 }]
///     "#,
/// )?;
/// assert_eq!(scenario.changes[0].slots, Some(16));
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What this scenario is for.
    pub about: String,
    /// How long it runs.
    pub runs_s: f64,
    /// Goodput, waste and times to first token are measured from here on.
    pub measured_from_s: f64,
    /// Convergence is measured from here on: 0, or the change that the scenario is about.
    #[serde(default)]
    pub converging_from_s: f64,
    /// Where limits that adapt begin: for whoever makes the controllers.
    #[serde(default = "sixteen")]
    pub initial_limit: u32,
    /// One line of the trajectory covers this much.
    #[serde(default = "ten")]
    pub step_s: f64,
    /// The gateway at the start.
    pub gateway: Gateway,
    /// What becomes different later.
    #[serde(default, rename = "change")]
    pub changes: Vec<Change>,
    /// The processes that call it, all alike.
    #[serde(default)]
    pub clients: Clients,
    /// How often each client calls.
    pub load: Load,
    /// What the calls are like.
    #[serde(default)]
    pub calls: Calls,
}

/// A model server with its front door.
///
/// ```
/// use tower_inflight::simulator::Gateway;
///
/// let refusing = Gateway { slots: 8, queue: Some(0), retry_after_s: Some(2.0), ..Gateway::default() };
/// assert_eq!(refusing.capacity(), 8);
/// ```
///
/// A call crosses the network, is refused or gets a slot (at once or after a wait in the gateway's own queue), has its
/// prompt read, and then gets one token after the other, in step with all other calls that are being decoded.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gateway {
    /// Calls that are worked on at once.
    pub slots: u32,
    /// Calls that wait inside the gateway, unseen; those beyond get a 429. `None`: without bound. 0: refuses the rest.
    pub queue: Option<u32>,
    /// How many calls in flight an oracle would allow over all clients, if it is not `slots`.
    pub capacity: Option<u32>,
    /// What a 429 says about waiting.
    pub retry_after_s: Option<f64>,
    /// After a refusal, refuses everything until the time that it named is over.
    pub enforces_retry_after: bool,
    /// A 429 for calls beyond this rate, with a burst of one second.
    pub calls_per_s: Option<f64>,
    /// On the way there; also on the way back of a refusal.
    pub network_s: f64,
    /// `prefill_s` grows by this much in an hour.
    pub creep_s_per_hour: f64,
    /// How prompts are read.
    pub prefill: Prefill,
    /// Time to first token without any prompt.
    pub prefill_s: f64,
    /// Speed of reading a prompt.
    pub prefill_tokens_per_s: f64,
    /// Share of calls of whose prompt nine tenths are in the prompt cache.
    pub cached_share: f64,
    /// Median of the hidden reasoning before the first token, log-normal; 0: none.
    pub reasoning_s: f64,
    /// Time between tokens of a call that is alone.
    pub token_s: f64,
    /// Each call of the batch adds this to the time between tokens.
    pub token_s_per_call: f64,
    /// What goes wrong at random.
    pub faults: Faults,
    /// Accepts connections and never answers.
    pub black_hole: bool,
}

/// How prompts are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prefill {
    /// Each in its own slot.
    #[default]
    Parallel,
    /// One after the other; meanwhile decoding is slower.
    Serial,
}

/// Shares of the calls to which something happens that has nothing to do with load.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// The stream falls silent.
    pub stall: f64,
    /// The connection breaks in mid-stream.
    pub reset: f64,
    /// A 500 at once.
    pub server_error: f64,
    /// A 429 for no reason.
    pub stray_429: f64,
}

/// From `at_s` on, the fields that are set replace those of the gateway.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the fields are those of the gateway")]
pub struct Change {
    /// When.
    pub at_s: f64,
    /// Again and again, this far apart.
    pub every_s: Option<f64>,
    pub slots: Option<u32>,
    pub queue: Option<u32>,
    pub capacity: Option<u32>,
    pub retry_after_s: Option<f64>,
    pub network_s: Option<f64>,
    pub prefill_s: Option<f64>,
    pub token_s: Option<f64>,
    pub faults: Option<Faults>,
    pub black_hole: Option<bool>,
}

/// The processes behind which the callers sit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Clients {
    /// How many, each with its own limiter and controller.
    pub count: u32,
    /// Slots for interactive calls only. The default is 0, so that a comparison is about the limit alone.
    pub interactive_reserve: u32,
    /// The longest wait for a slot.
    pub queue_timeout_s: f64,
    /// The longest queue.
    pub max_queue: u32,
    /// A call is sent this often at most, with growing pauses and as `Retry-After` says.
    pub attempts: u32,
    /// The longest wait for the first token.
    pub first_byte_timeout_s: f64,
    /// The longest silence after it.
    pub idle_timeout_s: f64,
    /// How the answers come.
    pub answer: Answer,
}

/// How answers come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Token by token.
    #[default]
    Stream,
    /// In one piece, at the end.
    Whole,
}

/// How often one client calls.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Load {
    /// So many callers, each of whom calls again when the answer is there and it has thought about it.
    Closed {
        /// How many.
        callers: u32,
        /// Mean of an exponential thinking time; 0: none.
        #[serde(default)]
        think_s: f64,
    },
    /// Calls come whether or not others are answered.
    Open {
        /// How many.
        calls_per_s: f64,
    },
    /// Busy and quiet times take turns.
    Bursts {
        /// While busy.
        calls_per_s: f64,
        /// While quiet.
        quiet_calls_per_s: f64,
        /// How long it is busy.
        burst_s: f64,
        /// How long it is quiet.
        quiet_s: f64,
    },
}

/// What calls are like.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Calls {
    /// Length of the prompts.
    pub prompt_tokens: Spread,
    /// Length of the answers.
    pub output_tokens: Spread,
    /// Share of interactive calls.
    pub interactive_share: f64,
    /// Share of bulk calls.
    pub bulk_share: f64,
}

/// A log-normal distribution.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Half are below.
    pub median: f64,
    /// 0: all alike; 1: a heavy tail, the mean is 1.65 medians.
    pub sigma: f64,
}

impl Scenario {
    /// Ten minutes, of which the last eight are measured; nothing changes.
    #[must_use]
    pub fn new(gateway: Gateway, load: Load) -> Self {
        Self {
            about: String::new(),
            runs_s: 600.0,
            measured_from_s: 120.0,
            converging_from_s: 0.0,
            initial_limit: sixteen(),
            step_s: ten(),
            gateway,
            changes: Vec::new(),
            clients: Clients::default(),
            load,
            calls: Calls::default(),
        }
    }
}

impl Gateway {
    /// The calls in flight that an oracle would allow, over all clients.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity.unwrap_or(self.slots)
    }
}

impl Change {
    pub(super) fn apply(&self, gateway: &mut Gateway) {
        let Self { slots, network_s, prefill_s, token_s, faults, black_hole, .. } = *self;
        gateway.slots = slots.unwrap_or(gateway.slots);
        gateway.queue = self.queue.or(gateway.queue);
        gateway.capacity = self.capacity.or(gateway.capacity);
        gateway.retry_after_s = self.retry_after_s.or(gateway.retry_after_s);
        gateway.network_s = network_s.unwrap_or(gateway.network_s);
        gateway.prefill_s = prefill_s.unwrap_or(gateway.prefill_s);
        gateway.token_s = token_s.unwrap_or(gateway.token_s);
        gateway.faults = faults.unwrap_or(gateway.faults);
        gateway.black_hole = black_hole.unwrap_or(gateway.black_hole);
    }
}

impl Spread {
    pub(super) fn throw(&self, dice: &mut Dice) -> f64 {
        self.median * dice.lognormal(self.sigma)
    }
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            slots: 32,
            queue: None,
            capacity: None,
            retry_after_s: None,
            enforces_retry_after: false,
            calls_per_s: None,
            network_s: 0.05,
            creep_s_per_hour: 0.0,
            prefill: Prefill::Parallel,
            prefill_s: 0.2,
            prefill_tokens_per_s: 6_000.0,
            cached_share: 0.0,
            reasoning_s: 0.0,
            token_s: 0.02,
            token_s_per_call: 0.0,
            faults: Faults::default(),
            black_hole: false,
        }
    }
}

impl Default for Clients {
    fn default() -> Self {
        Self {
            count: 1,
            interactive_reserve: 0,
            queue_timeout_s: 300.0,
            max_queue: 1_000,
            attempts: 3,
            first_byte_timeout_s: 120.0,
            idle_timeout_s: 30.0,
            answer: Answer::Stream,
        }
    }
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            prompt_tokens: Spread { median: 1_000.0, sigma: 1.2 },
            output_tokens: Spread { median: 200.0, sigma: 1.0 },
            interactive_share: 0.1,
            bulk_share: 0.5,
        }
    }
}

fn ten() -> f64 {
    10.0
}

fn sixteen() -> u32 {
    16
}
