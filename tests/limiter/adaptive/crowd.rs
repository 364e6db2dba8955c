//! Threads, reloads and a listener at once, under controllers that change their minds with every call.

use std::sync::atomic::AtomicU32;

use super::*;

const CALLS: u32 = 400;
const CALLERS: u32 = 12;

/// Asks for one to six slots in turn, for a short pause now and then, and counts what it is told.
#[derive(Clone, Debug, Default)]
struct Fickle {
    turns: u32,
    at: Duration,
    book: Arc<Book>,
}

#[derive(Debug, Default)]
struct Book {
    sent: AtomicU32,
    first_bytes: AtomicU32,
    ended: AtomicU32,
    is_wrong: std::sync::atomic::AtomicBool,
}

impl Fickle {
    fn hear(&mut self, at: Duration) {
        self.book.is_wrong.fetch_or(at < self.at, Ordering::Relaxed);
        (self.turns, self.at) = (self.turns + 1, at);
    }
}

impl Controller for Fickle {
    fn limit(&self) -> u32 {
        1 + self.turns % 6
    }

    fn paused_until(&self) -> Option<Duration> {
        (self.turns % 50 == 49).then(|| self.at + millis(1))
    }

    fn on_sent(&mut self, sent: &Sent) -> Mark {
        self.hear(sent.at);
        self.book.sent.fetch_add(1, Ordering::Relaxed);
        Mark::default()
    }

    fn on_first_byte(&mut self, at: Duration, _: &Sent, _: Mark) {
        self.hear(at);
        self.book.first_bytes.fetch_add(1, Ordering::Relaxed);
    }

    fn on_end(&mut self, sample: &Sample) {
        self.hear(sample.ended_at);
        let ended = self.book.ended.fetch_add(1, Ordering::Relaxed);
        let in_flight = self.book.sent.load(Ordering::Relaxed) - ended;
        self.book.is_wrong.fetch_or(sample.in_flight != in_flight, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_on_fickle_limits_loses_nobody_and_every_book_balances() {
    let books: Arc<Mutex<Vec<Arc<Book>>>> = Arc::default();
    let make = |books: Arc<Mutex<Vec<Arc<Book>>>>| {
        move |_: &LaneKey| -> Option<Box<dyn Controller>> {
            let fickle = Fickle::default();
            books.lock().unwrap().push(fickle.book.clone());
            Some(Box::new(fickle))
        }
    };
    let told = Arc::new(AtomicUsize::new(0));
    let counted = told.clone();
    let limiter = build(|limiter| {
        limiter.lane_controller(make(books.clone())).pool_controller(make(books.clone())).on_change(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        })
    });
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                for call in 0..CALLS {
                    let key = model(["a", "b", "c"][(caller + call) as usize % 3]);
                    let mut permit = limiter.acquire(&key, Priority::Default).await.expect("a slot");
                    if call % 3 == 0 {
                        tokio::task::yield_now().await;
                    }
                    match call % 4 {
                        0 => drop(permit),
                        1 => permit.settle(Outcome::ServerError),
                        _ => {
                            permit.note_first_byte();
                            permit.settle(Outcome::Success);
                        }
                    }
                    if call % 100 == 0 {
                        reload(&limiter, |config| config.max_inflight = 2 + call % 7);
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        tokio::time::timeout(secs(60), caller).await.expect("somebody waits for ever").expect("no panic");
    }
    assert_nothing_is_left(&limiter);
    let bound = limiter.config().max_inflight;
    assert!(limiter.snapshot().lanes.iter().all(|lane| lane.max == bound), "the last of the reloads is in force");
    // Callers who meet at a new lane may each have asked for a controller: all but one are dropped unused.
    let mut books = books.lock().unwrap();
    books.retain(|book| book.sent.load(Ordering::Relaxed) > 0);
    assert_eq!(books.len(), 4, "three lanes and their pool");
    let sum =
        |count: fn(&Book) -> &AtomicU32| books.iter().map(|book| count(book).load(Ordering::Relaxed)).sum::<u32>();
    let all = CALLERS * CALLS;
    assert_eq!((sum(|book| &book.sent), sum(|book| &book.ended)), (2 * all, 2 * all));
    assert_eq!(sum(|book| &book.first_bytes), all, "half of the calls, to two controllers");
    assert!(books.iter().all(|book| !book.is_wrong.load(Ordering::Relaxed)));
    assert!(told.load(Ordering::Relaxed) > 0);
}
