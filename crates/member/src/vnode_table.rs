//! This node's vnodes by partition: the ring adds and removes them. At a node's start, each vnode
//! is added as soon as its store is open.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use kvorum_coordinator::{Absence, LocalVnodes, NextOpening};
use kvorum_ring::Partition;
use kvorum_runtime::{Moment, Watched, Watcher};
use kvorum_vnode::Vnode;
use parking_lot::Mutex;

/// See the module's description. Every request reads the table; it changes with the ring.
#[derive(Default)]
pub struct VnodeTable {
    slots: ArcSwap<Slots>,
    changing: Mutex<Changing>,
    /// True while there are vnodes without an open store.
    is_any_unopened: AtomicBool,
    readiness: Watched<Readiness>,
}

type Slots = Vec<Option<Arc<Vnode>>>;

#[derive(Default)]
struct Changing {
    unopened: BTreeMap<Partition, Unopened>,
    /// The node stops: no vnode is added any more.
    is_closed: bool,
}

/// A vnode that the node has, and whose store is not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unopened {
    /// The store is being opened, or will be.
    Opening {
        /// The time at which the node began to open its stores.
        since: Moment,
    },
    /// The store could not be opened, and is tried again at intervals.
    Failed {
        /// The time of the last attempt.
        at: Moment,
        /// Number of attempts.
        attempts: u32,
        /// The reason, in words.
        error: String,
        /// The store is missing or another one: it is refused until its directory is back or its
        /// loss is accepted. Any other store may open unchanged later.
        is_refused: bool,
    },
}

/// Numbers of a node's serving and other vnodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Vnodes that serve.
    pub open: usize,
    /// Vnodes whose stores are being opened.
    pub opening: usize,
    /// Vnodes whose stores could not be opened.
    pub failed: usize,
}

impl Readiness {
    /// True when every vnode serves.
    pub fn is_complete(&self) -> bool {
        self.opening == 0 && self.failed == 0
    }
}

impl VnodeTable {
    /// All vnodes that serve, in the order of their partitions.
    pub fn all(&self) -> Vec<Arc<Vnode>> {
        self.slots.load().iter().flatten().cloned().collect()
    }

    /// The vnode of the partition of this number.
    pub fn numbered(&self, partition: u16) -> Option<Arc<Vnode>> {
        self.slots.load().get(usize::from(partition))?.clone()
    }

    /// The vnodes that do not serve, and why.
    pub fn unopened(&self) -> BTreeMap<Partition, Unopened> {
        self.changing.lock().unopened.clone()
    }

    /// Every partition that has a vnode here, open or not.
    pub(crate) fn present(&self) -> BTreeSet<Partition> {
        // A vnode moves between the two tables under this lock.
        let changing = self.changing.lock();
        let slots = self.slots.load();
        let open = slots.iter().flatten().map(|vnode| vnode.partition());
        open.chain(changing.unopened.keys().copied()).collect()
    }

    /// The present numbers of serving and other vnodes.
    pub fn readiness(&self) -> Readiness {
        self.readiness.get()
    }

    /// Reports a change whenever a vnode is added, fails or is removed; for callers that wait for
    /// vnodes to serve.
    pub fn watch_readiness(&self) -> Watcher<Readiness> {
        self.readiness.watch()
    }

    /// Waits until no vnode is being opened; returns the numbers.
    pub async fn until_opened(&self) -> Readiness {
        let mut readiness = self.watch_readiness();
        let opened = readiness.until(|it| it.opening == 0).await;
        opened.unwrap_or_else(|_| self.readiness())
    }

    /// Notes vnodes that will be opened.
    pub(crate) fn expect(&self, partitions: impl IntoIterator<Item = Partition>, since: Moment) {
        self.change(|_, changing| {
            for partition in partitions {
                let opening = Unopened::Opening { since };
                changing.unopened.insert(partition, opening);
            }
        });
    }

    /// Notes that a store could not be opened; false when it had failed before for the same reason.
    pub(crate) fn fail(
        &self,
        partition: Partition,
        error: String,
        is_refused: bool,
        at: Moment,
    ) -> bool {
        self.change(|_, changing| {
            let Some(unopened) = changing.unopened.get_mut(&partition) else {
                return false;
            };
            let (attempts, is_news) = match unopened {
                Unopened::Opening { .. } => (1, true),
                Unopened::Failed {
                    attempts,
                    error: known,
                    ..
                } => (attempts.saturating_add(1), *known != error),
            };
            *unopened = Unopened::Failed {
                at,
                attempts,
                error,
                is_refused,
            };
            is_news
        })
    }

    /// Lets an expected vnode serve. A vnode that is no longer expected is returned.
    pub(crate) fn opened(&self, vnode: Arc<Vnode>) -> Result<(), Arc<Vnode>> {
        self.change(|slots, changing| {
            let is_expected = changing.unopened.contains_key(&vnode.partition());
            if changing.is_closed || !is_expected {
                return Err(vnode);
            }
            changing.unopened.remove(&vnode.partition());
            place(slots, vnode);
            Ok(())
        })
    }

    /// Forgets a vnode that is not open.
    pub(crate) fn forget(&self, partition: Partition) {
        self.change(|_, changing| changing.unopened.remove(&partition));
    }

    /// True when the table accepts no more opened vnodes.
    pub(crate) fn is_closed(&self) -> bool {
        self.changing.lock().is_closed
    }

    /// From here on the table accepts no opened vnode.
    pub(crate) fn close(&self) {
        self.changing.lock().is_closed = true;
    }

    pub(crate) fn put(&self, vnodes: impl IntoIterator<Item = Arc<Vnode>>) {
        self.change(|slots, _| {
            for vnode in vnodes {
                place(slots, vnode);
            }
        });
    }

    pub(crate) fn take(&self, partition: Partition) -> Option<Arc<Vnode>> {
        self.change(|slots, _| slots.get_mut(partition.slot())?.take())
    }

    /// All vnodes, if all of them serve.
    pub(crate) fn take_all(&self) -> Option<Vec<Arc<Vnode>>> {
        self.change(|slots, changing| {
            let is_complete = changing.unopened.is_empty();
            is_complete.then(|| std::mem::take(slots).into_iter().flatten().collect())
        })
    }

    fn change<R>(&self, change: impl FnOnce(&mut Slots, &mut Changing) -> R) -> R {
        let mut changing = self.changing.lock();
        let mut slots = Slots::clone(&self.slots.load());
        let result = change(&mut slots, &mut changing);
        let is_failed = |it: &&Unopened| matches!(it, Unopened::Failed { .. });
        let failed = changing.unopened.values().filter(is_failed).count();
        let readiness = Readiness {
            open: slots.iter().flatten().count(),
            opening: changing.unopened.len() - failed,
            failed,
        };
        self.slots.store(Arc::new(slots));
        // Stored after the slots: a reader that finds no vnode then finds the reason.
        self.is_any_unopened
            .store(!changing.unopened.is_empty(), Ordering::Release);
        if self.readiness.get() != readiness {
            self.readiness.set(readiness);
        }
        result
    }
}

fn place(slots: &mut Slots, vnode: Arc<Vnode>) {
    let slot = vnode.partition().slot();
    if slots.len() <= slot {
        slots.resize(slot + 1, None);
    }
    slots[slot] = Some(vnode);
}

impl LocalVnodes for VnodeTable {
    fn vnode(&self, partition: Partition) -> Option<Arc<Vnode>> {
        self.slots.load().get(partition.slot())?.clone()
    }

    fn absence(&self, partition: Partition) -> Absence {
        match self.changing.lock().unopened.get(&partition) {
            None => Absence::NotHere,
            Some(Unopened::Opening { .. }) => Absence::Opening,
            Some(Unopened::Failed { .. }) => Absence::Failed,
        }
    }

    fn is_any_unopened(&self) -> bool {
        self.is_any_unopened.load(Ordering::Relaxed)
    }

    fn is_any_opening(&self) -> bool {
        LocalVnodes::is_any_unopened(self) && self.readiness().opening > 0
    }

    fn next_opening(&self) -> Option<NextOpening> {
        let mut readiness = self.watch_readiness();
        Some(Box::pin(async move {
            let _changed_or_gone = readiness.changed().await;
        }))
    }
}
