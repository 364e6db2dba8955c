//! A caller: an SDK with its retries, inside a loop that opens the stream anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::{Sleep, sleep};
use tower::retry::Policy;
use tower::{BoxError, ServiceExt};
use tower_inflight::Rejected;

use crate::job::Job;
use crate::record::{AnswerTimes, JobRecord, Recorder};
use crate::stack::Client;
use crate::support::{Answer, Dice, HttpRequest};

/// As in the incident: three attempts of the SDK for each of three connects.
const ATTEMPTS: u32 = 3;
const CONNECTS: u32 = 3;

/// Travels with a request, through all its attempts.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    attempts: Arc<AtomicU32>,
    seed: u64,
}

impl Ticket {
    pub(crate) fn sent(&self) {
        self.attempts.fetch_add(1, Relaxed);
    }
}

/// Sees one job through to a whole answer or to its last failure.
pub(crate) async fn run(
    job: Job,
    mut call: HttpRequest,
    client: Client,
    backoff: Backoff,
    recorder: Recorder,
) -> JobRecord {
    let ticket = Ticket { attempts: Arc::default(), seed: job.seed };
    call.extensions_mut().insert(ticket.clone());
    // Made when the job arrives and cloned with the request: it keeps its place by age over all attempts and connects.
    call.extensions_mut().insert(tower_inflight::Call::new(job.priority).with_tenant(job.tenant));
    let arrived_at = recorder.now();
    let mut answer = None;
    for connect in 0..CONNECTS {
        if connect > 0 {
            sleep(backoff.before_connect(connect, job.seed)).await;
        }
        answer = stream(&job, call.clone(), client.clone(), &recorder).await.ok();
        if answer.is_some() {
            break;
        }
    }
    recorder.job_ended(answer.is_some());
    let attempts = ticket.attempts.load(Relaxed);
    JobRecord { priority: job.priority, arrived_at, ended_at: recorder.now(), attempts, answer }
}

async fn stream(job: &Job, call: HttpRequest, client: Client, recorder: &Recorder) -> Result<AnswerTimes, BoxError> {
    let mut waiting = Some(recorder.waiting(job.priority));
    let response = client.oneshot(call).await?;
    if !response.status().is_success() {
        return Err(format!("the upstream said {}", response.status()).into());
    }
    let head_at = recorder.now();
    let mut answer = Answer::new(response.into_body());
    let mut first_token_at = None;
    let mut tokens = 0;
    while answer.next().await?.is_some() {
        waiting = None;
        first_token_at.get_or_insert_with(|| recorder.now());
        tokens += 1;
    }
    drop(waiting);
    let ended_at = recorder.now();
    Ok(AnswerTimes { head_at, first_token_at: first_token_at.unwrap_or(ended_at), tokens })
}

/// Exponential, with jitter, in proportion to the service time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff(pub(crate) Duration);

impl Backoff {
    fn before_attempt(self, attempt: u32, seed: u64) -> Duration {
        jittered(self.0.mul_f64(0.1) * 2_u32.pow(attempt - 1), seed.wrapping_add(attempt.into()))
    }

    fn before_connect(self, connect: u32, seed: u64) -> Duration {
        jittered(self.0.mul_f64(0.5) * 2_u32.pow(connect - 1), seed.wrapping_sub(connect.into()))
    }
}

fn jittered(wait: Duration, seed: u64) -> Duration {
    wait.mul_f64(f64::from(Dice(seed).between(50, 150)) / 100.0)
}

/// What an SDK does when an attempt fails.
#[derive(Clone, Debug)]
pub(crate) struct SdkRetry {
    backoff: Backoff,
    made: u32,
}

impl SdkRetry {
    pub(crate) const fn new(backoff: Backoff) -> Self {
        Self { backoff, made: 1 }
    }
}

impl<B> Policy<HttpRequest, http::Response<B>, BoxError> for SdkRetry {
    type Future = Sleep;

    fn retry(&mut self, call: &mut HttpRequest, result: &mut Result<http::Response<B>, BoxError>) -> Option<Sleep> {
        let may_be_better_later = match result {
            Ok(response) => response.status().is_server_error() || response.status().as_u16() == 429,
            // A refusal of the limiter is our own: to come back at once would only put the call at the end of the line.
            Err(error) => Rejected::find(&**error).is_none(),
        };
        if !may_be_better_later || self.made == ATTEMPTS {
            return None;
        }
        let seed = call.extensions().get::<Ticket>().map_or(0, |ticket| ticket.seed);
        let wait = self.backoff.before_attempt(self.made, seed);
        self.made += 1;
        Some(sleep(wait))
    }

    fn clone_request(&mut self, call: &HttpRequest) -> Option<HttpRequest> {
        Some(call.clone())
    }
}
