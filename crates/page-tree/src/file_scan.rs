//! Reading a file of pages from its beginning, to find pages that a tree needs.

use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{BackendError, Result};
use kvorum_disk::Reading;

use crate::file::{FileRecord, HEADER_BYTES, PageFile};
use crate::page::{FRAME_BYTES, Page};
use crate::place::PagePlace;
use crate::reach::taken_bytes;
use crate::tree::Tree;

/// The next item of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScannedPage {
    /// A page of the tree; a rewrite of this key rewrites the page.
    Live(Bytes),
    /// A page that the tree no longer reaches.
    Superseded,
    /// An unreadable page. The pages behind it are not found.
    Damaged,
    /// The end of the file.
    End,
}

/// See the module.
pub struct FileScan {
    file: Arc<PageFile>,
    at: u64,
    to: u64,
}

impl FileScan {
    /// A scan of a file, up to its recorded length.
    pub fn new(file: Arc<PageFile>, record: &FileRecord) -> Self {
        Self {
            file,
            at: HEADER_BYTES as u64,
            to: record.len,
        }
    }

    /// Advances to the next page. Returns the bytes read too.
    ///
    /// # Errors
    /// Errors of the disk that do not concern a single page.
    pub fn advance(&mut self, tree: &Tree) -> Result<(ScannedPage, u64)> {
        if self.at >= self.to {
            return Ok((ScannedPage::End, 0));
        }
        let Some((page, place)) = self.read(tree.store())? else {
            return Ok((ScannedPage::Damaged, 0));
        };
        let (key, level) = (page.lower(), page.level());
        self.at += taken_bytes(&place, level);
        let scanned = match tree.leads_to(&key, &place, level)? {
            true => ScannedPage::Live(key),
            false => ScannedPage::Superseded,
        };
        Ok((scanned, u64::from(place.len)))
    }

    /// The page that begins here. The second copy of an unreadable branch does not help: without the
    /// length of the first, its place is unknown.
    fn read(&self, store: u64) -> Result<Option<(Page, PagePlace)>> {
        let frame = PagePlace {
            file: self.file.number(),
            offset: self.at,
            len: u32::try_from(FRAME_BYTES).unwrap_or(u32::MAX),
            check: 0,
        };
        let head = self.bytes(&frame)?;
        let number = |at: usize| head.get(at..).and_then(<[u8]>::first_chunk::<4>);
        let (Some(check), Some(len)) = (number(0), number(40)) else {
            return Ok(None);
        };
        let place = PagePlace {
            len: u32::from_le_bytes(*len),
            check: u32::from_le_bytes(*check),
            ..frame
        };
        if self.at + u64::from(place.len) > self.to {
            return Ok(None);
        }
        let page = Page::open(self.bytes(&place)?, &place, store).ok();
        Ok(page.map(|page| (page, place)))
    }

    fn bytes(&self, place: &PagePlace) -> Result<Bytes> {
        match self.file.read(place, false, Reading::MayBlock) {
            Err(error) if error.kind() == kvorum_disk::ErrorKind::Device => Ok(Bytes::new()),
            read => read.map_err(|error| BackendError::from(&error)),
        }
    }
}
