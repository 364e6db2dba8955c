//! The working part of the gateway: its slots, the line in front of them, and what was useful of the work.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until};

use super::gateway::{GatewayConfig, Refusal};

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
    /// It has a slot: this is when the response head leaves.
    Started,
    Token(&'static str),
    Done {
        tokens: u32,
    },
}

#[derive(Debug)]
pub(super) struct Slots {
    config: GatewayConfig,
    /// Tokio's semaphore serves in the order of arrival.
    line: Semaphore,
    open: Gauge,
    abandoned: Gauge,
    ledger: Mutex<GatewayStats>,
}

impl Slots {
    pub(super) fn new(config: GatewayConfig) -> Self {
        let line = Semaphore::new(config.slots);
        Self { config, line, open: Gauge::default(), abandoned: Gauge::default(), ledger: Mutex::default() }
    }

    pub(super) fn stats(&self) -> GatewayStats {
        GatewayStats {
            open: self.open.now.load(Relaxed),
            peak_open: self.open.peak.load(Relaxed),
            abandoned: self.abandoned.now.load(Relaxed),
            ..*self.ledger()
        }
    }

    /// Counts a call and says whether it is one of those to refuse.
    pub(super) fn refuse(&self) -> Option<Refusal> {
        let mut ledger = self.ledger();
        ledger.calls += 1;
        self.config.refusals.get(ledger.calls - 1).copied()
    }

    /// Puts a call in line. The work goes on in a task of its own: the client may leave, the gateway learns it late.
    pub(super) fn serve(self: &Arc<Self>, max_tokens: Option<u32>) -> UnboundedReceiver<Step> {
        let (client, steps) = unbounded_channel();
        let tokens = max_tokens.unwrap_or(self.config.tokens_per_answer).max(1);
        let slots = self.clone();
        tokio::spawn(async move { slots.work(tokens, client).await });
        steps
    }

    async fn work(&self, tokens: u32, client: UnboundedSender<Step>) {
        let open = self.open.enter();
        let mut noticed = pin!(self.notice_departure(&client));
        let slot = tokio::select! {
            slot = self.line.acquire() => slot,
            () = &mut noticed => return,
        };
        let started_at = Instant::now();
        let _ = client.send(Step::Started);
        let mut made = 0;
        while made < tokens {
            tokio::select! {
                () = sleep_until(started_at + self.config.token_at(made + 1)) => {}
                () = &mut noticed => break,
            }
            let _ = client.send(Step::Token(WORDS[made as usize % WORDS.len()]));
            made += 1;
        }
        let is_delivered = made == tokens && !client.is_closed();
        self.book(made, is_delivered, started_at.elapsed());
        // The slot first, then the end of the answer: who sees the end may call again, and finds the slot free.
        drop((slot, open));
        if made == tokens {
            let _ = client.send(Step::Done { tokens });
        }
    }

    async fn notice_departure(&self, client: &UnboundedSender<Step>) {
        client.closed().await;
        let _gone = self.abandoned.enter();
        sleep(self.config.linger).await;
    }

    fn book(&self, tokens: u32, is_delivered: bool, busy: Duration) {
        let mut ledger = self.ledger();
        ledger.busy += busy;
        if is_delivered {
            ledger.useful_tokens += u64::from(tokens);
        } else {
            ledger.wasted_tokens += u64::from(tokens);
        }
    }

    fn ledger(&self) -> MutexGuard<'_, GatewayStats> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
