//! Lives through the day once.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tower::BoxError;

use crate::caller::{self, JobRecord};
use crate::load::{self, Job, PROMPT_TOKENS, RESERVED_TOKENS};
use crate::plan;
use crate::record::{Recorder, Sample, Took, Turn};
use crate::scale::{MINUTE, to_minutes};
use crate::stack::{self, Client};
use crate::support::{ChatRequest, Gateway, HttpRequest, Wire};

const SAMPLES_PER_MINUTE: u32 = 30;

#[derive(Debug)]
pub(crate) struct Day {
    pub(crate) offered: usize,
    /// Of those that ended.
    pub(crate) jobs: Vec<JobRecord>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) waits: Vec<Took>,
    pub(crate) first_tokens: Vec<Took>,
    pub(crate) turns: Vec<Turn>,
    /// Calls that the gateway saw, and that were open at most on our side.
    pub(crate) gateway_calls: usize,
    pub(crate) peak_open: usize,
}

/// A minute that is over.
#[derive(Debug)]
pub(crate) struct Minute {
    /// Which, from 0.
    pub(crate) n: u32,
    pub(crate) begin: Sample,
    pub(crate) end: Sample,
    pub(crate) first_tokens: Vec<Took>,
}

pub(crate) async fn live_through(mut on_minute: impl FnMut(&Minute)) -> Result<Day, BoxError> {
    let gateway = Gateway::start(plan::gateway()).await;
    let (wire, recorder) = (Wire::default(), Recorder::start());
    let limiter = stack::limiter(&recorder)?;
    let jobs = load::jobs();
    let mut callers = set_off(&jobs, &gateway, &stack::client(limiter.clone(), &wire, &recorder));

    let mut records = Vec::new();
    let mut samples: Vec<Sample> = Vec::new();
    let mut minute: Option<(u32, Sample)> = None;
    let mut tick = interval(MINUTE / SAMPLES_PER_MINUTE);
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    while recorder.now() < plan::ends_after() {
        tokio::select! {
            record = callers.join_next() => match record {
                Some(record) => records.push(record?),
                None => break,
            },
            _ = tick.tick() => {
                gateway.change(|config| plan::behave(config, to_minutes(recorder.now())));
                let snapshot = limiter.snapshot();
                let Some(lane) = snapshot.lanes.first() else { continue };
                let sample = recorder.sample(lane);
                let (n, begin) = minute.get_or_insert_with(|| (0, sample.clone()));
                if sample.at >= MINUTE * (*n + 1) {
                    on_minute(&over(*n, begin, &sample, &recorder));
                    (*n, *begin) = (*n + 1, sample.clone());
                }
                samples.push(sample);
            }
        }
    }
    if let (Some((n, begin)), Some(end)) = (minute, samples.last()) {
        on_minute(&over(n, &begin, end, &recorder));
    }
    Ok(Day {
        offered: jobs.len(),
        jobs: records,
        samples,
        waits: recorder.waits(),
        first_tokens: recorder.first_tokens(),
        turns: recorder.turns(),
        gateway_calls: gateway.stats().calls,
        peak_open: wire.peak_open(),
    })
}

fn over(n: u32, begin: &Sample, end: &Sample, recorder: &Recorder) -> Minute {
    let mut first_tokens = recorder.first_tokens();
    first_tokens.retain(|took| (begin.at..end.at).contains(&took.at));
    Minute { n, begin: begin.clone(), end: end.clone(), first_tokens }
}

fn set_off(jobs: &[Job], gateway: &Gateway, client: &Client) -> JoinSet<JobRecord> {
    let request = request(gateway.url());
    let start = Instant::now() + Duration::from_millis(50);
    let mut callers = JoinSet::new();
    for job in jobs {
        let (job, request, client) = (job.clone(), request.clone(), client.clone());
        callers.spawn(async move {
            sleep_until(start + job.at).await;
            caller::run(job, request, client).await
        });
    }
    callers
}

/// All of them ask the same: the body is shared, and a quarter of its bytes is what it counts as.
fn request(url: &str) -> HttpRequest {
    let prompt = "Why? ".repeat(PROMPT_TOKENS as usize * 4 / 5);
    ChatRequest { model: "acme/smart", prompt: &prompt, max_tokens: RESERVED_TOKENS }.to(url)
}
