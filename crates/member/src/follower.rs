//! The follower: it opens and removes vnodes as the ring changes.
//!
//! A vnode is opened when the ring makes this node the owner or the receiver of its partition, and is
//! there until the partition has settled elsewhere; its epoch is that of the ring that this node has
//! learned. The record of stores is written before they are opened and after they are gone.
//!
//! Stores that the node has when it starts are opened by `opening`, and left alone until they are.
//!
//! A partition of this node is marked as incomplete if its store is not the recorded complete one: it
//! takes writes, answers no reads, and is repaired from the other replicas. Examples are a lost or
//! exchanged store, and a partition that came here without a transfer. A store that a transfer fills is
//! incomplete from its beginning until all is here. Its source may be removed for good at any time, and
//! this node may learn of that after a crash: only the record then distinguishes half a store from a
//! whole one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use kvorum_backend::Backend;
use kvorum_claimant::ReplicatedState;
use kvorum_cluster::{AgreedState, ClusterState};
use kvorum_disk::DiskError;
use kvorum_liveness::Liveness;
use kvorum_peer::Peers;
use kvorum_ring::{Epoch, NodeId, Partition, Phase, Ring};
use kvorum_runtime::Runtime;
use kvorum_vnode::{
    AgreedList, LeaseTable, TreeFiles, TreePlacing, Vnode, VnodeMeter, VnodeSettings,
};

use crate::catching_up::CatchingUp;
use crate::error::OpenError;
use crate::recognising::KnownStores;
use crate::round_lists::RoundParts;
use crate::store_list::{HeldFile, Known, StoreList};
use crate::stores::{Found, StoreError, Stores};
use crate::unknown_state::is_unknown;
use crate::vnode_table::{Unopened, VnodeTable};

/// Pause before a failed opening or removal is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// New stores that are opened concurrently: each waits for the device several times.
const OPENINGS_AT_ONCE: usize = 16;

/// The parts below the vnodes.
#[derive(Clone)]
pub(crate) struct Ground {
    pub(crate) runtime: Runtime,
    pub(crate) node: NodeId,
    pub(crate) stores: Arc<dyn Stores>,
    pub(crate) leases: Arc<LeaseTable>,
    pub(crate) held: Arc<HeldFile>,
    pub(crate) table: Arc<VnodeTable>,
    pub(crate) settings: VnodeSettings,
    /// Takes the figures of vnodes.
    pub(crate) meter: Arc<dyn VnodeMeter>,
    /// Says in which tree a key is; `None` for vnodes without trees.
    pub(crate) places: Option<Arc<dyn TreePlacing>>,
    /// Files in which trees outlast the run.
    pub(crate) tree_files: Arc<TreeFiles>,
    /// The part of vnodes in rounds; `None` where the stores of vnodes have no order of batches.
    pub(crate) rounds: Option<RoundParts>,
    /// No vnode serves before the node has caught up.
    pub(crate) catching_up: Arc<CatchingUp>,
}

/// See the module's description.
pub(crate) struct Follower {
    pub(crate) ground: Ground,
    pub(crate) state: ReplicatedState,
    pub(crate) liveness: Liveness,
    pub(crate) peers: Peers,
    /// The record of stores as it was written last. Held over every change of the vnodes.
    pub(crate) written: tokio::sync::Mutex<StoreList>,
    members: parking_lot::Mutex<BTreeSet<NodeId>>,
}

/// The partitions that this node has to have, with the epoch at which it got them: the present epoch for an
/// owner, since it may have been an owner for long, and for a receiver that of the move's beginning.
fn wanted(state: &ClusterState, node: NodeId) -> BTreeMap<Partition, Epoch> {
    let ring = state.ring();
    let owned = ring.partitions().filter(|(_, owner, _)| *owner == node);
    let owned = owned.map(|(partition, ..)| (partition, ring.epoch(partition)));
    owned.chain(received(ring, node)).collect()
}

fn received(ring: &Ring, node: NodeId) -> impl Iterator<Item = (Partition, Epoch)> + '_ {
    let to_this = ring.moves().iter().filter(move |(_, it)| it.to == node);
    to_this.map(|(partition, moving)| {
        let steps = match moving.phase {
            Phase::Filling => 0,
            Phase::Closing => 1,
        };
        let begun = ring.epoch(*partition).get().saturating_sub(steps);
        (*partition, Epoch::new(begun))
    })
}

/// The partitions whose recorded store is of no use: settled elsewhere, or from before a move back
/// began.
fn stale(held: &StoreList, state: &ClusterState, node: NodeId) -> Vec<Partition> {
    if held.size != state.ring().size() {
        return held.since.keys().copied().collect();
    }
    let wanted = wanted(state, node);
    let receives: BTreeMap<Partition, Epoch> = received(state.ring(), node).collect();
    let is_stale = |(partition, since): &(&Partition, &Epoch)| {
        let is_older = |begun: &Epoch| *since < begun;
        !wanted.contains_key(partition) || receives.get(partition).is_some_and(is_older)
    };
    let stale = held.since.iter().filter(is_stale);
    stale.map(|(partition, _)| *partition).collect()
}

/// The stores with which a node starts.
pub(crate) struct Beginning {
    pub(crate) held: StoreList,
    /// The store of the hints.
    pub(crate) hints: Arc<dyn Backend>,
    /// Those whose stores are to be opened.
    pub(crate) partitions: Vec<Partition>,
}

/// Removes useless files, and opens the files needed before anything is served. Blocks.
pub(crate) fn begin(
    ground: &Ground,
    state: &ClusterState,
    loss: &Loss,
) -> Result<Beginning, OpenError> {
    let size = state.ring().size();
    let mut wanted = wanted(state, ground.node);
    let recorded = ground.held.load()?;
    let is_first = recorded.is_none();
    let mut held = recorded.clone().unwrap_or(StoreList::none(size));
    if is_unknown(state) {
        // A log that is new here has not reached this node's partitions yet. Logged writes of its
        // stores have to be restored now or never.
        wanted = held.since.clone();
    }
    check_engine(ground, &held, state)?;
    if ground.stores.begins_anew() {
        // Written below, before any record names these as the stores of another engine: the others of
        // the record are not missed after a crash.
        held.expect_none();
    } else {
        check_stores(ground, &mut held, state, loss)?;
    }
    // Before the state is known, no store is known to be useless.
    if !is_unknown(state) {
        for partition in stale(&held, state, ground.node) {
            tracing::info!(event = "store_left_over", partition = partition.number());
            let known = held.identity(partition);
            let removed = ground.stores.remove(held.size, partition, known, None);
            removed.map_err(OpenError::Stores)?;
            held.remove(partition);
        }
        held.size = size;
    }
    let receives: BTreeSet<Partition> = received(state.ring(), ground.node)
        .map(|(partition, _)| partition)
        .collect();
    for (partition, since) in &mut wanted {
        match held.since.get(partition) {
            Some(recorded) => *since = *recorded,
            // Without a record, all existing stores are this node's own.
            None if is_first => {}
            None => {
                let removed = ground.stores.remove(size, *partition, None, None);
                removed.map_err(OpenError::Stores)?;
                let is_new = receives.contains(partition);
                held.stores.insert(*partition, Known::nothing(is_new));
            }
        }
    }
    held.since.extend(&wanted);
    // On a full disk a node comes up as long as nothing has to be written down.
    if recorded.as_ref() != Some(&held) {
        ground.held.store(&held)?;
    }
    let hints = ground.stores.begin().map_err(OpenError::Stores)?;
    Ok(Beginning {
        held,
        hints,
        partitions: wanted.into_keys().collect(),
    })
}

/// A file of this name in the data directory, made by an operator, has the next start go on without
/// stores that are lost for good.
pub const ACCEPT_LOST_STORES: &str = "accept_lost_stores";

/// An operator's decision about stores that are gone, all of them.
pub(crate) struct Loss {
    /// The file by which it is accepted.
    pub(crate) file: PathBuf,
    pub(crate) is_accepted: bool,
}

/// Refuses to start when all stores of this node are missing. A single one is replaced and repaired
/// from the other replicas; all of them are missing where a disk is not mounted. The same may be so on
/// the other nodes, and all would repair themselves from empty stores. On a node alone each partition
/// is refused by itself.
fn check_stores(
    ground: &Ground,
    held: &mut StoreList,
    state: &ClusterState,
    loss: &Loss,
) -> Result<(), OpenError> {
    if !have_others_it(state) {
        return Ok(());
    }
    // A crash may have come between the removal of a settled store and its entry in the record.
    let stale = match is_unknown(state) {
        true => Vec::new(),
        false => stale(held, state, ground.node),
    };
    let (known, mut place) = (KnownStores::of(held), None);
    for partition in held.stores.keys().filter(|it| !stale.contains(it)) {
        let Some(identity) = known.identity(*partition) else {
            continue;
        };
        match ground.stores.find(held.size, *partition, Some(identity)) {
            Ok(Found::Nothing { directory }) => place = Some(directory),
            Ok(Found::Store {
                directory,
                identity: found,
                erased,
            }) if ![found, erased].contains(&identity) => place = Some(directory),
            // The directory exists. Obstacles to the opening are reported for each store.
            Ok(_) | Err(_) => return Ok(()),
        }
    }
    let Some(place) = place else {
        return Ok(());
    };
    let stores = held.identities().len();
    let directory = place.parent().unwrap_or(&place).to_owned();
    if !loss.is_accepted {
        let accepting = loss.file.clone();
        return Err(OpenError::StoresGone {
            directory,
            stores,
            accepting,
        });
    }
    tracing::warn!(
        event = "stores_given_up",
        directory = %directory.display(),
        stores,
        "they answer no reads until they are repaired from the other replicas",
    );
    held.expect_none();
    Ok(())
}

/// True where other nodes have the data of this node's stores, or may have it.
pub(crate) fn have_others_it(state: &ClusterState) -> bool {
    is_unknown(state) || state.ring().replicas_max() > 1
}

/// Refuses an engine whose empty stores would replace those of another engine although no other node has
/// their data.
fn check_engine(ground: &Ground, held: &StoreList, state: &ClusterState) -> Result<(), OpenError> {
    let others_have_it = state.ring().replicas_max() > 1;
    match ground.stores.engine_before() {
        Some(before) if !held.since.is_empty() && !others_have_it && !is_unknown(state) => {
            Err(OpenError::OtherEngine { before })
        }
        _ => Ok(()),
    }
}

impl StoreList {
    pub(crate) fn note(
        &mut self,
        partition: Partition,
        store: &Arc<dyn Backend>,
        is_complete: bool,
    ) {
        let store = store.identity();
        self.stores.insert(partition, Known { store, is_complete });
    }
}

impl Ground {
    /// Compares a store with the recorded one. Another one is noted as incomplete, and begins empty:
    /// its data is of an earlier time, with deleted keys that all other replicas have forgotten. Where
    /// there are no other replicas, its data is all that there is, and stays.
    pub(crate) fn recognised(
        &self,
        held: &mut StoreList,
        others_have_it: bool,
        partition: Partition,
        store: Arc<dyn Backend>,
    ) -> Result<Arc<dyn Backend>, StoreError> {
        let Some(known) = held.stores.get(&partition) else {
            held.note(partition, &store, true);
            return Ok(store);
        };
        if known.store == store.identity() {
            if self.is_older(partition, &store) && others_have_it {
                held.note(partition, &store, false);
            }
            return Ok(store);
        }
        if *known == Known::NEW {
            held.note(partition, &store, !others_have_it);
            return Ok(store);
        }
        let number = partition.number();
        if !others_have_it {
            tracing::warn!(event = "store_exchanged", partition = number);
            held.note(partition, &store, true);
            return Ok(store);
        }
        tracing::warn!(
            event = "store_exchanged",
            partition = number,
            "it answers no reads until it is repaired from the other replicas",
        );
        let now = kvorum_backend::Timestamp(self.runtime.wall_time().micros());
        let store = if store.is_empty(now)? {
            store
        } else {
            // The store may be another partition's; its entries in the log must stay, so it is not erased.
            store.close()?;
            drop(store);
            let moved = self.stores.set_aside(held.size, partition)?;
            tracing::warn!(event = "store_set_aside", partition = number, kept_as = ?moved);
            self.stores.open(held.size, partition, None)?
        };
        held.note(partition, &store, false);
        Ok(store)
    }

    /// True for a store that ends before the batch with which it was closed; logs an error then. Only stores
    /// of a stopped run can be compared: a killed run leaves no lease.
    fn is_older(&self, partition: Partition, store: &Arc<dyn Backend>) -> bool {
        let ends_at = store.durable();
        let closed_at = self.leases.closed_at(partition, store.identity());
        let Some(closed_at) = closed_at.filter(|it| *it > ends_at) else {
            return false;
        };
        tracing::error!(
            event = "store_is_older",
            partition = partition.number(),
            ends_at = ends_at.0,
            closed_at = closed_at.0,
            "an older copy of the store was put back, or its end is lost: values may be older \
             than acknowledged ones; put back the newest copy, or repair the partition from other \
             replicas",
        );
        true
    }

    /// A vnode that is complete if the record has it so. Blocks.
    ///
    /// # Errors
    /// Those of the disk, where the trees of another store, or of a later time, cannot be removed.
    pub(crate) fn known_vnode(
        &self,
        held: &StoreList,
        epoch: Epoch,
        partition: Partition,
        store: Arc<dyn Backend>,
    ) -> Result<Arc<Vnode>, StoreError> {
        let (identity, sequence) = (store.identity(), store.durable());
        self.tree_files.sift(partition, identity, sequence)?;
        let leases = self.leases.clone();
        let vnode = Vnode::new(partition, epoch, store, leases, self.settings)
            .metered(self.runtime.clock(), self.meter.clone());
        let vnode = match &self.places {
            Some(places) => vnode.with_trees(places.clone()),
            None => {
                // It would be kept for trees.
                drop(vnode.store_for_upkeep().take_replayed());
                vnode
            }
        };
        let known = held.stores.get(&partition);
        if known.is_some_and(|known| !known.is_complete) {
            vnode.mark_incomplete();
        }
        let Some(RoundParts { files, mode, .. }) = &self.rounds else {
            return Ok(Arc::new(vnode));
        };
        let lists = self.rounds_of(partition);
        let now = self.runtime.now().elapsed();
        let vnode = vnode.with_rounds(files.clone(), *mode, lists, now);
        Ok(Arc::new(vnode.map_err(|failure| failure.to_string())?))
    }

    fn rounds_of(&self, vnode: Partition) -> Vec<AgreedList> {
        let rounds = self.rounds.as_ref();
        rounds.map_or_else(Vec::new, |it| it.lists_of(vnode))
    }

    /// Lets a vnode learn the watermarks of its lists. Blocks.
    pub(crate) fn follow_rounds(&self, vnode: &Vnode) {
        for list in self.rounds_of(vnode.partition()) {
            if let Err(failure) = vnode.follow_list(list) {
                // Tombstones stay until it is followed again.
                let partition = vnode.partition().number();
                tracing::warn!(event = "round_not_followed", partition, error = %failure);
            }
        }
    }

    /// Records the stores that are about to be opened; returns those that the record had already. Removes
    /// the remains of earlier stores of the others. Blocks.
    fn announce(
        &self,
        held: &mut StoreList,
        state: &ClusterState,
        new: &BTreeMap<Partition, Epoch>,
    ) -> Result<BTreeSet<Partition>, StoreError> {
        let had: BTreeSet<Partition> = new
            .keys()
            .copied()
            .filter(|it| held.since.contains_key(it))
            .collect();
        let receives: BTreeSet<Partition> =
            received(state.ring(), self.node).map(|it| it.0).collect();
        for (partition, since) in new.iter().filter(|(it, _)| !had.contains(it)) {
            self.stores.remove(held.size, *partition, None, None)?;
            held.since.insert(*partition, *since);
            let is_new = receives.contains(partition);
            held.stores.insert(*partition, Known::nothing(is_new));
        }
        self.held.store(held)?;
        Ok(had)
    }

    /// Lets the vnodes of opened stores serve. Those in the record keep their recorded state, since they
    /// may have failed to open before; the others are new. Blocks.
    fn enter(
        &self,
        held: &mut StoreList,
        state: &ClusterState,
        had: &BTreeSet<Partition>,
        opened: Vec<(Partition, Arc<dyn Backend>)>,
    ) -> Result<(), StoreError> {
        let ring = state.ring();
        let others_have_it = ring.replicas_max() > 1;
        let mut vnodes = Vec::with_capacity(opened.len());
        for (partition, store) in opened {
            let store = if had.contains(&partition) {
                self.recognised(held, others_have_it, partition, store)?
            } else {
                // No transfer has filled this new store; the other replicas have the data that it lacks.
                held.note(partition, &store, !others_have_it);
                store
            };
            vnodes.push(self.known_vnode(held, ring.epoch(partition), partition, store)?);
        }
        self.held.store(held)?;
        self.leases.renew()?;
        self.table.put(vnodes);
        Ok(())
    }

    /// Closes and removes stores, with or without a vnode. Blocks.
    pub(crate) fn remove(
        &self,
        held: &mut StoreList,
        partitions: impl IntoIterator<Item = (Partition, Option<Arc<Vnode>>)>,
    ) -> Result<(), StoreError> {
        for (partition, vnode) in partitions {
            let store = vnode.map(|vnode| vnode.store_for_upkeep().clone());
            let known = held.identity(partition);
            self.stores.remove(held.size, partition, known, store)?;
            // Trees of a store that is gone are never taken.
            let _removed_or_left = self.tree_files.remove(partition);
            held.remove(partition);
        }
        self.held.store(held)?;
        Ok(())
    }
}

impl Follower {
    pub(crate) fn new(
        ground: Ground,
        state: ReplicatedState,
        liveness: Liveness,
        peers: Peers,
        held: StoreList,
    ) -> Self {
        Self {
            ground,
            state,
            liveness,
            peers,
            written: tokio::sync::Mutex::new(held),
            members: parking_lot::Mutex::default(),
        }
    }

    /// Works for as long as it is polled.
    pub(crate) async fn run(&self) {
        let mut versions = self.state.versions();
        loop {
            versions.see();
            let is_done = self.follow().await;
            let changed = versions.changed();
            if is_done {
                if changed.await.is_err() {
                    return;
                }
            } else {
                let _changed_or_retried = self.ground.runtime.timeout(RETRY_PAUSE, changed).await;
            }
        }
    }

    /// Brings everything to the state of this moment; false when something is left to be tried again.
    pub(crate) async fn follow(&self) -> bool {
        let mut held = self.written.lock().await;
        let state = self.state.current();
        self.follow_members(&state);
        if is_unknown(&state) {
            return true;
        }
        let ring = state.ring();
        for vnode in self.ground.table.all() {
            vnode.advance_epoch(ring.epoch(vnode.partition()));
        }
        let ground = self.ground.clone();
        let follow = move || {
            for vnode in ground.table.all() {
                ground.follow_rounds(&vnode);
            }
        };
        self.ground.runtime.blocking(follow).await;
        let followed = self.follow_stores(&mut held, &state).await;
        if let Err(error) = &followed {
            tracing::error!(event = "ring_not_followed", error = %error);
        }
        // Stores that were being repaired are looked at again.
        followed.unwrap_or(false) && !held.lacks_something()
    }

    /// Opens missing stores and removes settled ones; false when work is left for later.
    async fn follow_stores(
        &self,
        held: &mut StoreList,
        state: &Arc<ClusterState>,
    ) -> Result<bool, StoreError> {
        if !self.ground.catching_up.is_done() {
            return Ok(false);
        }
        let seen = state.clone();
        let clear = move |ground: &Ground, held: &mut StoreList| clear_stores(ground, held, &seen);
        let Some(missing) = self.with_record(held, clear).await? else {
            return Ok(false);
        };
        let opened = self.open_missing(held, state, missing.new).await;
        let (seen, unopened) = (state.clone(), missing.unopened);
        let retry = move |ground: &Ground, held: &mut StoreList| {
            let is_done = ground.retry(held, &seen, &unopened);
            opened.map(|()| is_done)
        };
        let are_all_open = self.with_record(held, retry).await?;
        Ok(are_all_open && !missing.is_any_later)
    }

    /// Opens stores in batches, and lets the vnodes of each batch serve before the next one begins: on a
    /// node that is left with the partitions of many, their repair does not wait for the last of them. A
    /// store that fails to open does not delay the others.
    async fn open_missing(
        &self,
        held: &mut StoreList,
        state: &Arc<ClusterState>,
        new: BTreeMap<Partition, Epoch>,
    ) -> Result<(), StoreError> {
        if new.is_empty() {
            return Ok(());
        }
        let (seen, announced) = (state.clone(), new.clone());
        let announce =
            move |ground: &Ground, held: &mut StoreList| ground.announce(held, &seen, &announced);
        let had = Arc::new(self.with_record(held, announce).await?);
        let (size, mut failed) = (held.size, None);
        let known = Arc::new(KnownStores::of(held));
        let partitions: Vec<Partition> = new.into_keys().collect();
        for batch in partitions.chunks(OPENINGS_AT_ONCE) {
            let opening = batch.iter().map(|partition| {
                let (ground, known, partition) = (self.ground.clone(), known.clone(), *partition);
                let (state, is_had) = (state.clone(), had.contains(&partition));
                let open = move || {
                    let identity = match is_had {
                        true => ground.judged(&known, &state, partition)?,
                        false => None,
                    };
                    let store = ground.stores.open(size, partition, identity)?;
                    Ok((partition, store))
                };
                self.ground.runtime.blocking(open)
            });
            let mut opened = Vec::with_capacity(batch.len());
            for store in join_all(opening).await {
                match store {
                    Ok(store) => opened.push(store),
                    Err(error) => failed = Some(error),
                }
            }
            let (seen, had) = (state.clone(), had.clone());
            let enter = move |ground: &Ground, held: &mut StoreList| {
                ground.enter(held, &seen, &had, opened)
            };
            self.with_record(held, enter).await?;
        }
        failed.map_or(Ok(()), Err)
    }

    /// Does work that blocks and changes the record of stores.
    pub(crate) async fn with_record<T: Send + 'static>(
        &self,
        held: &mut StoreList,
        work: impl FnOnce(&Ground, &mut StoreList) -> T + Send + 'static,
    ) -> T {
        let (ground, mut next) = (self.ground.clone(), held.clone());
        let work = move || {
            let worked = work(&ground, &mut next);
            (next, worked)
        };
        let (next, worked) = self.ground.runtime.blocking(work).await;
        *held = next;
        worked
    }

    fn follow_members(&self, state: &ClusterState) {
        let members: BTreeSet<NodeId> = state.members().keys().copied().collect();
        let before = std::mem::replace(&mut *self.members.lock(), members.clone());
        for gone in before.difference(&members) {
            self.peers.forget(*gone);
        }
        if before != members {
            self.liveness.follow_members(members);
        }
    }
}

/// Records which stores have become complete, and which were found incomplete.
pub(crate) fn note_repaired(ground: &Ground, held: &mut StoreList) -> Result<(), DiskError> {
    let mut has_changed = false;
    for vnode in ground.table.all() {
        if let Some(known) = held.stores.get_mut(&vnode.partition())
            && known.store == vnode.store_id()
            && known.is_complete != vnode.is_complete()
        {
            known.is_complete = vnode.is_complete();
            has_changed = true;
        }
    }
    if has_changed {
        // Before the record has that nothing is lacking: it is not repaired twice. While something is,
        // a store that was set aside may be the last copy.
        if !held.lacks_something() && ground.table.unopened().is_empty() {
            ground.forget_others(held);
        }
        ground.held.store(held)?;
    }
    Ok(())
}

/// Stores that are to be opened.
struct Missing {
    /// Stores that nothing has tried to open yet.
    new: BTreeMap<Partition, Epoch>,
    /// Stores of the node's start that are being opened or failed to open.
    unopened: BTreeMap<Partition, Unopened>,
    /// Some settled stores are still being opened, and are removed later.
    is_any_later: bool,
}

/// Removes stores that have settled elsewhere, and lists the missing ones; `None` while stores of another
/// ring are in the way. Blocks.
fn clear_stores(
    ground: &Ground,
    held: &mut StoreList,
    state: &ClusterState,
) -> Result<Option<Missing>, StoreError> {
    let wanted = wanted(state, ground.node);
    if held.size != state.ring().size() && held.since.is_empty() {
        held.size = state.ring().size();
    }
    let mut unopened = ground.table.unopened();
    let is_opening = |partition: &Partition| {
        let unopened = unopened.get(partition);
        matches!(unopened, Some(Unopened::Opening { .. }))
    };
    let stale = stale(held, state, ground.node).into_iter();
    let (later, gone): (Vec<Partition>, Vec<Partition>) = stale.partition(is_opening);
    if held.size != state.ring().size() && !later.is_empty() {
        // The stores of another ring have all to be gone before there can be one of this.
        return Ok(None);
    }
    let gone: Vec<_> = gone
        .into_iter()
        .map(|partition| {
            ground.table.forget(partition);
            unopened.remove(&partition);
            (partition, ground.table.take(partition))
        })
        .collect();
    if !gone.is_empty() {
        for (partition, _) in &gone {
            tracing::info!(
                event = "partition_settled_elsewhere",
                partition = partition.number()
            );
        }
        ground.remove(held, gone)?;
    }
    held.size = state.ring().size();
    note_repaired(ground, held)?;
    let have = ground.table.present();
    let new: BTreeMap<Partition, Epoch> = wanted
        .into_iter()
        .filter(|(partition, _)| !have.contains(partition))
        .collect();
    Ok(Some(Missing {
        new,
        unopened,
        is_any_later: !later.is_empty(),
    }))
}
