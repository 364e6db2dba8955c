//! Doubly linked lists through entries of a [`Slab`]: linking and unlinking touch two neighbours and allocate nothing.

use super::slab::Slab;

pub(crate) const NIL: u32 = u32::MAX;

/// The neighbours of one entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    prev: u32,
    next: u32,
}

impl Links {
    pub(crate) fn next(self) -> Option<u32> {
        (self.next != NIL).then_some(self.next)
    }
}

impl Default for Links {
    fn default() -> Self {
        Self { prev: NIL, next: NIL }
    }
}

/// Both ends of a list. `links` of the methods picks the pair of links that belongs to this list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { head: NIL, tail: NIL }
    }
}

impl List {
    pub(crate) fn head(self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }

    #[inline]
    pub(crate) fn push_back<T: Default>(&mut self, slab: &mut Slab<T>, at: u32, links: impl Fn(&mut T) -> &mut Links) {
        *links(&mut slab[at]) = Links { prev: self.tail, next: NIL };
        match self.tail {
            NIL => self.head = at,
            tail => links(&mut slab[tail]).next = at,
        }
        self.tail = at;
    }

    /// Makes an entry the last one.
    #[inline]
    pub(crate) fn move_back<T: Default>(&mut self, slab: &mut Slab<T>, at: u32, links: impl Fn(&mut T) -> &mut Links) {
        if self.tail != at {
            self.unlink(slab, at, &links);
            self.push_back(slab, at, links);
        }
    }

    #[inline]
    pub(crate) fn unlink<T: Default>(&mut self, slab: &mut Slab<T>, at: u32, links: impl Fn(&mut T) -> &mut Links) {
        let Links { prev, next } = std::mem::take(links(&mut slab[at]));
        match prev {
            NIL => self.head = next,
            prev => links(&mut slab[prev]).next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => links(&mut slab[next]).prev = prev,
        }
    }
}
