//! A caller: sees one job through, and comes back when it was refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::{Sleep, sleep};
use tower::retry::Policy;
use tower::{BoxError, ServiceExt};
use tower_inflight::{Priority, RejectKind, Rejected, Scope};

use crate::load::Job;
use crate::scale::seconds;
use crate::stack::Client;
use crate::support::{Dice, HttpRequest};

const ATTEMPTS: u32 = 3;
/// Before a retry, in seconds of the day.
const BACKOFF_S: f64 = 1.0;
/// How long bulk work waits in line before it would rather come back.
const BULK_DEADLINE_S: f64 = 45.0;

/// Travels with a request, through all its attempts: how many of them were sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ticket(Arc<AtomicU32>);

impl Ticket {
    /// Which attempt this is, from 1.
    pub(crate) fn sent(&self) -> u32 {
        self.0.fetch_add(1, Relaxed) + 1
    }

    fn was_sent(&self) -> bool {
        self.0.load(Relaxed) > 0
    }
}

/// What became of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobRecord {
    pub(crate) is_finished: bool,
    /// It was refused for its deadline at least once.
    pub(crate) was_past_deadline: bool,
}

pub(crate) async fn run(job: Job, mut request: HttpRequest, client: Client) -> JobRecord {
    let ticket = Ticket::default();
    request.extensions_mut().insert(ticket.clone());
    let mut dice = Dice(job.seed);
    let mut was_past_deadline = false;
    loop {
        let ended = scope(&job).run(client.clone().oneshot(request.clone())).await;
        let refused = ended.as_ref().err().filter(|_| !ticket.was_sent()).and_then(|error| Rejected::find(&**error));
        let Some(refused) = refused else {
            return JobRecord { is_finished: ended.is_ok(), was_past_deadline };
        };
        was_past_deadline |= refused.kind() == RejectKind::Deadline;
        let told = refused.retry_after().unwrap_or_default();
        sleep((told + patience(job.class)).mul_f64(f64::from(dice.between(75, 125)) / 100.0)).await;
    }
}

fn scope(job: &Job) -> Scope {
    let scope = Scope::new().with_priority(job.class).with_tenant(job.tenant);
    match job.class {
        Priority::Bulk => scope.with_timeout(seconds(BULK_DEADLINE_S)),
        _ => scope,
    }
}

/// How long a caller that was refused stays away, beyond what it was told.
fn patience(class: Priority) -> Duration {
    seconds(match class {
        Priority::Interactive => 2.0,
        Priority::Default => 10.0,
        Priority::Bulk => 60.0,
    })
}

/// Tries again what was sent and failed.
#[derive(Clone, Debug)]
pub(crate) struct Retry {
    made: u32,
}

impl Retry {
    pub(crate) const fn new() -> Self {
        Self { made: 1 }
    }
}

impl Policy<HttpRequest, (), BoxError> for Retry {
    type Future = Sleep;

    fn retry(&mut self, _: &mut HttpRequest, result: &mut Result<(), BoxError>) -> Option<Sleep> {
        let error = result.as_ref().err()?;
        if Rejected::find(&**error).is_some() || self.made == ATTEMPTS {
            return None;
        }
        let wait = seconds(BACKOFF_S) * 2_u32.pow(self.made - 1);
        self.made += 1;
        Some(sleep(wait))
    }

    fn clone_request(&mut self, request: &HttpRequest) -> Option<HttpRequest> {
        Some(request.clone())
    }
}
