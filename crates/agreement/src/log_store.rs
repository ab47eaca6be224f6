//! The log in the library's form: reads from memory, writes to the file first.

use std::fmt::Debug;
use std::ops::RangeBounds;
use std::sync::Arc;

use kvorum_planted_defects::is_planted;
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader, StorageIOError};
use parking_lot::{Mutex, RwLock};

use crate::log_file::{LogContents, LogFile, LogRecord};
use crate::persistence::Persistence;
use crate::raft_types::{Entry, LogId, StorageError, Types, Vote};

/// The log of this node. Cheap to clone; each of the library's tasks has a clone.
#[derive(Clone)]
pub(crate) struct LogStore {
    persistence: Persistence,
    file: Arc<Mutex<LogFile>>,
    contents: Arc<RwLock<LogContents>>,
}

impl LogStore {
    pub(crate) fn new(persistence: Persistence, file: LogFile, contents: LogContents) -> Self {
        Self {
            persistence,
            file: Arc::new(Mutex::new(file)),
            contents: Arc::new(RwLock::new(contents)),
        }
    }

    /// Marks the durable end of the log. Blocks.
    pub(crate) fn mark_end(&self) {
        self.file.lock().mark_end();
    }

    /// Makes a record durable, however long that takes, and then shows it to readers.
    async fn put(&self, record: LogRecord) -> std::io::Result<()> {
        let (file, contents) = (self.file.clone(), self.contents.clone());
        let put = move || {
            let mut file = file.lock();
            let mut changed = contents.read().clone();
            file.put(record.clone(), &mut changed)?;
            *contents.write() = changed;
            Ok(())
        };
        self.persistence.keep_writing(put).await
    }
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry>, StorageError> {
        let contents = self.contents.read();
        Ok(contents
            .entries
            .range(range)
            .map(|(_, entry)| entry.clone())
            .collect())
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        let contents = self.contents.read();
        Ok(LogState {
            last_purged_log_id: contents.purged,
            last_log_id: contents.last_log_id(),
        })
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        let saved = self.put(LogRecord::Vote(*vote)).await;
        Ok(saved.map_err(|error| StorageIOError::write_vote(&error))?)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        if is_planted!(VoteForgotten) {
            return Ok(None);
        }
        Ok(self.contents.read().vote)
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError> {
        let saved = self.put(LogRecord::Committed(committed)).await;
        Ok(saved.map_err(|error| StorageIOError::write_logs(&error))?)
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError> {
        Ok(self.contents.read().committed)
    }

    async fn append<I>(
        &mut self,
        entries: I,
        flushed: LogFlushed<Types>,
    ) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let saved = self.put(LogRecord::Append(entries)).await;
        let failure = saved.as_ref().err().map(StorageIOError::write_logs);
        flushed.log_io_completed(saved);
        match failure {
            Some(failure) => Err(failure.into()),
            None => Ok(()),
        }
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let saved = self.put(LogRecord::Truncate(log_id.index)).await;
        Ok(saved.map_err(|error| StorageIOError::write_logs(&error))?)
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let saved = self.put(LogRecord::Purge(log_id)).await;
        Ok(saved.map_err(|error| StorageIOError::write_logs(&error))?)
    }
}

#[cfg(test)]
#[path = "library_suite_test.rs"]
mod tests;
