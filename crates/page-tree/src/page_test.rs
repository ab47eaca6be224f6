//! Pages: encoded keys are found, and every changed byte is detected.

use kvorum_golden::assert_bytes;

use super::*;

const STORE: u64 = 0x0102_0304;

fn header(level: u8) -> PageHeader {
    PageHeader {
        store: STORE,
        generation: 9,
        file: 3,
        offset: 4_096,
        level,
    }
}

fn item(key: &str, value: &str) -> Item {
    Item {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
    }
}

fn items() -> Vec<Item> {
    vec![
        item("key b", "1"),
        item("key bb", ""),
        item("key d", "three"),
        item("key d\u{0}", "4"),
    ]
}

fn leaf() -> (Vec<u8>, PagePlace) {
    encode_page(&header(0), b"key a", &items())
}

const FRAME: [(&str, usize); 10] = [
    ("masked CRC-32C of all bytes behind it", 4),
    ("format version, 1", 1),
    ("level", 1),
    ("zero", 2),
    ("identity of the store", 8),
    ("generation", 8),
    ("number of the file", 8),
    ("offset in the file", 8),
    ("length of the page", 4),
    ("number of items", 4),
];

#[test]
fn the_bytes_are_as_drawn() {
    let rest = [
        ("length of the lower bound of the keys", 1),
        ("lower bound", 5),
        ("length of the common prefix of all keys", 1),
        ("common prefix", 4),
        ("start of an item", 4),
        ("start of an item", 4),
        ("start of an item", 4),
        ("start of an item", 4),
        ("length of the rest of the key", 1),
        ("rest", 1),
        ("value", 1),
        ("length of the rest of the key", 1),
        ("rest", 2),
        ("value", 0),
        ("length of the rest of the key", 1),
        ("rest", 1),
        ("value", 5),
        ("length of the rest of the key", 1),
        ("rest", 2),
        ("value", 1),
    ];
    assert_bytes("page.leaf.hex", &[&FRAME[..], &rest].concat(), &leaf().0);
    let (body, _) = encode_body(&header(BODY_LEVEL), b"key b", b"a body");
    let rest = [
        ("length of the key", 1),
        ("key", 5),
        ("length of no common prefix", 1),
        ("body", 6),
    ];
    assert_bytes("page.body.hex", &[&FRAME[..], &rest].concat(), &body);
}

#[test]
fn every_key_is_found_and_keys_between_have_their_place() {
    let (bytes, place) = leaf();
    let page = Page::open(bytes.into(), &place, STORE).unwrap();
    assert_eq!((page.level(), page.items()), (0, 4));
    assert_eq!(&page.lower()[..], b"key a");
    for (index, item) in items().into_iter().enumerate() {
        assert_eq!(page.search(&item.key), Ok(index));
        assert_eq!(page.item(index), item);
    }
    for (key, at) in [
        ("", 0),
        ("a", 0),
        ("key", 0),
        ("key a", 0),
        ("key ba", 1),
        ("key c", 2),
        ("key d\u{1}", 4),
        ("kez", 4),
    ] {
        assert_eq!(page.search(key.as_bytes()), Err(at), "{key:?}");
    }
    assert_eq!(page.child_for(b"a"), 0);
    assert_eq!(page.child_for(b"key c"), 1);
    assert_eq!(page.child_for(b"key d"), 2);
}

#[test]
fn any_flip_or_cut_is_refused() {
    let (good, place) = leaf();
    for at in 0..good.len() {
        for bit in [1, 0x80] {
            let mut bad = good.clone();
            bad[at] ^= bit;
            assert!(Page::open(bad.into(), &place, STORE).is_err(), "byte {at}");
        }
        let cut = Bytes::copy_from_slice(&good[..at]);
        assert!(Page::open(cut, &place, STORE).is_err(), "cut at {at}");
    }
}

/// The bytes are right, but from another place or store.
#[test]
fn a_page_of_another_place_or_store_is_refused() {
    let (bytes, place) = leaf();
    let bytes = Bytes::from(bytes);
    assert!(Page::open(bytes.clone(), &place, STORE).is_ok());
    assert!(Page::open(bytes.clone(), &place, STORE + 1).is_err());
    let elsewhere = PagePlace {
        offset: place.offset + 8,
        ..place
    };
    assert!(Page::open(bytes.clone(), &elsewhere, STORE).is_err());
    let older = PagePlace {
        check: place.check ^ 1,
        ..place
    };
    assert!(Page::open(bytes, &older, STORE).is_err());
}

#[test]
fn a_body_comes_back_with_its_key() {
    let (bytes, place) = encode_body(&header(BODY_LEVEL), b"key", b"a body");
    let page = Page::open(bytes.into(), &place, STORE).unwrap();
    assert_eq!(page.level(), BODY_LEVEL);
    assert_eq!(
        (&page.lower()[..], &page.body()[..]),
        (&b"key"[..], &b"a body"[..])
    );
}

#[test]
fn a_page_of_no_items_has_none() {
    let (bytes, place) = encode_page(&header(0), b"", &[]);
    let page = Page::open(bytes.into(), &place, STORE).unwrap();
    assert_eq!((page.items(), page.search(b"key")), (0, Err(0)));
}
