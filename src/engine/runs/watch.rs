//! Who is to be woken when something happens to a run.

use std::task::Waker;

use smallvec::SmallVec;

/// One place among the watchers of a run, kept by the future that watches. Numbers are never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watch(u64);

#[derive(Debug, Default)]
pub(super) struct Watchers {
    list: SmallVec<[(Watch, Waker); 1]>,
    next: u64,
}

impl Watchers {
    /// Keeps `waker` for the watcher, and gives up the one it replaces.
    pub(super) fn set(&mut self, watch: &mut Option<Watch>, waker: &Waker, spent: &mut impl Extend<Waker>) {
        let next = &mut self.next;
        let watch = *watch.get_or_insert_with(|| {
            *next += 1;
            Watch(*next)
        });
        match self.list.iter_mut().find(|(known, _)| *known == watch) {
            None => self.list.push((watch, waker.clone())),
            Some((_, known)) if known.will_wake(waker) => {}
            Some((_, known)) => spent.extend([std::mem::replace(known, waker.clone())]),
        }
    }

    pub(super) fn remove(&mut self, watch: Watch, spent: &mut impl Extend<Waker>) {
        if let Some(at) = self.list.iter().position(|(known, _)| *known == watch) {
            spent.extend([self.list.swap_remove(at).1]);
        }
    }

    pub(super) fn take(&mut self) -> impl Iterator<Item = Waker> + use<> {
        std::mem::take(&mut self.list).into_iter().map(|(_, waker)| waker)
    }
}
