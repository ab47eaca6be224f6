//! The card: every flipped bit is detected, and a store is found by the card or reported as unusable.

use kvorum_disk::{MemoryDisk, create_directory_durably, replace_file};
use kvorum_golden::assert_bytes;

use super::*;

fn card() -> Card {
    let child = |name: &str, engine: &str, identity| KnownChild {
        name: name.to_owned(),
        engine: engine.to_owned(),
        identity: StoreId(identity),
    };
    Card {
        generation: 3,
        identity: 7,
        erased: 6,
        children: vec![child("bc", "bitcask", 1), child("ldb", "leveldb", 2)],
        label: "5".to_owned(),
    }
}

fn written(cards: [&[u8]; 2]) -> MemoryDisk {
    let disk = MemoryDisk::new();
    create_directory_durably(&disk, Path::new("s")).unwrap();
    for (name, bytes) in CARD_NAMES.iter().zip(cards) {
        replace_file(&disk, &Path::new("s").join(name), bytes).unwrap();
    }
    disk
}

fn find(disk: &MemoryDisk, label: &str, child: &FoundStore) -> FoundStore {
    let belonging = Belonging {
        label: label.to_owned(),
        identity: None,
    };
    find_store(disk, Path::new("s"), &belonging, &|_, _| Ok(child.clone())).unwrap()
}

fn store(identity: u64, erased: u64, log: u64) -> FoundStore {
    FoundStore::Store {
        identity: StoreId(identity),
        erased: StoreId(erased),
        log,
        is_labelled: true,
    }
}

#[test]
fn the_bytes_are_as_drawn() {
    let drawing = [
        ("magic \"KVmulti\" and a zero", 8),
        ("format version, 1", 1),
        ("zero", 3),
        ("masked CRC-32C of bytes 0..12 and 16 to the end", 4),
        ("generation", 8),
        ("identity", 8),
        ("identity before the last erasure", 8),
        ("number of children", 1),
        ("length of the child's name", 1),
        ("name", 2),
        ("length of its engine's name", 1),
        ("engine", 7),
        ("identity", 8),
        ("length of the second child's name", 1),
        ("name", 3),
        ("length of its engine's name", 1),
        ("engine", 7),
        ("identity", 8),
        ("length of the label", 1),
        ("label", 1),
    ];
    assert_bytes("card.hex", &drawing, &card().encode());
}

#[test]
fn it_is_read_as_written_and_no_flip_or_cut_is_believed() {
    let (card, path) = (card(), Path::new("s/multi-0"));
    let bytes = card.encode();
    assert_eq!(Card::decode(&bytes, path), Ok(Some(card.clone())));
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        assert_eq!(Card::decode(&flipped, path), Ok(None), "byte {at}");
        assert_eq!(Card::decode(&bytes[..at], path), Ok(None), "cut at {at}");
        let disk = written([&flipped, &bytes[..at]]);
        for name in CARD_NAMES {
            let piece = crate::anatomy::MultiFile::Card
                .piece(&disk, &Path::new("s").join(name))
                .unwrap();
            assert!(piece.is_damaged(), "byte {at} of {name}");
        }
        // The other copy is valid, whichever copy is damaged.
        let disk = written([&flipped, &bytes]);
        let found = read(&disk, Path::new("s"), &Belonging::default()).unwrap();
        assert_eq!(found.content, Some(card.clone()));
        assert!(found.is_uneven);
    }
}

#[test]
fn a_store_is_found_with_its_children_and_not_without_them() {
    let bytes = card().encode();
    let disk = written([&bytes, &bytes]);
    assert_eq!(
        known_children(&disk, Path::new("s"), &Belonging::default()),
        Ok(card().children)
    );
    let only = |disk: &MemoryDisk, child: FoundStore| find(disk, "5", &child);
    let single = Card {
        children: card().children[..1].to_vec(),
        ..card()
    };
    let bytes = single.encode();
    let disk_of_one = written([&bytes, &bytes]);
    assert_eq!(only(&disk_of_one, store(1, 0, 9)), store(7, 6, 9));
    // An interrupted erasure: the child already has another identity.
    assert_eq!(only(&disk_of_one, store(4, 1, 9)), store(7, 6, 9));
    for (child, named) in [
        (FoundStore::Nothing, "s/bc is missing or empty"),
        (store(2, 0, 9), "s/bc holds another store"),
        (FoundStore::Unusable("it is damaged".into()), "damaged"),
    ] {
        let FoundStore::Unusable(why) = only(&disk, child) else {
            panic!("{named}: was found");
        };
        assert!(why.contains(named), "{why}");
    }
    let foreign = find(&disk, "6", &store(1, 0, 9));
    assert!(matches!(foreign, FoundStore::Unusable(_)), "{foreign:?}");
    let empty = find(&MemoryDisk::new(), "5", &FoundStore::Nothing);
    assert_eq!(empty, FoundStore::Nothing);
}
