//! A controller that asks for anything, panics, and keeps book of what it is told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::engine::controller::{Controller, Mark, Sample, Sent};

#[derive(Debug)]
pub(super) struct Wild(pub(super) Arc<Mutex<Ledger>>);

/// What a controller was told, and what it said last.
#[derive(Debug)]
pub(super) struct Ledger {
    random: u64,
    pub(super) limit: u32,
    pub(super) paused_until: Option<Duration>,
    /// Calls that were sent and are not over, by the bits of their marks.
    pub(super) open: BTreeMap<u32, Call>,
    marks: u32,
    now: Duration,
    /// It was told something since this was last set to false.
    pub(super) is_told: bool,
    pub(super) has_panicked: bool,
    pub(super) is_retired: bool,
    pub(super) errors: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Call {
    sent: Sent,
    first_byte_at: Option<Duration>,
}

impl Ledger {
    pub(super) fn new(seed: u64) -> Arc<Mutex<Self>> {
        let mut ledger = Self {
            random: seed,
            limit: 4,
            paused_until: None,
            open: BTreeMap::new(),
            // Marks of different controllers differ.
            marks: u32::try_from(seed % 1_000).expect("small") * 10_000,
            now: Duration::ZERO,
            is_told: false,
            has_panicked: false,
            is_retired: false,
            errors: Vec::new(),
        };
        ledger.limit = ledger.draw_limit();
        Arc::new(Mutex::new(ledger))
    }

    /// The generator of Steele and others, "Fast splittable pseudorandom number generators".
    fn draw(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % below
    }

    fn draw_limit(&mut self) -> u32 {
        match self.draw(8) {
            0 => 0,
            1 => u32::MAX,
            n => u32::try_from(n).expect("small") - 1,
        }
    }

    fn tell(&mut self, now: Duration) {
        self.expect(!self.is_retired, "told after it was replaced");
        self.expect(!self.has_panicked, "told after it had panicked");
        self.expect(now >= self.now, "time runs backwards");
        (self.now, self.is_told) = (now, true);
        if self.draw(40) == 0 {
            self.has_panicked = true;
            return;
        }
        self.limit = self.draw_limit();
        self.paused_until = match self.draw(8) {
            0 => Some(Duration::MAX),
            1 => Some(Duration::ZERO),
            2 | 3 => Some(now + Duration::from_millis(self.draw(3_000))),
            _ => None,
        };
    }

    pub(super) fn expect(&mut self, holds: bool, promise: &str) {
        if !holds {
            self.errors.push(promise.to_owned());
        }
    }

    fn count(&self) -> u32 {
        u32::try_from(self.open.len()).expect("few")
    }
}

impl Wild {
    fn tell<R>(&mut self, at: Duration, tell: impl FnOnce(&mut Ledger) -> R) -> R {
        let mut ledger = self.0.lock().unwrap();
        ledger.tell(at);
        let told = tell(&mut ledger);
        let has_panicked = ledger.has_panicked;
        drop(ledger);
        if has_panicked {
            // Without a word on the console.
            std::panic::resume_unwind(Box::new("wild"));
        }
        told
    }
}

impl Controller for Wild {
    fn limit(&self) -> u32 {
        self.0.lock().unwrap().limit
    }

    fn paused_until(&self) -> Option<Duration> {
        self.0.lock().unwrap().paused_until
    }

    fn on_sent(&mut self, sent: &Sent) -> Mark {
        self.tell(sent.at, |ledger| {
            ledger.marks += 1;
            let mark = ledger.marks as f32;
            ledger.open.insert(mark.to_bits(), Call { sent: *sent, first_byte_at: None });
            ledger.expect(sent.in_flight == ledger.count(), "in flight at on_sent");
            Mark(mark)
        })
    }

    fn on_first_byte(&mut self, at: Duration, sent: &Sent, mark: Mark) {
        self.tell(at, |ledger| {
            let call = ledger.open.get_mut(&mark.0.to_bits());
            let is_first = call.is_some_and(|call| call.sent == *sent && call.first_byte_at.replace(at).is_none());
            ledger.expect(is_first, "one first byte of a call in flight");
        });
    }

    fn on_end(&mut self, sample: &Sample) {
        self.tell(sample.ended_at, |ledger| {
            ledger.expect(sample.in_flight == ledger.count(), "in flight at on_end");
            let call = ledger.open.remove(&sample.mark.0.to_bits());
            let is_right =
                call.is_some_and(|call| call.sent == sample.sent && call.first_byte_at == sample.first_byte_at);
            ledger.expect(is_right, "one end of a call in flight");
        });
    }
}
