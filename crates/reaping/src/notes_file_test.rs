//! The file of a vnode's notes: they come back as they were, and no damage to it is taken for
//! notes.

use std::collections::BTreeMap;

use kvorum_encoding::{checksum, mask_checksum};
use kvorum_golden::assert_bytes;

use crate::extent::{BatchName, Extent};
use crate::note::{Mark, Note, Receiving};
use crate::notes_file::{ListName, NotesFileError, VnodeNotes, decode_notes, encode_notes};
use crate::watermark::RoundName;

fn round(number: u64) -> RoundName {
    RoundName { number, nonce: 70 }
}

fn extent(stores: u64) -> Extent {
    Extent::up_to((0..stores).map(|store| BatchName {
        store,
        sequence: 10 * store,
    }))
}

/// One list for each form that a note can have.
fn every_form() -> BTreeMap<ListName, Note> {
    let mark = |is_confirmed| {
        Some(Mark {
            round: round(4),
            extent: extent(2),
            is_confirmed,
        })
    };
    let receiving = |hidden| {
        Some(Receiving {
            watermark: round(5),
            hidden,
        })
    };
    let marks = [None, mark(false), mark(true)];
    let all_receiving = [None, receiving(None), receiving(Some(extent(1)))];
    let mut notes = BTreeMap::new();
    for (at, mark) in (0..).zip(&marks) {
        for (n_val, receiving) in (1..).zip(&all_receiving) {
            let list = ListName {
                partition: 300 * at,
                n_val,
            };
            let note = Note {
                joined: u64::from(n_val),
                mark: mark.clone(),
                receiving: receiving.clone(),
            };
            notes.insert(list, note);
        }
    }
    notes
}

fn written_at_8(lists: BTreeMap<ListName, Note>) -> VnodeNotes {
    VnodeNotes {
        written_at: BatchName {
            store: 9,
            sequence: 8,
        },
        lists,
    }
}

/// With the checksum of its bytes.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let covered = bytes.len() - 4;
    let sum = mask_checksum(checksum(&bytes[..covered]));
    bytes[covered..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn notes_come_back_as_they_were() {
    for lists in [BTreeMap::new(), every_form()] {
        let notes = written_at_8(lists);
        assert_eq!(decode_notes(&encode_notes(&notes)), Ok(notes));
    }
}

#[test]
fn the_bytes_are_as_drawn() {
    let list = ListName {
        partition: 0x0102,
        n_val: 3,
    };
    let note = Note {
        joined: 7,
        mark: Some(Mark {
            round: round(4),
            extent: extent(2),
            is_confirmed: true,
        }),
        receiving: Some(Receiving {
            watermark: round(5),
            hidden: Some(extent(1)),
        }),
    };
    let notes = written_at_8(BTreeMap::from([(list, note)]));
    let drawing = [
        ("magic \"KVTN\"", 4),
        ("version, 1", 1),
        ("reserved", 3),
        ("written at: identity of the store", 8),
        ("its last durable sequence", 8),
        ("lists", 4),
        ("partition", 2),
        ("n_val", 1),
        (
            "flags: 1 mark, 2 confirmed, 4 receives, 8 hides something",
            1,
        ),
        ("joined, an epoch", 8),
        ("mark: number of the round", 8),
        ("nonce", 8),
        ("stores of the extent", 4),
        ("identity", 8),
        ("last sequence", 8),
        ("identity", 8),
        ("last sequence", 8),
        ("watermark: number of the round", 8),
        ("nonce", 8),
        ("stores of the hidden extent", 4),
        ("identity", 8),
        ("last sequence", 8),
        ("masked CRC-32C of all before", 4),
    ];
    assert_bytes("notes_file.hex", &drawing, &encode_notes(&notes));
}

#[test]
fn every_flipped_bit_is_found() {
    let bytes = encode_notes(&written_at_8(every_form()));
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            assert!(decode_notes(&flipped).is_err(), "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn a_file_that_ends_early_or_late_is_refused() {
    let bytes = encode_notes(&written_at_8(every_form()));
    for len in 0..bytes.len() {
        assert!(decode_notes(&bytes[..len]).is_err(), "{len}");
    }
    let longer = [&bytes[..], &[0; 4]].concat();
    assert!(decode_notes(&sealed(longer)).is_err());
}

#[test]
fn what_cannot_be_read_says_why() {
    assert_eq!(decode_notes(b"KVTN"), Err(NotesFileError::NotNotes));
    let bytes = encode_notes(&written_at_8(every_form()));
    let mut later = bytes.clone();
    later[4] = 2;
    assert_eq!(
        decode_notes(&later),
        Err(NotesFileError::Version { got: 2 })
    );
    let mut damaged = bytes.clone();
    damaged[9] ^= 1;
    let refused = decode_notes(&damaged);
    assert!(matches!(refused, Err(NotesFileError::Checksum { .. })));
    // The flags of the first list say that it hides something and receives nothing.
    let mut senseless = bytes;
    senseless[31] = 8;
    let refused = decode_notes(&sealed(senseless));
    assert_eq!(refused, Err(NotesFileError::Malformed { offset: 31 }));
}
