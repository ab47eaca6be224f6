//! A table's readable records, in order.

use std::path::PathBuf;

use bytes::Bytes;
use kvorum_encoding::ByteReader;
use kvorum_import::{Batch, OpenFiles};

use crate::block::{BlockEntries, TRAILER_BYTES};
use crate::internal_key::InternalKey;
use crate::losses::{KeyRange, lost, noted};
use crate::record::Record;
use crate::table::{BlockList, Handle, block_list, bounds_of, read_block, walk_block};

/// A position in a table.
pub(crate) struct TableCursor {
    path: PathBuf,
    len: u64,
    /// Records up to this key may be skipped.
    after: Option<Bytes>,
    blocks: Blocks,
    /// The present block, and its place.
    entries: Option<(BlockEntries, Handle)>,
    last: Option<InternalKey>,
    /// Offset of the next block.
    offset: u64,
}

enum Blocks {
    Unopened,
    Listed {
        list: BlockList,
        next: usize,
    },
    /// Without an index, each block is found after the previous one; the handles identify the
    /// index block.
    Walked {
        handles: Vec<Handle>,
    },
    Done,
}

impl TableCursor {
    pub(crate) fn new(path: PathBuf, after: Option<Bytes>) -> Self {
        Self {
            path,
            len: 0,
            after,
            blocks: Blocks::Unopened,
            entries: None,
            last: None,
            offset: 0,
        }
    }

    /// The number of bytes of the file before the cursor.
    pub(crate) fn bytes_behind(&self) -> u64 {
        self.offset
    }

    /// The next record. Notes unreadable places before it in `batch`.
    pub(crate) fn advance(&mut self, files: &mut OpenFiles, batch: &mut Batch) -> Option<Record> {
        loop {
            let Some((entries, handle)) = &mut self.entries else {
                self.next_block(files, batch)?;
                continue;
            };
            let handle = *handle;
            let advanced = entries.advance();
            let read = match advanced {
                Ok(None) => {
                    self.entries = None;
                    continue;
                }
                Ok(Some((key, value))) => InternalKey::decode(&key).map(|key| (key, value)),
                Err(_) => None,
            };
            let in_order = read.filter(|(key, _)| {
                let last = self.last.as_ref();
                last.is_none_or(|last| last.is_before(key))
            });
            let Some((key, value)) = in_order else {
                self.give_up_block(handle, files, batch);
                continue;
            };
            self.last = Some(key.clone());
            return Some(Record {
                key,
                value,
                offset: handle.offset,
            });
        }
    }

    fn next_block(&mut self, files: &mut OpenFiles, batch: &mut Batch) -> Option<()> {
        if matches!(self.blocks, Blocks::Unopened) {
            self.open(files, batch);
        }
        let offset = self.offset;
        match &mut self.blocks {
            Blocks::Listed { list, next } => {
                let Some(handle) = list.at(*next, offset) else {
                    self.blocks = Blocks::Done;
                    return None;
                };
                let number = *next;
                *next += 1;
                self.offset = offset + handle.len + TRAILER_BYTES as u64;
                let block = read_block(files, &self.path, self.len, handle);
                let entries = block
                    .and_then(|block| BlockEntries::new(block).map_err(|error| error.to_string()));
                match entries {
                    Ok(entries) => self.entries = Some((entries, handle)),
                    Err(reason) => {
                        let (behind, to) = bounds_of(files, &self.path, self.len, number);
                        let keys = KeyRange {
                            behind: behind.as_deref(),
                            to: to.as_deref(),
                        };
                        let reason = format!("a block cannot be read: {reason}");
                        let len = Some(handle.len);
                        lost(batch, &self.path, handle.offset, len, &keys, &reason);
                    }
                }
                Some(())
            }
            Blocks::Walked { .. } => self.walk(files, batch),
            Blocks::Unopened | Blocks::Done => None,
        }
    }

    fn open(&mut self, files: &mut OpenFiles, batch: &mut Batch) {
        let listed = files.len(&self.path).and_then(|len| {
            self.len = len;
            block_list(files, &self.path, len, self.after.as_ref())
        });
        self.blocks = match listed {
            Ok((list, next, offset)) => {
                self.offset = offset;
                Blocks::Listed { list, next }
            }
            Err(reason) => {
                let reason = format!("{reason}; blocks are found by their checksums");
                noted(batch, &self.path, 0, reason);
                Blocks::Walked {
                    handles: Vec::new(),
                }
            }
        };
    }

    /// Continues without an index. Data blocks come first, up to the first block of another form.
    fn walk(&mut self, files: &mut OpenFiles, batch: &mut Batch) -> Option<()> {
        let walked = walk_block(files, &self.path, self.len, self.offset);
        let Blocks::Walked { handles } = &mut self.blocks else {
            return None;
        };
        match walked {
            Ok(Some(handle)) => {
                let block = read_block(files, &self.path, self.len, handle);
                let entries = block.ok().and_then(|block| data_entries(block, handles));
                if let Some(entries) = entries {
                    handles.push(handle);
                    self.entries = Some((entries, handle));
                    self.offset += handle.len + TRAILER_BYTES as u64;
                    return Some(());
                }
            }
            Ok(None) | Err(_) => {
                let last = self.last.as_ref();
                let keys = KeyRange {
                    behind: last.map(|key| &key.user_key[..]),
                    to: None,
                };
                let len = self.len.checked_sub(self.offset);
                let reason = "the rest of a table without an index cannot be read";
                lost(batch, &self.path, self.offset, len, &keys, reason);
            }
        }
        self.blocks = Blocks::Done;
        self.offset = self.len;
        None
    }

    fn give_up_block(&mut self, handle: Handle, files: &mut OpenFiles, batch: &mut Batch) {
        self.entries = None;
        let to = match &self.blocks {
            Blocks::Listed { next, .. } => {
                let number = next.saturating_sub(1);
                bounds_of(files, &self.path, self.len, number).1
            }
            _ => None,
        };
        let keys = KeyRange {
            behind: self.last.as_ref().map(|key| &key.user_key[..]),
            to: to.as_deref(),
        };
        let reason = "the rest of a block makes no sense, though its checksum is right";
        let (offset, len) = (handle.offset, Some(handle.len));
        lost(batch, &self.path, offset, len, &keys, reason);
    }
}

/// The entries of a block, if it is a data block; `handles` has the blocks before it.
fn data_entries(block: Bytes, handles: &[Handle]) -> Option<BlockEntries> {
    let entries = BlockEntries::new(block).ok()?;
    let mut looked = entries.clone();
    let (key, value) = looked.advance().ok()??;
    InternalKey::decode(&key)?;
    let mut reader = ByteReader::new(&value);
    let is_index =
        Handle::decode(&mut reader).is_some_and(|handle| handles.first() == Some(&handle));
    (!is_index || !reader.is_empty()).then_some(entries)
}
