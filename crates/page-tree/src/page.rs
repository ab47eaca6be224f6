//! Pages: the layout of keys, and the checks that distinguish a right page from any other bytes.
//!
//! A page is found by a place that has its checksum, so that it need not be trusted. Its header
//! also has its store and its place, for readers of the file without the tree.

use std::ops::Range;

use bytes::Bytes;
use kvorum_encoding::{ByteReader, Truncated, checksum, mask_checksum, put_varint};

use crate::place::PagePlace;

/// Bytes before the keys.
pub(crate) const FRAME_BYTES: usize = 48;
/// The level of a page that has the body of one entry.
pub(crate) const BODY_LEVEL: u8 = u8::MAX;
/// No page is longer, in bytes: a body and its key.
pub(crate) const PAGE_BYTES_MAX: usize = 1 << 30;
const VERSION: u8 = 1;
/// The most bytes of an item without its key and its value: its offset and the length of its key.
const ITEM_BYTES: usize = 4 + 4;

/// The store and the place of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageHeader {
    /// The identity of the store.
    pub(crate) store: u64,
    /// The rewrite that wrote it.
    pub(crate) generation: u64,
    /// The number of its file.
    pub(crate) file: u64,
    /// Its offset there, in bytes.
    pub(crate) offset: u64,
    /// 0 for a leaf, one more than its children for a branch, [`BODY_LEVEL`] for a body.
    pub(crate) level: u8,
}

/// A key of a page and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
}

impl Item {
    /// Its most bytes in a page.
    pub(crate) fn page_bytes(&self) -> usize {
        self.key.len() + self.value.len() + ITEM_BYTES
    }
}

/// Encodes a leaf or a branch; the place is that of its header.
///
/// ```text
/// offset  size    field
///      0     4    masked CRC-32C of all bytes behind it
///      4     1    format version, 1
///      5     1    level: 0 a leaf, 1 and more a branch, 255 a body
///      6     2    zero
///      8     8    identity of the store
///     16     8    generation
///     24     8    number of the file
///     32     8    offset in the file
///     40     4    length of the page
///     44     4    number of items (n)
///     48  varint  length of the lower bound of its keys, and that; of a body, its key
///         varint  length of the common prefix of all keys, and that
///          4*n    where in the page each item begins
///                 items in key order: varint length of the rest of the key, that, and the value
///                 of a body: the body, to the end
/// ```
pub(crate) fn encode_page(
    header: &PageHeader,
    lower: &[u8],
    items: &[Item],
) -> (Vec<u8>, PagePlace) {
    let mut out = begin(lower);
    let shared_len = shared_len(items);
    let shared = items.first().map_or(&[][..], |it| &it.key[..shared_len]);
    put_prefixed(&mut out, shared);
    let offsets_at = out.len();
    out.resize(offsets_at + 4 * items.len(), 0);
    for (index, item) in items.iter().enumerate() {
        let at = length(out.len()).to_le_bytes();
        out[offsets_at + 4 * index..][..4].copy_from_slice(&at);
        put_prefixed(&mut out, &item.key[shared_len..]);
        out.extend_from_slice(&item.value);
    }
    seal(out, header, items.len())
}

/// Encodes the page of a body.
pub(crate) fn encode_body(header: &PageHeader, key: &[u8], body: &[u8]) -> (Vec<u8>, PagePlace) {
    let mut out = begin(key);
    put_prefixed(&mut out, &[]);
    out.extend_from_slice(body);
    seal(out, header, 0)
}

fn begin(lower: &[u8]) -> Vec<u8> {
    let mut out = vec![0; FRAME_BYTES];
    put_prefixed(&mut out, lower);
    out
}

fn put_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The common prefix of all keys is that of the first and the last.
fn shared_len(items: &[Item]) -> usize {
    let (Some(first), Some(last)) = (items.first(), items.last()) else {
        return 0;
    };
    let pairs = first.key.iter().zip(last.key.iter());
    pairs.take_while(|(one, other)| one == other).count()
}

fn seal(mut out: Vec<u8>, header: &PageHeader, items: usize) -> (Vec<u8>, PagePlace) {
    let len = length(out.len());
    out[4] = VERSION;
    out[5] = header.level;
    out[8..16].copy_from_slice(&header.store.to_le_bytes());
    out[16..24].copy_from_slice(&header.generation.to_le_bytes());
    out[24..32].copy_from_slice(&header.file.to_le_bytes());
    out[32..40].copy_from_slice(&header.offset.to_le_bytes());
    out[40..44].copy_from_slice(&len.to_le_bytes());
    out[44..48].copy_from_slice(&length(items).to_le_bytes());
    let check = mask_checksum(checksum(&out[4..]));
    out[..4].copy_from_slice(&check.to_le_bytes());
    let place = PagePlace {
        file: header.file,
        offset: header.offset,
        len,
        check,
    };
    (out, place)
}

fn length(bytes: usize) -> u32 {
    assert!(bytes <= PAGE_BYTES_MAX, "a page of {bytes} bytes");
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// A page that was read and is right.
#[derive(Debug)]
pub(crate) struct Page {
    bytes: Bytes,
    level: u8,
    items: usize,
    lower: Range<usize>,
    shared: Range<usize>,
    offsets_at: usize,
}

impl Page {
    /// Checks the bytes that were read at a place.
    ///
    /// # Errors
    /// The defect, in words.
    pub(crate) fn open(bytes: Bytes, place: &PagePlace, store: u64) -> Result<Self, String> {
        check_frame(&bytes, place, store)?;
        let page = Self::parse(bytes).map_err(|error| format!("page does not decode: {error}"))?;
        page.check_items()
            .map_err(|error| format!("items do not decode: {error}"))?;
        Ok(page)
    }

    fn parse(bytes: Bytes) -> Result<Self, Truncated> {
        let mut reader = ByteReader::new(&bytes);
        reader.take(5)?;
        let level = reader.u8()?;
        reader.take(FRAME_BYTES - 10)?;
        let items = reader.u32()? as usize;
        let lower = take_range(&mut reader)?;
        let shared = take_range(&mut reader)?;
        let offsets_at = reader.offset();
        // A number of items beyond the page's end is an error, before anything is allocated for it.
        reader.take(items.saturating_mul(4))?;
        Ok(Self {
            bytes,
            level,
            items,
            lower,
            shared,
            offsets_at,
        })
    }

    /// Later reads of an item rely on this.
    fn check_items(&self) -> Result<(), Truncated> {
        let mut behind = self.offsets_at + 4 * self.items;
        for index in 0..self.items {
            let (start, end) = (self.offset(index), self.end(index));
            if start != behind || end < start || end > self.bytes.len() {
                return Err(Truncated { offset: start });
            }
            ByteReader::new(&self.bytes[start..end]).take_prefixed()?;
            behind = end;
        }
        Ok(())
    }

    fn offset(&self, index: usize) -> usize {
        let at = self.offsets_at + 4 * index;
        let bytes = self.bytes[at..].first_chunk::<4>();
        bytes.map_or(0, |it| u32::from_le_bytes(*it) as usize)
    }

    fn end(&self, index: usize) -> usize {
        match index + 1 < self.items {
            true => self.offset(index + 1),
            false => self.bytes.len(),
        }
    }

    /// 0 for a leaf, [`BODY_LEVEL`] for a body.
    pub(crate) fn level(&self) -> u8 {
        self.level
    }

    /// The number of its items.
    pub(crate) fn items(&self) -> usize {
        self.items
    }

    /// The lower bound of its keys; of a body, its key.
    pub(crate) fn lower(&self) -> Bytes {
        self.bytes.slice(self.lower.clone())
    }

    /// The body, of the page of one.
    pub(crate) fn body(&self) -> Bytes {
        self.bytes.slice(self.offsets_at..)
    }

    /// Its memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.len() + size_of::<Self>()
    }

    /// The rest of a key, and the range of its value.
    fn parts(&self, index: usize) -> (&[u8], Range<usize>) {
        let (start, end) = (self.offset(index), self.end(index));
        let mut reader = ByteReader::new(&self.bytes[start..end]);
        let rest = reader.take_prefixed().unwrap_or_default();
        (rest, start + reader.offset()..end)
    }

    /// A key.
    pub(crate) fn key(&self, index: usize) -> Bytes {
        let (rest, _) = self.parts(index);
        [&self.bytes[self.shared.clone()], rest].concat().into()
    }

    /// The value of a key.
    pub(crate) fn value(&self, index: usize) -> Bytes {
        let (_, value) = self.parts(index);
        self.bytes.slice(value)
    }

    /// The same, borrowed.
    pub(crate) fn value_bytes(&self, index: usize) -> &[u8] {
        let (_, value) = self.parts(index);
        &self.bytes[value]
    }

    /// An item.
    pub(crate) fn item(&self, index: usize) -> Item {
        Item {
            key: self.key(index),
            value: self.value(index),
        }
    }

    /// The index of a key, or the index at which it would be inserted.
    pub(crate) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let shared = &self.bytes[self.shared.clone()];
        let Some(rest) = key.strip_prefix(shared) else {
            return Err(if key < shared { 0 } else { self.items });
        };
        let (mut from, mut to) = (0, self.items);
        while from < to {
            let middle = from + (to - from) / 2;
            match self.parts(middle).0.cmp(rest) {
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        Err(from)
    }

    /// A branch's child for a key: the last that begins at or before it, or the first.
    pub(crate) fn child_for(&self, key: &[u8]) -> usize {
        match self.search(key) {
            Ok(index) => index,
            Err(index) => index.saturating_sub(1),
        }
    }
}

fn take_range(reader: &mut ByteReader<'_>) -> Result<Range<usize>, Truncated> {
    let len = reader.take_prefixed()?.len();
    Ok(reader.offset() - len..reader.offset())
}

fn check_frame(bytes: &[u8], place: &PagePlace, store: u64) -> Result<(), String> {
    if bytes.len() < FRAME_BYTES || bytes.len() != place.len as usize {
        return Err(format!("{} bytes instead of {}", bytes.len(), place.len));
    }
    let computed = mask_checksum(checksum(&bytes[4..]));
    if computed != place.check || bytes[..4] != place.check.to_le_bytes() {
        return Err(format!(
            "checksum {computed:08x} instead of {:08x}",
            place.check
        ));
    }
    if bytes[4] != VERSION {
        return Err(format!("format version {}, expected {VERSION}", bytes[4]));
    }
    let number = |at: usize| {
        let bytes = bytes[at..].first_chunk::<8>();
        bytes.map_or(0, |it| u64::from_le_bytes(*it))
    };
    let (got, expected) = (
        [number(8), number(24), number(32)],
        [store, place.file, place.offset],
    );
    match got == expected {
        true => Ok(()),
        false => Err(format!(
            "store, file and offset {got:x?} instead of {expected:x?}"
        )),
    }
}

#[cfg(test)]
#[path = "page_test.rs"]
mod tests;
