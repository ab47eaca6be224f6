//! Files of trees that do not fit their stores are gone before the stores are written to.

use kvorum_disk::MemoryDisk;

use super::*;
use crate::kept_trees::encode;

const STAMP: KeptStamp = KeptStamp {
    store: StoreId(7),
    complete: Sequence(10),
    reached: Sequence(12),
    lost: 0,
    built_at: 1,
    placements: 2,
};

fn files() -> (MemoryDisk, TreeFiles) {
    let disk = MemoryDisk::new();
    disk.create_directory(Path::new("data")).unwrap();
    let files = TreeFiles::new(Arc::new(disk.clone()), Path::new("data"));
    (disk, files)
}

fn partition() -> Partition {
    Partition::of_number(5).unwrap()
}

fn is_there(disk: &MemoryDisk) -> bool {
    let path = Path::new("data/hash_trees/5");
    disk.info(path).unwrap().is_some()
}

#[test]
fn a_file_of_the_stores_past_stays_and_is_read() {
    let (disk, files) = files();
    assert!(files.read(partition()).is_none());
    files.sift(partition(), StoreId(7), Sequence(12)).unwrap();
    files.write(partition(), &encode(&STAMP, &[])).unwrap();
    for sequence in [12, 13, 1_000] {
        let sequence = Sequence(sequence);
        files.sift(partition(), StoreId(7), sequence).unwrap();
    }
    assert!(is_there(&disk));
    let read = files.read(partition()).unwrap();
    assert_eq!(read, Ok((STAMP, BTreeMap::new())));
}

#[test]
fn a_file_of_another_store_or_of_its_future_is_removed() {
    for (store, sequence) in [(8, 12), (7, 11), (7, 0)] {
        let (disk, files) = files();
        files.write(partition(), &encode(&STAMP, &[])).unwrap();
        let (store, sequence) = (StoreId(store), Sequence(sequence));
        files.sift(partition(), store, sequence).unwrap();
        assert!(!is_there(&disk), "{store:?} {sequence:?}");
        // The store may reach the same sequence again with other contents.
        files.sift(partition(), StoreId(7), Sequence(12)).unwrap();
        assert!(files.read(partition()).is_none());
    }
}

#[test]
fn a_damaged_stamp_is_removed_and_a_damaged_tree_is_reported() {
    let (disk, files) = files();
    let mut bytes = encode(&STAMP, &[]);
    bytes[20] ^= 1;
    files.write(partition(), &bytes).unwrap();
    files.sift(partition(), StoreId(7), Sequence(12)).unwrap();
    assert!(!is_there(&disk));
    files.write(partition(), b"short").unwrap();
    files.sift(partition(), StoreId(7), Sequence(12)).unwrap();
    assert!(!is_there(&disk));
    bytes[20] ^= 1;
    bytes.push(0);
    files.write(partition(), &bytes).unwrap();
    assert!(files.read(partition()).unwrap().is_err());
}

#[test]
fn all_files_go_at_once() {
    let (disk, files) = files();
    remove_kept_trees(&disk, Path::new("data")).unwrap();
    files.write(partition(), &encode(&STAMP, &[])).unwrap();
    remove_kept_trees(&disk, Path::new("data")).unwrap();
    assert!(!is_there(&disk));
}
