//! The file of a vnode's notes: they come back as they were, and no damage to it is taken for
//! notes.

use std::collections::BTreeMap;

use kvorum_encoding::{checksum, mask_checksum};

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
fn the_bytes_are_those_of_the_drawing() {
    let list = ListName {
        partition: 2,
        n_val: 3,
    };
    let note = Note {
        joined: 7,
        mark: Some(Mark {
            round: RoundName {
                number: 4,
                nonce: 5,
            },
            extent: Extent::up_to([BatchName {
                store: 9,
                sequence: 8,
            }]),
            is_confirmed: true,
        }),
        receiving: None,
    };
    let bytes = encode_notes(&written_at_8(BTreeMap::from([(list, note)])));
    let mut expected = b"KVTN\x01\0\0\0".to_vec();
    for number in [9u64, 8] {
        expected.extend(number.to_le_bytes());
    }
    expected.extend(1u32.to_le_bytes());
    expected.extend([2, 0, 3, 3]);
    for number in [7u64, 4, 5] {
        expected.extend(number.to_le_bytes());
    }
    expected.extend(1u32.to_le_bytes());
    for number in [9u64, 8] {
        expected.extend(number.to_le_bytes());
    }
    expected.extend([0; 4]);
    assert_eq!(bytes, sealed(expected));
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
