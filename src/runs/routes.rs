//! Which candidates a run's turns go to.

use smallvec::SmallVec;

use crate::sync::{Mutex, lock};

/// A run skips a busy candidate once at its start, and once more if it lost its place in a lane after lending: each skip
/// leaves behind what the candidate's caches know of the run.
#[derive(Debug, Default)]
pub(super) struct Routes {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    has_lost_its_place: bool,
    /// One for each router that the run uses: rarely more than one.
    chosen: SmallVec<[Chosen; 1]>,
}

#[derive(Debug)]
struct Chosen {
    router: u64,
    candidate: usize,
    has_skipped_again: bool,
}

impl Routes {
    pub(super) fn candidate(&self, router: u64, skip: impl FnOnce(usize) -> Option<usize>) -> usize {
        // `skip` looks at lanes: not under the lock. Turns follow each other, so nobody else decides meanwhile.
        let (from, may_skip) = lock(&self.held).stand(router);
        let to = if may_skip { skip(from) } else { None };
        lock(&self.held).go(router, from, to)
    }

    pub(super) fn lost_its_place(&self) {
        lock(&self.held).has_lost_its_place = true;
    }
}

impl Held {
    /// Where the run's turns go, and whether this one may go elsewhere.
    fn stand(&self, router: u64) -> (usize, bool) {
        match self.chosen.iter().find(|chosen| chosen.router == router) {
            None => (0, true),
            Some(chosen) => (chosen.candidate, self.has_lost_its_place && !chosen.has_skipped_again),
        }
    }

    fn go(&mut self, router: u64, from: usize, to: Option<usize>) -> usize {
        let candidate = to.unwrap_or(from);
        match self.chosen.iter_mut().find(|chosen| chosen.router == router) {
            None => self.chosen.push(Chosen { router, candidate, has_skipped_again: false }),
            Some(chosen) => {
                chosen.candidate = candidate;
                chosen.has_skipped_again |= to.is_some();
            }
        }
        candidate
    }
}
