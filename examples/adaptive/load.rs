//! Callers that keep a lane full.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::{Either, join_all, select};
use http::{StatusCode, header};
use http_body_util::Full;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use tower::{BoxError, ServiceBuilder, ServiceExt};
use tower_inflight::{Admitted, InflightLimit, InflightLimitLayer, Limiter};

use crate::record::{Figures, Record, Tick};
use crate::support::{Answer, ChatRequest};

type LimitedClient = InflightLimit<Client<HttpConnector, Full<Bytes>>>;

const TICK: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) url: String,
    pub(crate) model: String,
    pub(crate) key: String,
    pub(crate) tokens: u32,
    pub(crate) callers: u32,
}

impl Load {
    pub(crate) async fn run(
        &self,
        limiter: &Limiter,
        runs_for: Duration,
        mut on_tick: impl FnMut(Tick),
    ) -> Result<Figures, BoxError> {
        // Servers close idle connections when they like, also under a request: here that would only disturb the figures.
        let connections = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
        let client = ServiceBuilder::new().layer(InflightLimitLayer::new(limiter.clone())).service(connections);
        let record = Rc::new(RefCell::new(Record::new(Instant::now())));
        let callers = join_all((0..self.callers).map(|caller| self.call_again_and_again(&client, caller, &record)));
        let watching = async {
            let mut ticks = tokio::time::interval(TICK);
            for _ in 0..=runs_for.as_secs() {
                ticks.tick().await;
                let lane = limiter.snapshot().lanes.into_iter().next();
                on_tick(record.borrow_mut().tick(lane));
            }
        };
        match select(Box::pin(callers), Box::pin(watching)).await {
            Either::Left((ended, _)) => {
                ended.into_iter().collect::<Result<(), _>>()?;
                Err("the callers stopped".into())
            }
            Either::Right(((), _)) => Ok(record.borrow().figures(runs_for)),
        }
    }

    async fn call_again_and_again(
        &self,
        client: &LimitedClient,
        caller: u32,
        record: &RefCell<Record>,
    ) -> Result<(), BoxError> {
        for n in 0.. {
            let prompt = format!("Caller {caller}, question {n}: count slowly.");
            let max_tokens = self.length(caller + 7 * n);
            let mut request = ChatRequest { model: &self.model, prompt: &prompt, max_tokens }.to(&self.url);
            request.headers_mut().insert(header::AUTHORIZATION, format!("Bearer {}", self.key).parse()?);
            self.call(client, request, record).await?;
        }
        Ok(())
    }

    /// From half to one and a half times `tokens`. Answers of one length would march in step, which flatters a limit that is as
    /// large as the upstream's batch.
    fn length(&self, n: u32) -> u32 {
        self.tokens / 2 + n.wrapping_mul(0x9E37_79B9) % (self.tokens + 1)
    }

    async fn call(
        &self,
        client: &LimitedClient,
        request: http::Request<Full<Bytes>>,
        record: &RefCell<Record>,
    ) -> Result<(), BoxError> {
        let asked_at = Instant::now();
        let response = client.clone().oneshot(request).await?;
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            record.borrow_mut().refused();
            return Ok(());
        }
        let waited = response.extensions().get::<Admitted>().map(Admitted::waited).unwrap_or_default();
        if !response.status().is_success() {
            return Err(format!("the upstream answers {}", response.status()).into());
        }
        let sent_at = asked_at + waited;
        let mut answer = Answer::new(response.into_body());
        let mut is_first = true;
        while answer.next().await?.is_some() {
            if std::mem::take(&mut is_first) {
                record.borrow_mut().first_token(sent_at.elapsed());
            }
            record.borrow_mut().token();
        }
        Ok(())
    }
}
