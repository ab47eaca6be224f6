//! Stores that are in the wrong directories: entries that are erased, kept, and left in the log.

use std::path::Path;

use bytes::Bytes;
use kvorum_backend::{Batch, Durability, Durable, Fields, Write};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_cluster::checked_text::encode;
use kvorum_disk::{EntryKind, MemoryDisk, create_directory_durably, read_file, replace_file};
use kvorum_encoding::StorageKey;
use kvorum_runtime::Executor;

use super::*;

struct Node {
    disk: Arc<dyn Disk>,
    executor: Executor,
    settings: Settings,
    data: DataDirectory,
}

fn size() -> RingSize {
    RingSize::new(8).unwrap()
}

fn partition(number: u16) -> Partition {
    size().partition(number).unwrap()
}

impl Node {
    fn new() -> Self {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let overrides = ["platform_data_dir=data", "ring_size=8"];
        let configuration = kvorum_settings::Configuration::load("", &overrides).unwrap();
        let settings = configuration.settings;
        let data = DataDirectory::open(&disk, &settings.node.data_dir).unwrap();
        Self {
            disk,
            executor: Runtime::simulated(1).unwrap(),
            settings,
            data,
        }
    }

    fn stores(&self) -> NodeStores {
        let runtime = self.executor.runtime();
        let disk = self.disk.clone();
        let stores = NodeStores::new(disk, &runtime, &self.settings, &self.data, None).unwrap();
        // A waiting writer commits its own write.
        log_of(&stores).stop();
        stores
    }

    fn directory(&self, number: u16) -> PathBuf {
        let index = partition(number).index_decimal(size());
        self.settings.bitcask.data_root.join(index)
    }

    /// A store as a version before this one left it, without the name of its owner.
    fn leave_unlabelled(&self, directory: &Path, log: &ValueLog) -> StoreId {
        let randomness = self.executor.runtime().randomness();
        let draw = Arc::new(move || randomness.next_u64());
        let (settings, log) = (BitcaskSettings::default(), log.clone());
        let store = Bitcask::open(self.disk.clone(), directory, settings, draw, Some(log));
        let store: Arc<dyn Backend> = Arc::new(store.unwrap());
        put(&*store);
        store.close().unwrap();
        store.identity()
    }

    /// Records the store of partition 1 as this one.
    fn record(&self, store: StoreId) {
        let ring = &self.settings.node.ring_state_dir;
        create_directory_durably(&*self.disk, ring).unwrap();
        let body = format!("ring 8\n1 1 {} complete\n", store.0);
        let bytes = encode("kvorum stores of this node", 1, &body);
        replace_file(&*self.disk, &ring.join("stores"), &bytes).unwrap();
        let recorded = known_stores(&*self.disk, ring).unwrap().unwrap();
        assert_eq!(recorded.stores.len(), 1);
    }

    fn copy(&self, from: &Path, to: &Path) {
        create_directory_durably(&*self.disk, to).unwrap();
        for entry in self.disk.list(from).unwrap() {
            if entry.kind == EntryKind::File {
                let bytes = read_file(&*self.disk, &from.join(&entry.name), 1 << 30).unwrap();
                replace_file(&*self.disk, &to.join(&entry.name), &bytes).unwrap();
            }
        }
    }

    fn is_there(&self, path: &Path) -> bool {
        self.disk.info(path).unwrap().is_some()
    }
}

fn log_of(stores: &NodeStores) -> &ValueLog {
    stores.value_log.as_ref().unwrap()
}

fn needs(log: &ValueLog, store: StoreId) -> bool {
    log.holders().contains(&store)
}

fn put(store: &dyn Backend) {
    let key = StorageKey::from_encoded("key");
    let body = Bytes::from(vec![b'v'; 5000]);
    let write = Write::put(key, Fields::default(), Bytes::new(), body);
    let receipt = store.put(&Batch::of(write), Durability::Grouped).unwrap();
    if let Durable::After(ticket) = receipt.durable {
        ticket.wait().unwrap();
    }
}

fn opened(stores: &NodeStores, number: u16) -> Arc<dyn Backend> {
    let read = stores.read(size(), partition(number), None).unwrap();
    stores.admit(&[read]).remove(0).unwrap()
}

/// Regression: the log kept the entries of stores that were replaced or given up for good, and all
/// segments with such entries.
#[test]
fn the_log_keeps_nothing_of_a_store_that_was_given_up_and_everything_of_the_others() {
    let node = Node::new();
    let stores = node.stores();
    let _hints = Stores::begin(&stores).unwrap();
    let [gone, open] = [1, 2].map(|number| opened(&stores, number));
    let log = log_of(&stores);
    for store in [&gone, &open] {
        put(&**store);
        log.roll().unwrap();
    }
    let segments = log.status().segments;
    let (gone_id, open_id) = (gone.identity(), open.identity());
    gone.close().unwrap();
    drop(gone);
    // The record no longer has it, but its directory exists, in the wrong place.
    let known = BTreeSet::from([open_id]);
    let (own, elsewhere) = (node.directory(1), node.directory(3));
    node.disk.rename(&own, &elsewhere).unwrap();
    stores.forget_others(&known).unwrap();
    let needs = |store| needs(log, store);
    assert!(needs(gone_id) && needs(open_id));
    // Another directory does not name its store.
    let unreadable = node.directory(4);
    node.copy(&elsewhere, &unreadable);
    for name in ["store-0", "store-1"] {
        replace_file(&*node.disk, &unreadable.join(name), b"no card").unwrap();
    }
    stores.set_aside(size(), partition(3)).unwrap();
    stores.forget_others(&known).unwrap_err();
    assert!(needs(gone_id));
    stores.set_aside(size(), partition(4)).unwrap();
    stores
        .forget_others(&BTreeSet::from([open_id, gone_id]))
        .unwrap();
    assert!(needs(gone_id));
    stores.forget_others(&known).unwrap();
    assert!(!needs(gone_id) && needs(open_id));
    assert_eq!(log.status().segments, segments - 1);
}

/// Regression: at the first start after an upgrade, stores are not labelled with a partition. A
/// store in another one's directory was opened and erased as a left-over, and the log dropped its
/// entries.
#[test]
fn a_left_over_is_erased_only_if_it_is_known_or_labelled() {
    let node = Node::new();
    let stores = node.stores();
    let _hints = Stores::begin(&stores).unwrap();
    let log = log_of(&stores);
    let lost = node.settings.bitcask.data_root.join("lost");
    let is_kept = |number: u16| {
        let index = partition(number).index_decimal(size());
        node.is_there(&lost.join(format!("{index}.1")))
    };
    let unlabelled = |number: u16| node.leave_unlabelled(&node.directory(number), log);
    let remove = |number: u16, known| stores.remove(size(), partition(number), known, None);

    let unknown = unlabelled(1);
    remove(1, None).unwrap();
    assert!(is_kept(1) && needs(log, unknown));

    let other = unlabelled(2);
    remove(2, Some(StoreId(77))).unwrap();
    assert!(is_kept(2) && needs(log, other));

    let own = unlabelled(3);
    remove(3, Some(own)).unwrap();
    assert!(!is_kept(3) && !node.is_there(&node.directory(3)) && !needs(log, own));

    let labelled = opened(&stores, 4);
    put(&*labelled);
    labelled.close().unwrap();
    let identity = labelled.identity();
    drop(labelled);
    remove(4, None).unwrap();
    assert!(!is_kept(4) && !node.is_there(&node.directory(4)) && !needs(log, identity));

    // The directory of a known one is gone already: nothing waits for it.
    let gone = unlabelled(5);
    node.disk.remove_directory(&node.directory(5)).unwrap();
    remove(5, Some(gone)).unwrap();
    assert!(!needs(log, gone));
}

/// Regression: a copy of a partition's directory was opened as the store of hints, and both stores
/// used the same entries in the log. When the copy was set aside, the log dropped the partition's
/// entries.
#[test]
fn a_copy_of_a_partitions_store_is_no_store_of_hints() {
    let node = Node::new();
    let hints = node.settings.node.data_dir.join("hints/bitcask");
    let identity = {
        let stores = node.stores();
        let identity = node.leave_unlabelled(&node.directory(1), log_of(&stores));
        log_of(&stores).roll().unwrap();
        identity
    };
    node.copy(&node.directory(1), &hints);
    {
        // Without a record, either may be the copy: the second one is not opened.
        let stores = node.stores();
        let as_hints = Stores::begin(&stores).unwrap();
        assert_eq!(as_hints.identity(), identity);
        let refused = stores.read(size(), partition(1), None).err().unwrap();
        let said = refused.to_string();
        assert!(
            said.contains("a copy of that of the store of hints"),
            "{said}"
        );
    }
    node.record(identity);
    let stores = node.stores();
    let empty = Stores::begin(&stores).unwrap();
    assert_ne!(empty.identity(), identity);
    assert!(node.is_there(&hints.with_file_name("lost").join("bitcask-1")));
    assert!(needs(log_of(&stores), identity));
    let known = Some(identity);
    let own = stores.read(size(), partition(1), known).unwrap();
    let own = stores.admit(&[own]).remove(0).unwrap();
    assert_eq!((own.identity(), own.status().keys), (identity, 1));
}
