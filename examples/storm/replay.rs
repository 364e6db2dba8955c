//! One run: every job at its time, watched from beside.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tower::BoxError;

use crate::client::{self, Backoff};
use crate::job::Job;
use crate::record::{JobRecord, Recorder, Run};
use crate::stack::Stack;
use crate::support::{ChatRequest, GatewayStats, HttpRequest};
use crate::upstream::{Endpoint, Upstream};

pub(crate) async fn replay(stack: Stack, upstream: &Upstream, jobs: &[Job]) -> Result<Run, BoxError> {
    let endpoint = upstream.open().await;
    let recorder = Recorder::start();
    let mut callers = set_off(stack, upstream, &endpoint, &recorder, jobs)?;
    let mut progress = Progress { stack, jobs: jobs.len(), shown_at: None };
    let mut records = Vec::new();
    let mut samples = Vec::new();
    let mut tick = interval(upstream.service / 8);
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            record = callers.join_next() => match record {
                Some(record) => records.push(record?),
                None => break,
            },
            _ = tick.tick() => {
                let stats = endpoint.stats();
                samples.push(recorder.sample(&stats));
                progress.show(&recorder, &stats);
            }
        }
    }
    let stats = endpoint.stats();
    progress.end(&recorder, &stats);
    Ok(Run {
        stack,
        jobs: records,
        samples,
        failed_attempts: recorder.failed_attempts(),
        upstream_calls: endpoint.wire.calls(),
        stats,
    })
}

fn set_off(
    stack: Stack,
    upstream: &Upstream,
    endpoint: &Endpoint,
    recorder: &Recorder,
    jobs: &[Job],
) -> Result<JoinSet<JobRecord>, BoxError> {
    let client = stack.client(upstream, endpoint, recorder)?;
    let backoff = Backoff(upstream.service);
    let start = Instant::now();
    let mut callers = JoinSet::new();
    for job in jobs {
        let (job, client, recorder) = (job.clone(), client.clone(), recorder.clone());
        let call = request(endpoint, &job);
        callers.spawn(async move {
            sleep_until(start + job.at).await;
            client::run(job, call, client, backoff, recorder).await
        });
    }
    Ok(callers)
}

fn request(endpoint: &Endpoint, job: &Job) -> HttpRequest {
    let prompt = format!("You are {}. Write a few words.", job.tenant);
    ChatRequest { model: &endpoint.model, prompt: &prompt, max_tokens: job.tokens }.to(&endpoint.url)
}

/// One line that is written over on a terminal, a line per second elsewhere.
struct Progress {
    stack: Stack,
    jobs: usize,
    shown_at: Option<Duration>,
}

impl Progress {
    fn show(&mut self, recorder: &Recorder, stats: &GatewayStats) {
        let pause = Duration::from_millis(if stderr().is_terminal() { 100 } else { 1_000 });
        let now = recorder.now();
        if self.shown_at.is_none_or(|shown_at| now >= shown_at + pause) {
            self.shown_at = Some(now);
            self.write(recorder, stats);
        }
    }

    fn end(&self, recorder: &Recorder, stats: &GatewayStats) {
        self.write(recorder, stats);
        if stderr().is_terminal() {
            eprintln!();
        }
    }

    fn write(&self, recorder: &Recorder, stats: &GatewayStats) {
        let (start, end) = if stderr().is_terminal() { ("\r", "") } else { ("", "\n") };
        let line = format!(
            "{start}{:<16} {:5.1} s  finished {:3} of {}  given up {:3}  open upstream {:3}  failed attempts {:4}{end}",
            self.stack.title(),
            recorder.now().as_secs_f64(),
            recorder.finished(),
            self.jobs,
            recorder.failed(),
            stats.open,
            recorder.failed_attempts().len(),
        );
        // A closed stderr is no reason to stop.
        let _ = stderr().write_all(line.as_bytes());
    }
}
