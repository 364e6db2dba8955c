//! Storage for waiters: stable indices, and memory that is given back while other entries live on.
//!
//! A plain `Vec` with a free list keeps the memory of the deepest queue ever seen, because one live entry at its end pins
//! all of it. Entries here live in chunks of 64, and a chunk whose last entry leaves is freed.

use std::ops::{Index, IndexMut};

const CHUNK: usize = 64;

#[derive(Debug)]
struct Chunk<T> {
    /// One bit per entry in use.
    used: u64,
    entries: Box<[T; CHUNK]>,
}

#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Option<Chunk<T>>>,
    /// Chunks with room. A chunk is listed once, from when it gets room until it is found full.
    roomy: Vec<u32>,
    /// One emptied chunk is kept, so that a queue that swings around a chunk boundary does not allocate each time.
    spare: Option<Chunk<T>>,
    len: usize,
}

impl<T: Default> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { chunks: Vec::new(), roomy: Vec::new(), spare: None, len: 0 }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        let at = match self.roomy.last() {
            Some(&at) => at as usize,
            None => {
                let at = self.chunks.len();
                self.chunks.push(None);
                self.roomy.push(id(at));
                at
            }
        };
        let spare = &mut self.spare;
        let chunk = self.chunks[at].get_or_insert_with(|| spare.take().unwrap_or_else(Chunk::empty));
        let slot = chunk.used.trailing_ones() as usize;
        chunk.used |= 1 << slot;
        chunk.entries[slot] = value;
        if chunk.used == u64::MAX {
            self.roomy.pop();
        }
        self.len += 1;
        id(at * CHUNK + slot)
    }

    /// # Panics
    /// If there is no entry at `index`.
    pub(crate) fn remove(&mut self, index: u32) -> T {
        let value = std::mem::take(&mut self[index]);
        self.vacate(index);
        value
    }

    /// Frees an entry. What it still holds is dropped when its place is used again, or with its chunk.
    ///
    /// # Panics
    /// If there is no entry at `index`.
    #[inline]
    pub(crate) fn vacate(&mut self, index: u32) {
        let (at, slot) = place(index);
        let held = &mut self.chunks[at];
        let chunk = held.as_mut().expect("an entry to remove is in a chunk");
        assert!(chunk.used & (1 << slot) != 0, "an entry is removed once");
        if chunk.used == u64::MAX {
            self.roomy.push(id(at));
        }
        chunk.used &= !(1 << slot);
        if chunk.used == 0 {
            self.spare = held.take();
        }
        self.len -= 1;
        if self.len == 0 {
            self.clear();
        }
    }

    #[cold]
    fn clear(&mut self) {
        self.chunks.clear();
        self.roomy.clear();
        self.chunks.shrink_to(CHUNK);
        self.roomy.shrink_to(CHUNK);
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let (at, slot) = place(index);
        let chunk = self.chunks.get(at)?.as_ref()?;
        (chunk.used & (1 << slot) != 0).then(|| &chunk.entries[slot])
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        let (at, slot) = place(index);
        let chunk = self.chunks.get_mut(at)?.as_mut()?;
        (chunk.used & (1 << slot) != 0).then(|| &mut chunk.entries[slot])
    }

    #[cfg(test)]
    pub(crate) fn chunks_held(&self) -> usize {
        self.chunks.iter().flatten().count()
    }
}

impl<T: Default> Chunk<T> {
    fn empty() -> Self {
        // Not `Box::new` of an array: that would pass through the stack of whoever polls, many kilobytes of it.
        let entries: Box<[T]> = std::iter::repeat_with(T::default).take(CHUNK).collect();
        let Ok(entries) = entries.try_into() else { unreachable!("as many as were taken") };
        Self { used: 0, entries }
    }
}

fn place(index: u32) -> (usize, usize) {
    (index as usize / CHUNK, index as usize % CHUNK)
}

fn id(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than four billion entries: queues are bounded")
}

impl<T: Default> Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: u32) -> &T {
        let (at, slot) = place(index);
        match &self.chunks[at] {
            Some(chunk) => &chunk.entries[slot],
            None => panic!("no entry at {index}"),
        }
    }
}

impl<T: Default> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        let (at, slot) = place(index);
        match &mut self.chunks[at] {
            Some(chunk) => &mut chunk.entries[slot],
            None => panic!("no entry at {index}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_index_while_others_come_and_go() {
        let mut slab = Slab::new();
        let ids: Vec<u32> = (0..300).map(|n| slab.insert(n)).collect();
        for id in ids.iter().step_by(2) {
            slab.remove(*id);
        }
        let more: Vec<u32> = (1000..1100).map(|n| slab.insert(n)).collect();
        for (n, id) in ids.iter().enumerate().skip(1).step_by(2) {
            assert_eq!(slab[*id], n);
        }
        for (n, id) in more.iter().enumerate() {
            assert_eq!(slab[*id], n + 1000);
        }
        assert_eq!(slab.len(), 250);
    }

    #[test]
    fn memory_comes_back_while_one_entry_lives_on() {
        let mut slab = Slab::new();
        let ids: Vec<u32> = (0..100_000).map(|n| slab.insert(n)).collect();
        let (last, dead) = ids.split_last().expect("not empty");
        for id in dead {
            slab.remove(*id);
        }
        assert_eq!(slab.chunks_held(), 1);
        assert_eq!(slab[*last], 99_999);
        slab.remove(*last);
        assert_eq!(slab.chunks.capacity(), CHUNK.min(slab.chunks.capacity()));
    }

    #[test]
    fn vacant_entries_are_not_found() {
        let mut slab = Slab::new();
        let id = slab.insert(1);
        assert!(slab.get_mut(id).is_some());
        slab.remove(id);
        assert!(slab.get_mut(id).is_none());
        assert!(slab.get_mut(12_345).is_none());
    }
}
