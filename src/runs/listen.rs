//! Streams of events.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use tokio::time::{Sleep, sleep};

use super::event::{RunEvent, RunNotice};
use super::feed::{Feed, Heard};
use super::hub::{Hub, RunState};
use crate::engine::runs::{RunId, Standing};

/// How often a listener of a queued run looks whether its place in line is another one. Telling each of them at each step
/// would cost a step as much as there are listeners.
const POSITION_EVERY: Duration = Duration::from_secs(1);

/// What happens to one run. Made by [`RunHandle::events`](crate::RunHandle::events).
///
/// It begins with where the run stands now and ends with the run. A listener that does not keep up is told how many events
/// it [missed](RunEvent::Missed).
///
/// ```
/// use futures_util::StreamExt;
/// use tower_inflight::{QueuedFor, RunEvent, RunQueue, StartRun};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let queue = RunQueue::builder().max_concurrent_runs(1).build()?;
/// let running = queue.start(StartRun::new("acme", "ann"))?;
/// let waiting = queue.start(StartRun::new("acme", "bob"))?;
/// let mut events = waiting.events();
/// assert_eq!(events.next().await, Some(RunEvent::Queued { reason: QueuedFor::GlobalCap, position: 1 }));
/// running.finish()?;
/// assert!(matches!(events.next().await, Some(RunEvent::Admitted { .. })));
/// waiting.finish()?;
/// assert_eq!(events.next().await, Some(RunEvent::Finished));
/// assert_eq!(events.next().await, None);
/// # Ok(()) }
/// ```
///
/// # Runtime
/// New places in line are told of inside a tokio runtime with its time driver enabled.
#[must_use = "streams do nothing unless polled"]
pub struct RunEvents {
    run: Arc<RunState>,
    feed: Arc<Feed<RunEvent>>,
    first: Option<RunEvent>,
    /// The last place that was told, while the run is queued.
    place: Option<RunEvent>,
    tick: Option<Pin<Box<Sleep>>>,
    is_over: bool,
}

/// What happens to all runs. Made by [`RunQueue::subscribe`](crate::RunQueue::subscribe). It never ends.
///
/// ```
/// use futures_util::StreamExt;
/// use tower_inflight::RunQueue;
///
/// async fn log(queue: RunQueue) {
///     let mut notices = queue.subscribe();
///     while let Some(notice) = notices.next().await {
///         println!("run {} of {}: {:?}", notice.run, notice.tenant, notice.event);
///     }
/// }
/// ```
#[must_use = "streams do nothing unless polled"]
pub struct RunNotices {
    hub: Arc<Hub>,
    feed: Arc<Feed<RunNotice>>,
}

impl RunEvents {
    pub(super) fn new(run: Arc<RunState>) -> Self {
        let (feed, first) = run.hub.listen_to(&run);
        Self { run, feed, first, place: None, tick: None, is_over: false }
    }

    fn told(&mut self, event: RunEvent) -> Poll<Option<RunEvent>> {
        self.is_over = event.is_last();
        self.place = matches!(event, RunEvent::Queued { .. }).then(|| event.clone());
        Poll::Ready(Some(event))
    }

    /// A place other than the one last told.
    fn poll_place(&mut self, cx: &mut Context<'_>) -> Poll<RunEvent> {
        while self.place.is_some() && tokio::runtime::Handle::try_current().is_ok() {
            let tick = self.tick.get_or_insert_with(|| Box::pin(sleep(POSITION_EVERY)));
            ready!(tick.as_mut().poll(cx));
            self.tick = None;
            let standing = self.run.hub.read(|engine| engine.standing(self.run.at));
            let place = matches!(standing, Standing::Queued { .. }).then(|| RunEvent::of_standing(standing)).flatten();
            if let Some(place) = place.filter(|place| self.place.as_ref() != Some(place)) {
                return Poll::Ready(place);
            }
        }
        Poll::Pending
    }
}

impl Stream for RunEvents {
    type Item = RunEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<RunEvent>> {
        let this = &mut *self;
        if let Some(first) = this.first.take() {
            return this.told(first);
        }
        if this.is_over {
            return Poll::Ready(None);
        }
        match this.feed.poll(cx) {
            Poll::Ready(Heard::Event(event)) => this.told(event),
            Poll::Ready(Heard::Missed(events)) => Poll::Ready(Some(RunEvent::Missed { events })),
            Poll::Pending => {
                let place = ready!(this.poll_place(cx));
                this.told(place)
            }
        }
    }
}

impl Drop for RunEvents {
    fn drop(&mut self) {
        self.feed.leave();
        self.run.hub.stop_listening();
    }
}

impl RunNotices {
    pub(super) fn new(hub: Arc<Hub>) -> Self {
        let feed = hub.listen_to_all();
        Self { hub, feed }
    }
}

impl Stream for RunNotices {
    type Item = RunNotice;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<RunNotice>> {
        let notice = match ready!(self.feed.poll(cx)) {
            Heard::Event(notice) => notice,
            Heard::Missed(events) => {
                RunNotice { run: RunId(0), tenant: "".into(), user: "".into(), event: RunEvent::Missed { events } }
            }
        };
        Poll::Ready(Some(notice))
    }
}

impl Drop for RunNotices {
    fn drop(&mut self) {
        self.feed.leave();
        self.hub.stop_listening();
    }
}

impl fmt::Debug for RunEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunEvents").field("run", &self.run).finish_non_exhaustive()
    }
}

impl fmt::Debug for RunNotices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunNotices").finish_non_exhaustive()
    }
}
