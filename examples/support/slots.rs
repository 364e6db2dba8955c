//! The working part of the gateway: its slots, the line in front of them, and what was useful of the work.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until};

use super::gateway::{GatewayConfig, Head, Refusal};

const WORDS: [&str; 8] = ["one ", "call ", "after ", "another ", "and ", "nobody ", "times ", "out; "];

/// What the gateway has seen so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GatewayStats {
    /// Calls that arrived and are not over for the gateway, waiting ones included.
    pub(crate) open: usize,
    pub(crate) peak_open: usize,
    /// Of the open ones: calls whose client has left, which the gateway has not noticed yet.
    pub(crate) abandoned: usize,
    /// All calls that arrived, refused ones included.
    pub(crate) calls: usize,
    /// Tokens of answers that reached their client whole.
    pub(crate) useful_tokens: u64,
    /// Tokens made for clients that did not stay to the end.
    pub(crate) wasted_tokens: u64,
    /// Slot time spent on answers that are over, useful or not.
    pub(crate) busy: Duration,
}

/// What happens to a call, one by one.
#[derive(Debug)]
pub(super) enum Step {
    /// This is when the response head leaves.
    Started,
    Tokens(String),
    Done {
        prompt: u32,
        tokens: u32,
    },
}

#[derive(Debug)]
pub(super) struct Slots {
    config: Mutex<GatewayConfig>,
    /// Tokio's semaphore serves in the order of arrival.
    line: Semaphore,
    /// Answers that were begun.
    served: AtomicUsize,
    open: Gauge,
    abandoned: Gauge,
    ledger: Mutex<GatewayStats>,
}

impl Slots {
    pub(super) fn new(config: GatewayConfig) -> Self {
        Self {
            line: Semaphore::new(config.slots),
            config: Mutex::new(config),
            served: AtomicUsize::new(0),
            open: Gauge::default(),
            abandoned: Gauge::default(),
            ledger: Mutex::default(),
        }
    }

    pub(super) fn stats(&self) -> GatewayStats {
        GatewayStats {
            open: self.open.now.load(Relaxed),
            peak_open: self.open.peak.load(Relaxed),
            abandoned: self.abandoned.now.load(Relaxed),
            ..*lock(&self.ledger)
        }
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut GatewayConfig)) {
        change(&mut lock(&self.config));
    }

    /// Counts a call and says whether it is one of those to refuse.
    pub(super) fn refuse(&self) -> Option<Refusal> {
        let mut ledger = lock(&self.ledger);
        ledger.calls += 1;
        lock(&self.config).refusals.get(ledger.calls - 1).copied()
    }

    /// Puts a call in line. The work goes on in a task of its own: the client may leave, the gateway learns it late.
    pub(super) fn serve(self: &Arc<Self>, prompt: u32, max_tokens: Option<u32>) -> UnboundedReceiver<Step> {
        let (client, steps) = unbounded_channel();
        let slots = self.clone();
        tokio::spawn(async move { slots.work(prompt, max_tokens, client).await });
        steps
    }

    async fn work(&self, prompt: u32, max_tokens: Option<u32>, client: UnboundedSender<Step>) {
        let open = self.open.enter();
        let mut noticed = pin!(self.notice_departure(&client));
        let slot = tokio::select! {
            slot = self.line.acquire() => slot,
            () = &mut noticed => return,
        };
        let started_at = Instant::now();
        let config = lock(&self.config).clone();
        let tokens = max_tokens.unwrap_or(config.tokens_per_answer).min(config.longest_answer).max(1);
        let silent_from = if self.is_next_to_stall(config.stalled) { tokens / 2 } else { u32::MAX };
        if config.head == Head::AtOnce {
            let _ = client.send(Step::Started);
        }
        let mut made = 0;
        while made < tokens {
            let event = config.tokens_per_event.clamp(1, tokens - made);
            tokio::select! {
                () = sleep_until(started_at + config.token_at(made + 1)), if made < silent_from => {}
                () = &mut noticed => break,
            }
            if made == 0 && config.head == Head::WithFirstToken {
                let _ = client.send(Step::Started);
            }
            let words = (made..made + event).map(|n| WORDS[n as usize % WORDS.len()]).collect();
            let _ = client.send(Step::Tokens(words));
            made += event;
        }
        let is_delivered = made == tokens && !client.is_closed();
        self.book(made, is_delivered, started_at.elapsed());
        // The slot first, then the end of the answer: who sees the end may call again, and finds the slot free.
        drop((slot, open));
        if made == tokens {
            let _ = client.send(Step::Done { prompt, tokens });
        }
    }

    /// Spread evenly: of any ten answers in a row, three stall if three in ten are to.
    fn is_next_to_stall(&self, share: f64) -> bool {
        let before = self.served.fetch_add(1, Relaxed) as f64;
        ((before + 1.0) * share).floor() > (before * share).floor()
    }

    async fn notice_departure(&self, client: &UnboundedSender<Step>) {
        client.closed().await;
        let _gone = self.abandoned.enter();
        let linger = lock(&self.config).linger;
        sleep(linger).await;
    }

    fn book(&self, tokens: u32, is_delivered: bool, busy: Duration) {
        let mut ledger = lock(&self.ledger);
        ledger.busy += busy;
        if is_delivered {
            ledger.useful_tokens += u64::from(tokens);
        } else {
            ledger.wasted_tokens += u64::from(tokens);
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct Gauge {
    now: AtomicUsize,
    peak: AtomicUsize,
}

impl Gauge {
    fn enter(&self) -> Entered<'_> {
        self.peak.fetch_max(self.now.fetch_add(1, Relaxed) + 1, Relaxed);
        Entered(self)
    }
}

struct Entered<'a>(&'a Gauge);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Relaxed);
    }
}
