//! A bound in bytes on the memory that tasks hold together for data from outside.
//!
//! A task that receives something large first takes room for all of it, so that two half-received
//! requests never wait for one another. It gives the room back by dropping the [`Taken`]. Small data
//! takes no room: the number of connections bounds it, and small requests touch no shared counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Data larger than this is counted, in bytes; the rest fits the buffers that connections have anyway.
pub const COUNTED_BYTES_MIN: usize = 16 << 10;

/// Room that all clones of this value share.
#[derive(Clone, Debug)]
pub struct Room(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bytes_max: u64,
    bytes: AtomicU64,
    has_refused: AtomicBool,
}

/// Room that is taken, until this is dropped.
#[derive(Debug)]
pub struct Taken {
    room: Room,
    bytes: u64,
}

impl Default for Room {
    /// Room without a bound.
    fn default() -> Self {
        Self::new(u64::MAX)
    }
}

impl Room {
    /// Room for this many bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self(Arc::new(Shared {
            bytes_max,
            bytes: AtomicU64::new(0),
            has_refused: AtomicBool::new(false),
        }))
    }

    /// Bytes that are taken.
    pub fn taken_bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Bytes that may be taken.
    pub fn bytes_max(&self) -> u64 {
        self.0.bytes_max
    }

    /// Takes room, if there is any; `None` means that the caller must refuse the data. Any size is
    /// accepted while no other room is taken, since waiting would not help it.
    pub fn take(&self, bytes: usize) -> Option<Taken> {
        let mut taken = self.take_anyway(0);
        taken.grow(bytes).then_some(taken)
    }

    /// Takes room for data that cannot be refused.
    pub fn take_anyway(&self, bytes: usize) -> Taken {
        let bytes = bytes as u64;
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        let room = self.clone();
        Taken { room, bytes }
    }
}

impl Taken {
    /// Takes more, as [`Room::take`] does. Returns false and takes nothing if there is no room.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let (shared, bytes) = (&*self.room.0, bytes as u64);
        let before = shared.bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_alone = before <= self.bytes;
        if !is_alone && before.saturating_add(bytes) > shared.bytes_max {
            shared.bytes.fetch_sub(bytes, Ordering::Relaxed);
            if !shared.has_refused.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    event = "requests_refused",
                    bytes_in_progress = before,
                    bytes_max = shared.bytes_max,
                    "large requests in progress use up their part of the memory; further ones get \
                     overload until some have ended",
                );
            }
            return false;
        }
        if before < shared.bytes_max / 2 && shared.has_refused.load(Ordering::Relaxed) {
            shared.has_refused.store(false, Ordering::Relaxed);
        }
        self.bytes += bytes;
        true
    }

    /// Bytes that this holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.0.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exceeds_the_room_is_refused_until_something_is_dropped() {
        let room = Room::new(100);
        let first = room.take(60).unwrap();
        assert!(room.take(41).is_none());
        assert_eq!(room.taken_bytes(), 60);
        let second = room.take(40).unwrap();
        drop(first);
        assert_eq!(room.taken_bytes(), 40);
        assert!(room.take(60).is_some());
        drop(second);
        assert_eq!(room.taken_bytes(), 0);
    }

    #[test]
    fn one_alone_is_taken_however_large_it_is_and_may_grow() {
        let room = Room::new(100);
        let mut alone = room.take(1_000).unwrap();
        assert!(alone.grow(1_000));
        assert!(room.take(1).is_none());
        assert_eq!(alone.bytes(), 2_000);
        drop(alone);
        assert!(room.take(1).is_some());
    }

    #[test]
    fn what_grows_is_refused_like_what_comes() {
        let room = Room::new(100);
        let mut first = room.take(50).unwrap();
        let second = room.take(50).unwrap();
        assert!(!first.grow(1));
        assert_eq!((first.bytes(), room.taken_bytes()), (50, 100));
        drop(second);
        assert!(first.grow(50));
    }

    #[test]
    fn what_cannot_be_refused_counts_all_the_same() {
        let room = Room::new(100);
        let unavoidable = room.take_anyway(200);
        assert!(room.take(1).is_none());
        drop(unavoidable);
        assert_eq!(room.taken_bytes(), 0);
    }
}
