//! The merge of all sources in the order of keys: the newest record of each key in each store.
//!
//! Stores are sorted, unlike bitcask's files, so the merge needs no sorting: one pass with a block
//! of each table in memory is enough, and a key is the position for a resumed import. A table is
//! opened when its first key is reached, and closed after its last key.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_disk::Disk;
use kvorum_import::{Batch, ImportError, OpenFiles};

use crate::record::Record;
use crate::run::RunCursor;
use crate::table_cursor::TableCursor;

/// A file with sorted records.
#[derive(Clone, Debug)]
pub(crate) struct SortedFile {
    pub(crate) store: usize,
    pub(crate) path: PathBuf,
    pub(crate) len: u64,
    pub(crate) form: SortedForm,
}

/// The kind of a sorted file.
#[derive(Clone, Debug)]
pub(crate) enum SortedForm {
    /// A table, with its first and last key if a manifest has them.
    Table { bounds: Option<(Bytes, Bytes)> },
    /// A run, made from this store's logs.
    Run { of: PathBuf },
}

/// A key and its newest record in each store that has the key.
#[derive(Debug)]
pub(crate) struct KeyGroup {
    pub(crate) key: Bytes,
    /// Records in ascending order of stores; never empty.
    pub(crate) copies: Vec<StoreRecord>,
}

/// A record and its file.
#[derive(Debug)]
pub(crate) struct StoreRecord {
    pub(crate) store: usize,
    pub(crate) file: PathBuf,
    pub(crate) record: Record,
}

/// The merge.
pub(crate) struct Merge {
    files: OpenFiles,
    sources: Vec<MergeSource>,
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// Records up to this key are left out.
    after: Option<Bytes>,
    bytes_done: u64,
}

struct MergeSource {
    file: SortedFile,
    cursor: Cursor,
}

enum Cursor {
    Table(TableCursor),
    Run(RunCursor),
    Finished,
}

/// A source and its next record. A source without a record begins at this key or after it.
struct Waiting {
    key: Bytes,
    store: usize,
    record: Option<Record>,
    source: usize,
}

impl Waiting {
    /// The order of sources. Unopened sources sort before all records of their first key.
    fn order(&self) -> (&Bytes, bool, usize, Reverse<u64>, usize) {
        let sequence = self.record.as_ref().map_or(0, |record| record.key.sequence);
        let (store, source) = (self.store, self.source);
        let is_opened = self.record.is_some();
        (&self.key, is_opened, store, Reverse(sequence), source)
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl Merge {
    /// Merges the records after the key `after`, or all.
    pub(crate) fn new(disk: &Arc<dyn Disk>, files: Vec<SortedFile>, after: Option<Bytes>) -> Self {
        let mut merge = Self {
            files: OpenFiles::new(disk.clone()),
            sources: Vec::new(),
            waiting: BinaryHeap::new(),
            after,
            bytes_done: 0,
        };
        for file in files {
            let cursor = match &file.form {
                SortedForm::Table { .. } => {
                    let after = merge.after.clone();
                    Cursor::Table(TableCursor::new(file.path.clone(), after))
                }
                SortedForm::Run { .. } => {
                    let run = RunCursor::new(disk.clone(), file.path.clone(), file.len);
                    Cursor::Run(run)
                }
            };
            let key = match &file.form {
                SortedForm::Table {
                    bounds: Some((smallest, largest)),
                } => match merge.is_behind(largest) {
                    true => {
                        merge.bytes_done += file.len;
                        continue;
                    }
                    false => smallest.clone(),
                },
                _ => Bytes::new(),
            };
            merge.waiting.push(Reverse(Waiting {
                key,
                store: file.store,
                record: None,
                source: merge.sources.len(),
            }));
            merge.sources.push(MergeSource { file, cursor });
        }
        merge
    }

    /// The approximate number of bytes of the files before the position.
    pub(crate) fn bytes_done(&self) -> u64 {
        let behind = self.sources.iter().map(|source| match &source.cursor {
            Cursor::Table(cursor) => cursor.bytes_behind(),
            Cursor::Run(cursor) => cursor.bytes_behind(),
            Cursor::Finished => source.file.len,
        });
        self.bytes_done + behind.sum::<u64>()
    }

    /// The next key. Notes unreadable places before it in `batch`.
    pub(crate) fn next_key(&mut self, batch: &mut Batch) -> Result<Option<KeyGroup>, ImportError> {
        let mut group: Option<KeyGroup> = None;
        while let Some(Reverse(top)) = self.waiting.peek() {
            if group.as_ref().is_some_and(|group| group.key != top.key) {
                break;
            }
            let Some(Reverse(top)) = self.waiting.pop() else {
                break;
            };
            if let Some(record) = top.record {
                let group = group.get_or_insert_with(|| KeyGroup {
                    key: top.key,
                    copies: Vec::new(),
                });
                // The newest record of a store comes first.
                let last = group.copies.last();
                if last.is_none_or(|last| last.store != top.store) {
                    let file = match &self.sources[top.source].file {
                        SortedFile {
                            form: SortedForm::Run { of },
                            ..
                        } => of.clone(),
                        table => table.path.clone(),
                    };
                    group.copies.push(StoreRecord {
                        store: top.store,
                        file,
                        record,
                    });
                }
            }
            self.pull(top.source, batch)?;
        }
        Ok(group)
    }

    /// Queues the source with this number and its next record.
    fn pull(&mut self, number: usize, batch: &mut Batch) -> Result<(), ImportError> {
        loop {
            let source = &mut self.sources[number];
            let record = match &mut source.cursor {
                Cursor::Table(cursor) => cursor.advance(&mut self.files, batch),
                Cursor::Run(cursor) => cursor.advance()?,
                Cursor::Finished => None,
            };
            let store = source.file.store;
            let Some(record) = record else {
                source.cursor = Cursor::Finished;
                return Ok(());
            };
            if !self.is_behind(&record.key.user_key) {
                self.waiting.push(Reverse(Waiting {
                    key: record.key.user_key.clone(),
                    store,
                    record: Some(record),
                    source: number,
                }));
                return Ok(());
            }
        }
    }

    fn is_behind(&self, key: &Bytes) -> bool {
        self.after.as_ref().is_some_and(|after| key <= after)
    }
}
