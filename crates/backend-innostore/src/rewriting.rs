//! Moving memory to the tree, and pages to other files: a rewrite at a time, in steps.
//!
//! A failed rewrite is abandoned, its files are removed, and it is due again; its entries are still
//! in memory. Only a failed sync stops the store.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use kvorum_backend::{ErrorKind, Result, StepOutcome, Timestamp};
use kvorum_page_tree::{
    Change, Changes, FileRecord, OutputSettings, Rewrite, RewriteSettings, Rewritten, live_bytes,
};

use crate::claims::Claim;
use crate::overlay::{Overlay, changes_of};
use crate::room;
use crate::store::Store;
use crate::version::Version;

/// The rewrite in progress, if there is one.
#[derive(Default)]
pub(crate) struct Rewriting {
    going: Option<Going>,
}

struct Going {
    rewrite: Rewrite,
    /// Memory up to this batch is in the tree when it ends.
    covers: Option<u64>,
    _claim: Claim,
    /// Files without readable pages of the tree when it ends: pages still counted there were lost.
    dropping: BTreeSet<u64>,
}

impl Rewriting {
    pub(crate) fn is_going_on(&self) -> bool {
        self.going.is_some()
    }

    /// True while memory is moved.
    pub(crate) fn is_flushing(&self) -> bool {
        let going = self.going.as_ref();
        going.is_some_and(|it| it.covers.is_some())
    }

    /// Continues the rewrite in progress, or moves memory.
    pub(crate) fn step(
        &mut self,
        store: &Store,
        budget_bytes: u64,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        if self.going.is_none() {
            let Some(frozen) = freeze(store) else {
                return Ok(StepOutcome::nothing_left());
            };
            let covers = Some(frozen.last_sequence());
            let changes = Box::new(changes_of(frozen));
            let bytes = room::bytes_to_move(store);
            self.begin(store, changes, (BTreeSet::new(), bytes), covers, now);
        }
        self.go_on(store, budget_bytes)
    }

    /// Begins to rewrite the paths to these keys, so that the tree has no page in these files.
    pub(crate) fn begin_leaving(
        &mut self,
        store: &Store,
        keys: BTreeSet<Bytes>,
        (files, are_dropped): (BTreeSet<u64>, bool),
        now: Timestamp,
    ) {
        let changes = keys.into_iter().map(|key| (key, Change::Touch));
        let records = store.manifest.lock().files.clone();
        let left = records.iter().filter(|it| files.contains(&it.number));
        let bytes = room::bytes_to_leave(store, left.map(|it| it.live_bytes).sum());
        self.begin(store, Box::new(changes), (files.clone(), bytes), None, now);
        if let Some(going) = self.going.as_mut().filter(|_| are_dropped) {
            going.dropping = files;
        }
    }

    /// Makes changes in the tree at once, below memory. Must be called while no rewrite is in
    /// progress.
    pub(crate) fn change_below(
        &mut self,
        store: &Store,
        changes: Vec<(Bytes, Change)>,
    ) -> Result<u64> {
        let changes = Box::new(changes.into_iter());
        self.begin(store, changes, (BTreeSet::new(), 0), None, Timestamp(0));
        self.go_on(store, u64::MAX).map(|it| it.cost_bytes)
    }

    /// Abandons the rewrite; its files are removed.
    pub(crate) fn abandon(&mut self, store: &Store) {
        if let Some(going) = self.going.take() {
            give_up(store, &going.rewrite);
        }
    }

    fn begin(
        &mut self,
        store: &Store,
        changes: Changes,
        (leaving, claimed_bytes): (BTreeSet<u64>, u64),
        covers: Option<u64>,
        now: Timestamp,
    ) {
        let settings = RewriteSettings {
            page_bytes: store.settings.page_bytes,
            body_apart_bytes: store.settings.body_apart_bytes,
            leaving,
        };
        let output = OutputSettings {
            disk: store.disk.clone(),
            directory: store.directory.clone(),
            store: store.identity(),
            generation: store.manifest.lock().generation + 1,
            next_number: store.next_number.load(Ordering::Acquire),
            file_bytes_max: store.settings.file_bytes_max,
        };
        let (tree, expiry) = (store.version.load().tree.clone(), store.expiry);
        let is_gone = Box::new(move |fields: &_| expiry.is_over(fields, now));
        let rewrite = Rewrite::new(tree, changes, settings, output, is_gone);
        self.going = Some(Going {
            rewrite,
            covers,
            _claim: Claim::new(store.shared.claims.clone(), claimed_bytes),
            dropping: BTreeSet::new(),
        });
    }

    pub(crate) fn go_on(&mut self, store: &Store, budget_bytes: u64) -> Result<StepOutcome> {
        let Some(mut going) = self.going.take() else {
            return Ok(StepOutcome::nothing_left());
        };
        let outcome = going
            .rewrite
            .step(budget_bytes)
            .inspect_err(|_| give_up(store, &going.rewrite))?;
        if !outcome.is_done {
            self.going = Some(going);
            return Ok(outcome);
        }
        end(store, &mut going).inspect_err(|_| give_up(store, &going.rewrite))?;
        Ok(outcome)
    }
}

/// Leaves memory to a rewrite; later puts go to another overlay. Entries that an earlier rewrite
/// did not move come first.
fn freeze(store: &Store) -> Option<std::sync::Arc<Overlay>> {
    let version = store.version.load();
    if let Some(frozen) = &version.frozen {
        return Some(frozen.clone());
    }
    if version.overlay.is_empty() {
        return None;
    }
    store.change_version(|version| {
        let full = std::mem::take(&mut version.overlay);
        version.frozen = Some(full);
        version.frozen_count += 1;
    });
    store.version.load().frozen.clone()
}

fn give_up(store: &Store, rewrite: &Rewrite) {
    let begun = rewrite.files_begun();
    store.next_number.fetch_max(begun.end, Ordering::AcqRel);
    // The manifest may list them if its change was interrupted at an unknown point.
    if store.intake.check_not_failed().is_ok() {
        store.remove_files(begun);
    }
}

fn end(store: &Store, going: &mut Going) -> Result<()> {
    // The tree must not be ahead of the durable part of the log.
    store.log.sync()?;
    let rewritten = going.rewrite.finish().map_err(|error| match error.kind() {
        ErrorKind::Full | ErrorKind::Unread | ErrorKind::Exhausted => error,
        _ => store.intake.fail(&error),
    })?;
    let begun = going.rewrite.files_begun();
    store.next_number.fetch_max(begun.end, Ordering::AcqRel);
    install(store, &rewritten, going.covers, &going.dropping)
}

/// Replaces the former tree by the next one: on disk first, then for readers.
fn install(
    store: &Store,
    rewritten: &Rewritten,
    covers: Option<u64>,
    dropping: &BTreeSet<u64>,
) -> Result<()> {
    for lost in &rewritten.lost {
        let _reported_in_the_status = store.losses.note_page(lost);
    }
    let files = files_after(store, rewritten)?;
    let (kept, gone): (Vec<FileRecord>, Vec<FileRecord>) = files
        .into_iter()
        .partition(|it| it.live_bytes > 0 && !dropping.contains(&it.number));
    let gone: BTreeSet<u64> = gone.iter().map(|it| it.number).collect();
    let tree = rewritten
        .tree
        .without_files(|number| gone.contains(&number));
    let has_extras = store.has_extras.load(Ordering::Acquire);
    let live_bytes: u64 = kept.iter().map(|it| it.live_bytes).sum();
    let (came, went) = rewritten.bodies;
    let body_bytes = (store.manifest.lock().body_bytes + came).saturating_sub(went);
    let body_bytes = body_bytes.min(live_bytes);
    store.change_manifest(|manifest| {
        manifest.root = tree.root();
        manifest.files = kept;
        manifest.body_bytes = body_bytes;
        // Later puts are there as well. Before this, the log itself may not outlive a crash.
        manifest.value_log = store.log.log_id();
        manifest.has_extras = has_extras;
        manifest.sequence = manifest.sequence.max(covers.unwrap_or(0));
    })?;
    store
        .tree_bytes
        .store(live_bytes - body_bytes, Ordering::Relaxed);
    store.change_version(|version: &mut Version| {
        version.tree = tree;
        if covers.is_some() {
            version.frozen = None;
        }
    });
    for lost in &rewritten.lost {
        store.losses.leave_out(lost);
    }
    if !gone.is_empty() {
        // Their damaged bytes are copied before they are removed.
        store.losses.write(&*store.disk);
        store.remove_files(gone);
    }
    let written = rewritten.written.values().sum();
    store
        .counters
        .written_bytes
        .fetch_add(written, Ordering::Relaxed);
    store.counters.rewrites.fetch_add(1, Ordering::Relaxed);
    if covers.is_some() {
        store.log.usage_changed();
    }
    Ok(())
}

/// All files, with the live bytes of each.
fn files_after(store: &Store, rewritten: &Rewritten) -> Result<Vec<FileRecord>> {
    let mut files = store.manifest.lock().files.clone();
    files.extend(rewritten.written.iter().map(|(number, len)| FileRecord {
        number: *number,
        len: *len,
        live_bytes: 0,
    }));
    let counted = match rewritten.lost.iter().any(|it| it.is_branch) {
        true => Some(live_bytes(&rewritten.tree)?),
        false => None,
    };
    for file in &mut files {
        let of = |counts: &std::collections::BTreeMap<u64, u64>| {
            counts.get(&file.number).copied().unwrap_or(0)
        };
        file.live_bytes = match &counted {
            Some(counted) => of(counted),
            None => (file.live_bytes + of(&rewritten.added)).saturating_sub(of(&rewritten.retired)),
        };
    }
    Ok(files)
}
