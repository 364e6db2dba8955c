//! What the storm is sent to: the embedded gateway, or a real server.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tower::{BoxError, ServiceExt};

use crate::args::{Args, Real};
use crate::support::{Answer, ChatRequest, Gateway, GatewayConfig, GatewayStats, Wire, http_client};

/// How long the embedded gateway works on for a client that has left, in service times: a minute in the incident.
const LINGER: u32 = 2;

/// The upstream's nature, known before the storm. Times of the load and of its clients are multiples of `service`.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// Calls it serves at a time; the limit of the two limited runs.
    pub(crate) slots: usize,
    /// How long a typical call takes once it is being served.
    pub(crate) service: Duration,
    /// Tokens of a typical answer.
    pub(crate) tokens: u32,
    /// Tokens per second with every slot busy.
    pub(crate) capacity: f64,
    real: Option<Real>,
}

impl Upstream {
    pub(crate) async fn new(args: &Args) -> Result<Self, BoxError> {
        match &args.real {
            None => Ok(Self::embedded()),
            Some(real) => Self::measured(real.clone()).await,
        }
    }

    fn embedded() -> Self {
        let config = gateway_config(Duration::ZERO);
        let (slots, tokens) = (config.slots, config.tokens_per_answer);
        let service = config.service_time(tokens);
        let capacity = slots as f64 * f64::from(tokens) / service.as_secs_f64();
        Self { slots, service, tokens, capacity, real: None }
    }

    /// One call per slot to warm up, then four in a row on every slot: what the server does when it is just full.
    async fn measured(real: Real) -> Result<Self, BoxError> {
        let tokens = 32;
        let slots = real.slots;
        let mut upstream = Self { slots, service: Duration::ZERO, tokens, capacity: 0.0, real: Some(real) };
        let endpoint = upstream.open().await;
        answers_in_a_row(&endpoint, slots, 1, tokens).await?;
        let begun_at = Instant::now();
        let made = answers_in_a_row(&endpoint, slots, 4, tokens).await?;
        let spent = begun_at.elapsed();
        upstream.service = spent / 4;
        upstream.capacity = made as f64 / spent.as_secs_f64();
        Ok(upstream)
    }

    pub(crate) fn is_real(&self) -> bool {
        self.real.is_some()
    }

    /// A new gateway for every run, so that no run inherits the work that another one left behind.
    pub(crate) async fn open(&self) -> Endpoint {
        match &self.real {
            None => {
                let gateway = Gateway::start(gateway_config(self.service * LINGER)).await;
                let (url, model) = (gateway.url().to_owned(), "acme/smart".to_owned());
                Endpoint { url, model, wire: Wire::default(), gateway: Some(gateway) }
            }
            Some(Real { url, model, .. }) => {
                Endpoint { url: url.clone(), model: model.clone(), wire: Wire::default(), gateway: None }
            }
        }
    }
}

fn gateway_config(linger: Duration) -> GatewayConfig {
    GatewayConfig {
        slots: 8,
        time_to_first_token: Duration::from_millis(40),
        tokens_per_second: 200.0,
        tokens_per_answer: 33,
        linger,
        ..GatewayConfig::default()
    }
}

/// The tokens of all of them.
async fn answers_in_a_row(endpoint: &Endpoint, slots: usize, calls: usize, tokens: u32) -> Result<usize, BoxError> {
    let on_one_slot = async |slot: usize| {
        let mut made = 0;
        for n in 0..calls {
            let prompt = format!("Count from {slot} to {n}.");
            let request = ChatRequest { model: &endpoint.model, prompt: &prompt, max_tokens: tokens };
            let response = http_client(&endpoint.wire).oneshot(request.to(&endpoint.url)).await?;
            let mut answer = Answer::new(response.into_body());
            while answer.next().await?.is_some() {
                made += 1;
            }
        }
        Ok::<_, BoxError>(made)
    };
    Ok(try_join_all((0..slots).map(on_one_slot)).await?.into_iter().sum())
}

/// The upstream during one run.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) url: String,
    pub(crate) model: String,
    pub(crate) wire: Wire,
    gateway: Option<Gateway>,
}

impl Endpoint {
    /// As the gateway sees it. A real server does not tell, so there it is what the clients have open.
    pub(crate) fn stats(&self) -> GatewayStats {
        match &self.gateway {
            Some(gateway) => gateway.stats(),
            None => GatewayStats { open: self.wire.open(), peak_open: self.wire.peak_open(), ..Default::default() },
        }
    }
}
