//! The last page of a file, found without a tree: a rewrite ends with its root, so that the roots of a
//! store whose manifest is lost are among them.

use kvorum_backend::{BackendError, Result};
use kvorum_disk::Reading;

use crate::file::{HEADER_BYTES, PageFile};
use crate::page::{BODY_LEVEL, FRAME_BYTES, Page};
use crate::place::PagePlace;
use crate::reach::taken_bytes;
use crate::tree::{Child, Root};

/// A page that may be the root of a tree: the last of its file, with all keys from the first on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PossibleRoot {
    /// The rewrite that wrote it.
    pub generation: u64,
    /// The page.
    pub root: Root,
}

/// The root that a file of this store ends with, if it ends with one. A file whose pages cannot be passed
/// ends with none.
///
/// # Errors
/// Those of the disk that are not of one page.
pub fn possible_root(file: &PageFile, store: u64) -> Result<Option<PossibleRoot>> {
    let Some((place, level, generation)) = last_frame(file, store)? else {
        return Ok(None);
    };
    if level == BODY_LEVEL {
        return Ok(None);
    }
    let read = file.read(&place, false, Reading::MayBlock);
    let bytes = read.map_err(|error| BackendError::from(&error))?;
    let Ok(page) = Page::open(bytes, &place, store) else {
        return Ok(None);
    };
    let keys = keys_of(&page).filter(|_| page.lower().is_empty());
    let root = keys.map(|keys| Root { place, level, keys });
    Ok(root.map(|root| PossibleRoot { generation, root }))
}

/// The keys below a leaf or a branch; `None` for a branch that does not decode.
fn keys_of(page: &Page) -> Option<u64> {
    if page.level() == 0 {
        return Some(page.items() as u64);
    }
    let children = (0..page.items()).map(|index| Child::of(page, index).ok());
    children.map(|child| child.map(|it| it.keys)).sum()
}

/// The place, the level and the rewrite of the last page.
fn last_frame(file: &PageFile, store: u64) -> Result<Option<(PagePlace, u8, u64)>> {
    let (end, mut at, mut last) = (file.bytes(), HEADER_BYTES as u64, None);
    while at < end {
        let Some((place, level, generation)) = frame(file, store, at)? else {
            return Ok(None);
        };
        at += taken_bytes(&place, level);
        last = Some((place, level, generation));
    }
    Ok(last.filter(|_| at == end))
}

/// The frame at an offset, if it is one of a page there.
fn frame(file: &PageFile, store: u64, at: u64) -> Result<Option<(PagePlace, u8, u64)>> {
    let frame = PagePlace {
        file: file.number(),
        offset: at,
        len: u32::try_from(FRAME_BYTES).unwrap_or(u32::MAX),
        check: 0,
    };
    let read = file.read(&frame, false, Reading::MayBlock);
    let bytes = read.map_err(|error| BackendError::from(&error))?;
    let short = |at: usize| bytes.get(at..).and_then(<[u8]>::first_chunk::<4>);
    let long = |at: usize| bytes.get(at..).and_then(<[u8]>::first_chunk::<8>);
    let (Some(check), Some(len), Some(level)) = (short(0), short(40), bytes.get(5)) else {
        return Ok(None);
    };
    let number = |at: usize| long(at).map(|it| u64::from_le_bytes(*it));
    let is_here = [number(8), number(24), number(32)] == [store, file.number(), at].map(Some);
    let len = u32::from_le_bytes(*len);
    let place = PagePlace {
        len,
        check: u32::from_le_bytes(*check),
        ..frame
    };
    let is_long_enough = len as usize >= FRAME_BYTES;
    let generation = number(16).filter(|_| is_here && is_long_enough);
    Ok(generation.map(|generation| (place, *level, generation)))
}
