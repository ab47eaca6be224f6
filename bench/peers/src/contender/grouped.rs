//! Group commit for stores without it: a thread that finds no leader becomes the leader.
//!
//! The leader writes waiting puts in one transaction while the next group gathers.

use anyhow::{Result, anyhow};
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

/// A put of a group.
pub(super) type Put = (Box<[u8]>, Bytes);

/// Gathers puts into groups.
#[derive(Default)]
pub(super) struct Grouped {
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<Put>,
    taken: u64,
    written: u64,
    has_leader: bool,
    failure: Option<String>,
}

impl Grouped {
    /// Returns when a leader's `write` has written the put.
    pub(super) fn put(
        &self,
        key: &[u8],
        value: &Bytes,
        write: impl Fn(&[Put]) -> Result<()>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        state.waiting.push((key.into(), value.clone()));
        state.taken += 1;
        let mine = state.taken;
        while state.written < mine {
            if let Some(failure) = &state.failure {
                return Err(anyhow!("{failure}"));
            }
            if state.has_leader {
                self.done.wait(&mut state);
                continue;
            }
            state.has_leader = true;
            let group = std::mem::take(&mut state.waiting);
            let last = state.taken;
            drop(state);
            let written = write(&group);
            state = self.state.lock();
            state.has_leader = false;
            match written {
                Ok(()) => state.written = last,
                Err(error) => state.failure = Some(format!("{error:#}")),
            }
            self.done.notify_all();
        }
        Ok(())
    }
}
