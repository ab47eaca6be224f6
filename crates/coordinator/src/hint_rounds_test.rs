//! A store of hints answers rounds by what it has, and drops hints from before a watermark.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{Durability, Reading, Timestamp};
use kvorum_backend_memory::{MemoryBackend, Settings};
use kvorum_disk::{Disk as _, MemoryDisk};
use kvorum_encoding::{Bucket, BucketType, Key, StorageKey};
use kvorum_object::{
    ActorId, Clock, Content, Dot, Limits, Object, ObjectTag, Resolution, Stored, Write,
};
use kvorum_reaping::{Incarnation, KeptBecause, ListName, RoundName, Watermark};
use kvorum_ring::{Epoch, Partition, RingSize};
use kvorum_runtime::SeededRandomness;
use kvorum_vnode::{
    Handled, LeaseTable, NoteFiles, Operation, ReplicaReply, ReplicaRequest, TreeName, TreePlacing,
    Vnode, VnodeSettings,
};

use crate::hints::{HintStore as _, VnodeHints};

const NOW: Timestamp = Timestamp(1_000_000);
const LIST: ListName = ListName {
    partition: 2,
    n_val: 3,
};
const OTHER: ListName = ListName {
    partition: 5,
    n_val: 3,
};

/// Keys that begin with "o" belong to the other list.
struct TwoLists;

impl TreePlacing for TwoLists {
    fn tree_of(&self, key: &StorageKey) -> Option<TreeName> {
        let key = key.decode().ok()?.key;
        let list = match key.as_bytes().first() {
            Some(b'o') => OTHER,
            _ => LIST,
        };
        Some(TreeName {
            owner: partition(list.partition),
            n_val: list.n_val,
        })
    }
}

fn partition(number: u16) -> Partition {
    RingSize::new(8).unwrap().partition(number).unwrap()
}

fn round(number: u64) -> RoundName {
    RoundName { number, nonce: 70 }
}

fn watermark(number: u64) -> Watermark {
    Watermark {
        round: round(number),
        epoch: 1,
        replicas: vec![Incarnation(1)],
    }
}

fn opened(disk: &MemoryDisk, backend: &Arc<MemoryBackend>) -> VnodeHints {
    let directory = Path::new("hints");
    let randomness = Arc::new(SeededRandomness::new(1));
    disk.create_directory(directory).ok();
    let leases = LeaseTable::open(Arc::new(disk.clone()), directory, randomness);
    let leases = Arc::new(leases.unwrap().0);
    let settings = VnodeSettings {
        limits: Limits::default(),
    };
    let backend = backend.clone();
    let vnode = Vnode::new(
        partition(0),
        Epoch::FIRST,
        backend,
        leases.clone(),
        settings,
    );
    leases.renew().unwrap();
    let files = NoteFiles::new(Arc::new(disk.clone()), directory);
    let hints = VnodeHints::new(vnode).with_rounds(files, Arc::new(TwoLists));
    hints.unwrap()
}

fn store() -> Arc<MemoryBackend> {
    Arc::new(MemoryBackend::new(Settings::default(), || 7))
}

fn add(hints: &VnodeHints, key: &str) {
    let write = Write {
        context: &Clock::new(),
        content: Content {
            value: Bytes::from_static(b"value"),
            ..Content::default()
        },
        dot: Dot {
            actor: ActorId(77),
            counter: 1,
        },
        now: kvorum_object::Timestamp::from_micros(NOW.0),
        resolution: Resolution::KeepSiblings,
    };
    let object: Object = kvorum_object::update(Stored::Absent, write).unwrap();
    let key = Key::new(key.as_bytes().to_vec());
    let request = ReplicaRequest {
        partition: partition(3),
        epoch: Epoch::FIRST,
        operation: Operation::Store {
            key: StorageKey::new(&BucketType::default_type(), &Bucket::from("bucket"), &key),
            object: Arc::new(object),
            resolution: Resolution::KeepSiblings,
            tag: ObjectTag::default(),
            durability: Durability::Buffered,
        },
    };
    let handled = hints.handle(&request, NOW, Reading::MayBlock);
    assert!(matches!(
        handled,
        Handled::Done(ReplicaReply::Received { .. })
    ));
}

fn count(hints: &VnodeHints) -> usize {
    let page = hints.page(None, &crate::HintPageLimits::default(), NOW);
    page.unwrap().hints.len()
}

#[test]
fn hints_of_a_list_are_counted_and_others_are_not() {
    let hints = opened(&MemoryDisk::new(), &store());
    add(&hints, "other");
    assert_eq!(hints.note_if_none(LIST, round(1)), Ok(0));
    assert_eq!(hints.has_still_none(LIST, round(1)), Ok(()));
    add(&hints, "other too");
    assert_eq!(hints.has_still_none(LIST, round(1)), Ok(()));
    add(&hints, "a");
    let outstanding = Err(KeptBecause::HintsOutstanding);
    assert_eq!(hints.has_still_none(LIST, round(1)), outstanding);
    assert_eq!(hints.note_if_none(LIST, round(2)), Ok(1));
    assert_eq!(hints.note_if_none(OTHER, round(1)), Ok(2));
}

#[test]
fn a_watermark_is_confirmed_by_the_run_that_noted_its_round() {
    let (disk, backend) = (MemoryDisk::new(), store());
    let hints = opened(&disk, &backend);
    assert_eq!(hints.note_if_none(LIST, round(1)), Ok(0));
    let raised = watermark(1);
    let confirmed = hints.confirm_round(LIST, Some(&raised), round(1));
    assert_eq!(confirmed, Ok(()));
    let not_learned = hints.confirm_round(LIST, None, round(1));
    assert_eq!(not_learned, Err(KeptBecause::OtherWatermark));
    drop(hints);
    let hints = opened(&disk, &backend);
    let confirmed = hints.confirm_round(LIST, Some(&raised), round(1));
    assert_eq!(confirmed, Err(KeptBecause::HintsOutstanding));
}

#[test]
fn hints_that_came_behind_the_note_outlast_a_restart() {
    let (disk, backend) = (MemoryDisk::new(), store());
    let hints = opened(&disk, &backend);
    assert_eq!(hints.note_if_none(LIST, round(1)), Ok(0));
    add(&hints, "a");
    drop(hints);
    let hints = opened(&disk, &backend);
    hints.learn(LIST, &watermark(1)).unwrap();
    assert_eq!(count(&hints), 1);
}

#[test]
fn a_store_without_the_note_drops_what_it_was_opened_with_and_nothing_else() {
    let (disk, backend) = (MemoryDisk::new(), store());
    let hints = opened(&disk, &backend);
    add(&hints, "a");
    add(&hints, "other");
    drop(hints);
    let hints = opened(&disk, &backend);
    add(&hints, "b");
    hints.learn(LIST, &watermark(4)).unwrap();
    assert_eq!(count(&hints), 2, "\"a\" is from before");
    assert_eq!(hints.note_if_none(LIST, round(5)), Ok(1));
    hints.learn(LIST, &watermark(4)).unwrap();
    drop(hints);
    let hints = opened(&disk, &backend);
    hints.learn(LIST, &watermark(4)).unwrap();
    assert_eq!(count(&hints), 2);
}

/// The notes lie beside the store: an older copy of the store may be restored without them.
#[test]
fn notes_do_not_count_for_an_older_copy_of_the_store() {
    let disk = MemoryDisk::new();
    let (before, after) = (store(), store());
    add(&opened(&MemoryDisk::new(), &before), "a");
    let hints = opened(&disk, &after);
    for key in ["other", "other 2", "other 3"] {
        add(&hints, key);
    }
    assert_eq!(hints.note_if_none(LIST, round(4)), Ok(0));
    drop(hints);
    let hints = opened(&disk, &before);
    assert_eq!(count(&hints), 1);
    hints.learn(LIST, &watermark(4)).unwrap();
    assert_eq!(count(&hints), 0);
}
