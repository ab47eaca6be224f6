//! The library's own test suite for a log and a machine.

use std::path::Path;
use std::sync::Arc;

use kvorum_disk::MemoryDisk;
use kvorum_runtime::{Executor, Runtime};
use openraft::testing::{StoreBuilder, Suite};
use parking_lot::Mutex;

use crate::log_file::{LogContents, LogFile, Place};
use crate::log_store::LogStore;
use crate::machine::{Driven, Machine};
use crate::persistence::Persistence;
use crate::raft_types::{StorageError, Types};
use crate::snapshot_file::SnapshotFiles;

/// A machine that keeps its commands.
#[derive(Default)]
struct Memory(Mutex<Vec<String>>);

impl Machine for Memory {
    fn apply(&self, command: &str) -> String {
        self.0.lock().push(command.to_owned());
        String::new()
    }

    fn state(&self) -> Vec<u8> {
        self.0.lock().join("\n").into_bytes()
    }

    fn restore(&self, state: &[u8]) -> Result<(), String> {
        let state = std::str::from_utf8(state).map_err(|error| error.to_string())?;
        *self.0.lock() = state.lines().map(str::to_owned).collect();
        Ok(())
    }
}

struct Builder(Executor);

impl StoreBuilder<Types, LogStore, Driven> for Builder {
    async fn build(&self) -> Result<((), LogStore, Driven), StorageError> {
        let runtime = self.0.runtime();
        let disk = Arc::new(MemoryDisk::new());
        let place = Place {
            disk: disk.clone(),
            log: "log".into(),
            marks: ["end".into(), "log.end".into()],
            node: kvorum_ring::NodeId::from_bytes([1; 16]),
            drawn: 1,
        };
        let file = LogFile::create(place).unwrap();
        let persistence = Persistence::new(runtime);
        let log = LogStore::new(persistence.clone(), file, LogContents::default());
        let files = SnapshotFiles::new(disk, Path::new("."));
        let driven = Driven::new(persistence, Arc::new(Memory::default()), files, None).unwrap();
        Ok(((), log, driven))
    }
}

#[test]
fn log_and_machine_pass_the_librarys_suite() {
    let executor = Runtime::simulated(1).unwrap();
    Suite::test_all(Builder(executor)).unwrap();
}
