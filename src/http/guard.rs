//! Watches for silence of the upstream after the grant.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep};

use crate::config::Guards;
use crate::error::Silence;
use crate::limiter::clock;

/// The timer is made at the first silence, and only if a guard is set.
///
/// Only time in which the upstream was asked and had nothing counts: a reader that does not read is not a silence.
///
/// Without a guard there is no watch either: calls are moved around, and most are not watched.
#[derive(Debug)]
pub(super) struct Guard(Option<Box<Watch>>);

#[derive(Debug)]
struct Watch {
    guards: Guards,
    has_begun: bool,
    /// Silence before the last [`rest`](Self::rest).
    spent: Duration,
    silent_since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Guard {
    pub(super) fn new(guards: Guards) -> Self {
        let is_set = guards.first_byte.is_some() || guards.idle.is_some();
        Self(is_set.then(|| Box::new(Watch::new(guards))))
    }

    /// The upstream sent something of the body.
    #[inline]
    pub(super) fn heard(&mut self) {
        if let Some(watch) = &mut self.0 {
            watch.heard();
        }
    }

    /// The head is there, and nobody asks for the body yet: until somebody does, its silence does not count.
    pub(super) fn rest(&mut self) {
        if let Some(watch) = &mut self.0 {
            watch.rest();
        }
    }

    /// The upstream has nothing right now. Ready when that has gone on for too long; outside of a runtime nobody watches.
    pub(super) fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<(Silence, Duration)> {
        self.0.as_mut().map_or(Poll::Pending, |watch| watch.poll_silence(cx))
    }
}

impl Watch {
    fn new(guards: Guards) -> Self {
        Self { guards, has_begun: false, spent: Duration::ZERO, silent_since: None, timer: None }
    }

    fn heard(&mut self) {
        self.has_begun = true;
        self.spent = Duration::ZERO;
        self.silent_since = None;
    }

    fn rest(&mut self) {
        if let Some(since) = self.silent_since.take() {
            self.spent += clock::instant(clock::now()).saturating_duration_since(since);
        }
    }

    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<(Silence, Duration)> {
        let (silence, bound) = if self.has_begun {
            (Silence::Idle, self.guards.idle)
        } else {
            (Silence::FirstByte, self.guards.first_byte)
        };
        let Some(bound) = bound else { return Poll::Pending };
        if Handle::try_current().is_err() {
            return Poll::Pending;
        }
        let since = *self.silent_since.get_or_insert_with(|| clock::instant(clock::now()));
        let ends_at = since + bound.saturating_sub(self.spent);
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(ends_at)));
        if timer.deadline() != ends_at {
            timer.as_mut().reset(ends_at);
        }
        timer.as_mut().poll(cx).map(|()| (silence, bound))
    }
}
