//! Erasing a store: all contents are removed, and later puts belong to a store of another identity.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_backend::{Result, StoreId};
use kvorum_page_tree::Tree;

use crate::overlay::Overlay;
use crate::tree::OpenTree;
use crate::version::Version;

impl OpenTree {
    /// Removes everything. Open snapshots end as if their leases had run out.
    pub(crate) fn erase(&self) -> Result<()> {
        let store = &*self.store;
        let mut jobs = self.jobs.lock();
        store.intake.check_writable()?;
        jobs.abandon(store);
        jobs.scrub.forget(&*store.disk, &store.directory);
        let doubts = &store.losses.doubts;
        let (doubted, _) = doubts.record(|_| true);
        doubts.clear();
        // Puts wait for the device here, since there is no tree for them.
        let writer = store.writer.lock();
        let sequence = writer.last_sequence;
        let erased = StoreId(store.identity());
        store.log.announce_erasure(erased)?;
        let identity = (store.draw)();
        let mut files = Vec::new();
        store
            .change_manifest(|manifest| {
                files.extend(manifest.files.drain(..).map(|it| it.number));
                manifest.erased = manifest.identity;
                manifest.identity = identity;
                manifest.sequence = sequence;
                manifest.has_extras = false;
                manifest.body_bytes = 0;
                manifest.root = None;
            })
            .inspect_err(|_| doubts.restore(&doubted))?;
        store.identity.store(identity, Ordering::Release);
        store.tree_bytes.store(0, Ordering::Relaxed);
        store.has_extras.store(false, Ordering::Release);
        let frozen_count = store.version.load().frozen_count + 1;
        store.version.store(Arc::new(Version {
            overlay: Arc::new(Overlay::default()),
            frozen: None,
            tree: Tree::new(identity, None, BTreeMap::new(), store.shared.cache.clone()),
            frozen_count,
        }));
        store.durable.fetch_max(sequence, Ordering::AcqRel);
        drop(writer);
        store.pins.release_all();
        store.losses.clear(&*store.disk);
        store.remove_files(files);
        store.disk.sync_directory(&store.directory)?;
        store.log.forget(erased, StoreId(identity))
    }
}
