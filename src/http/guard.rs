//! Watches for silence of the upstream after the grant.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::config::Guards;
use crate::error::Silence;
use crate::limiter::clock;

/// The timer is made at the first silence, and only if a guard is set.
///
/// Only time in which the upstream was asked and had nothing counts: a reader that does not read is not a silence.
#[derive(Debug)]
pub(super) struct Guard {
    guards: Guards,
    has_begun: bool,
    silent_since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Guard {
    pub(super) fn new(guards: Guards) -> Self {
        Self { guards, has_begun: false, silent_since: None, timer: None }
    }

    /// The upstream sent something of the body.
    pub(super) fn heard(&mut self) {
        self.has_begun = true;
        self.silent_since = None;
    }

    /// The upstream has nothing right now. Ready when that has gone on for too long.
    pub(super) fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<(Silence, Duration)> {
        let (silence, bound) = if self.has_begun {
            (Silence::Idle, self.guards.idle)
        } else {
            (Silence::FirstByte, self.guards.first_byte)
        };
        let Some(bound) = bound else { return Poll::Pending };
        let since = *self.silent_since.get_or_insert_with(|| clock::instant(clock::now()));
        let ends_at = since + bound;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(ends_at)));
        if timer.deadline() != ends_at {
            timer.as_mut().reset(ends_at);
        }
        timer.as_mut().poll(cx).map(|()| (silence, bound))
    }
}
