//! Events for one listener: bounded, and never in anybody's way.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use crate::sync::{Mutex, lock};

/// Those who tell put an event in and go on; when it is full the oldest goes, and the listener is told how many went.
#[derive(Debug)]
pub(super) struct Feed<E> {
    held: Mutex<Held<E>>,
    most: usize,
}

#[derive(Debug)]
struct Held<E> {
    events: VecDeque<E>,
    missed: u64,
    waker: Option<Waker>,
}

#[derive(Debug)]
pub(super) enum Heard<E> {
    Event(E),
    Missed(u64),
}

impl<E> Feed<E> {
    pub(super) fn new(most: u32) -> Self {
        let held = Held { events: VecDeque::new(), missed: 0, waker: None };
        Self { held: Mutex::new(held), most: most as usize }
    }

    /// Returns whom to wake, outside of every lock.
    pub(super) fn put(&self, event: E) -> Option<Waker> {
        let mut held = lock(&self.held);
        if held.events.len() >= self.most {
            held.events.pop_front();
            held.missed += 1;
        }
        held.events.push_back(event);
        held.waker.take()
    }

    /// The listener goes. Its waker must not be left to whoever tells, who would drop it under a lock.
    pub(super) fn leave(&self) {
        let spent = lock(&self.held).waker.take();
        drop(spent);
    }

    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<Heard<E>> {
        let mut held = lock(&self.held);
        let missed = std::mem::take(&mut held.missed);
        if missed > 0 {
            return Poll::Ready(Heard::Missed(missed));
        }
        if let Some(event) = held.events.pop_front() {
            return Poll::Ready(Heard::Event(event));
        }
        let spent = held.waker.replace(cx.waker().clone());
        drop(held);
        // Dropping it may drop a task.
        drop(spent);
        Poll::Pending
    }
}
