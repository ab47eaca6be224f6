//! The files of a store taken apart for display: the manifest, and pages one by one.
//!
//! Every layout is the one drawn above its encoder; checksums are those of the decoders.

use std::path::Path;
use std::sync::Arc;

use kvorum_backend::dissect_copy;
use kvorum_disk::anatomy::{Dissection, Piece, Pieces};
use kvorum_disk::{Disk, DiskFile, OpenMode, Reading, Result, read_file};
use kvorum_encoding::{checksum, checksum_append, mask_checksum};

use crate::file::{HEADER_BYTES, MAGIC, number_of};
use crate::manifest::{BYTES_MAX, MAGIC as MANIFEST_MAGIC, NAMES};
use crate::page::{BODY_LEVEL, FRAME_BYTES, PAGE_BYTES_MAX};

/// Kinds of a store's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageTreeFile {
    /// One of two copies of the manifest.
    Manifest,
    /// Pages.
    Pages,
}

impl PageTreeFile {
    /// The kind of a file by its first 8 bytes.
    pub fn of_magic(magic: &[u8]) -> Option<Self> {
        match magic {
            _ if magic == MANIFEST_MAGIC => Some(Self::Manifest),
            _ if magic == MAGIC => Some(Self::Pages),
            _ => None,
        }
    }

    /// The kind of a file by its name in a store's directory.
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            _ if NAMES.contains(&name) => Some(Self::Manifest),
            _ => number_of(name).map(|_| Self::Pages),
        }
    }

    /// Takes a file apart.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn pieces(self, disk: &dyn Disk, path: &Path) -> Result<Pieces> {
        Ok(match self {
            Self::Manifest => {
                let bytes = read_file(disk, path, BYTES_MAX)?;
                Box::new(std::iter::once(Ok(manifest_piece(&bytes))))
            }
            Self::Pages => Box::new(PagesAnatomy {
                file: disk.open(path, OpenMode::Read)?,
                at: 0,
                is_over: false,
            }),
        })
    }
}

fn manifest_piece(bytes: &[u8]) -> Piece {
    let mut fields = dissect_copy(bytes, &MANIFEST_MAGIC);
    let rest = fields.remaining();
    fields.bytes("next number, root, files, doubts and label", rest);
    fields.finish("manifest of a tree of pages")
}

/// Goes through a file of pages, up to one with an impossible length.
struct PagesAnatomy {
    file: Arc<dyn DiskFile>,
    at: u64,
    is_over: bool,
}

impl Iterator for PagesAnatomy {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let piece = self.advance();
        self.is_over |= piece.is_err();
        piece.transpose()
    }
}

impl PagesAnatomy {
    fn advance(&mut self) -> Result<Option<Piece>> {
        let (from, left) = (self.at, self.file.len()?.saturating_sub(self.at));
        if left == 0 {
            return Ok(None);
        }
        if from == 0 {
            let bytes = self.read(HEADER_BYTES as u64)?;
            return Ok(Some(header_piece(&bytes)));
        }
        let frame = self.read(left.min(FRAME_BYTES as u64))?;
        let len = frame.get(40..44).and_then(<[u8]>::first_chunk::<4>);
        let len = u64::from(len.map_or(0, |it| u32::from_le_bytes(*it)));
        let is_right = (FRAME_BYTES as u64..=left.min(PAGE_BYTES_MAX as u64)).contains(&len);
        self.at = from;
        if is_right {
            return Ok(Some(page_piece(&self.read(len)?, from)));
        }
        self.is_over = true;
        let expected = "a page that ends within the file";
        Ok(Some(Piece::damage(from, left, "another length", expected)))
    }

    fn read(&mut self, len: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        let read = self.file.read_at(&mut bytes, self.at, Reading::MayBlock)?;
        bytes.truncate(read);
        self.at += len;
        Ok(bytes)
    }
}

fn header_piece(bytes: &[u8]) -> Piece {
    let mut fields = Dissection::new(bytes, 0);
    fields.magic(&MAGIC);
    fields.number("format version", 1);
    fields.number("zero", 3);
    let head = &bytes[..bytes.len().min(12)];
    let rest = bytes.get(16..).unwrap_or(&[]);
    fields.checksum(
        "checksum of the header",
        mask_checksum(checksum_append(checksum(head), rest)),
    );
    fields.identity("identity of the store", 8);
    fields.number("number of the file", 8);
    fields.finish("header of a file of pages")
}

fn page_piece(bytes: &[u8], at: u64) -> Piece {
    let mut fields = Dissection::new(bytes, at);
    let computed = mask_checksum(checksum(bytes.get(4..).unwrap_or(&[])));
    fields.checksum("checksum of the page", computed);
    fields.number("format version", 1);
    let level = fields.number("level", 1);
    fields.number("zero", 2);
    fields.identity("identity of the store", 8);
    fields.number("generation", 8);
    fields.number("number of the file", 8);
    fields.number("offset in the file", 8);
    fields.number("length of the page", 4);
    fields.number("number of items", 4);
    let rest = fields.remaining();
    fields.bytes("lower bound, and the items or the body", rest);
    fields.finish(match u8::try_from(level) {
        Ok(0) => "leaf",
        Ok(BODY_LEVEL) => "body",
        _ => "branch",
    })
}
