//! A source, a state directory and a server on simulated time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kvorum_disk::{Disk, MemoryDisk, OpenMode};
use kvorum_import::{ImportError, ImportTarget, Progress, SharedOptions, Summary, System};
use kvorum_import_leveled::import;
use kvorum_runtime::{Executor, Runtime};

use crate::fake_server::FakeServer;
use crate::journal::{Journal, key};
use crate::riak_objects::{object_v1, plain};

pub(crate) struct World {
    executor: Executor,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) server: FakeServer,
    pub(crate) options: SharedOptions,
    pub(crate) open_file: fn(&[PathBuf]) -> Option<(PathBuf, u32)>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::over(Arc::new(MemoryDisk::new()))
    }

    pub(crate) fn over(disk: Arc<dyn Disk>) -> Self {
        let executor = Runtime::simulated(7).unwrap();
        let server = FakeServer::start(&executor.runtime());
        let options = SharedOptions {
            directories: vec![PathBuf::from("riak")],
            state_directory: PathBuf::from("state"),
            target: Some(ImportTarget {
                address: server.address,
                name: "the server".to_owned(),
            }),
            ignore_locks: false,
            leave_out_tombstones: false,
            connections: 4,
            patience: Duration::from_secs(10),
            restart: false,
        };
        Self {
            executor,
            disk,
            server,
            options,
            open_file: |_| None,
        }
    }

    pub(crate) fn write(&self, path: &str, bytes: &[u8]) {
        let path = Path::new(path);
        self.disk.create_directory(path.parent().unwrap()).unwrap();
        if self.disk.info(path).unwrap().is_some() {
            self.disk.remove_file(path).unwrap();
        }
        let file = self.disk.open(path, OpenMode::CreateNew).unwrap();
        file.write_at(bytes, 0).unwrap();
    }

    /// Writes a file of a partition's journal.
    pub(crate) fn journal(&self, partition: u32, name: &str, bytes: &[u8]) {
        let directory = crate::partitions::partition(partition);
        let path = format!("riak/{directory}/journal/journal_files/{name}");
        self.write(&path, bytes);
    }

    /// Writes three partitions with the same keys, which are numbered and equal their values.
    pub(crate) fn fill(&self, keys: u32) {
        for partition in 0..3 {
            let (mut completed, mut active) = (Journal::default(), Journal::default());
            for number in 0..keys {
                let name = number.to_string();
                let object = object_v1(&[("a", 1)], &[plain(&name)]);
                let journal = match number < keys / 2 {
                    true => &mut completed,
                    false => &mut active,
                };
                journal.put(number + 1, &key("b", &name), &object);
            }
            self.journal(partition, "0_x.cdb", &completed.completed());
            self.journal(partition, "9_x.pnd", &active.bytes);
        }
    }

    pub(crate) fn import(&self) -> Result<Summary, ImportError> {
        let system = System {
            disk: self.disk.clone(),
            runtime: self.executor.runtime(),
            file_mode: |_| None,
            is_running: |_| false,
            lock_holder: |_| None,
            open_file: self.open_file,
        };
        let progress = Arc::new(Progress::default());
        self.executor
            .block_on(import(system, self.options.clone(), progress))
    }

    pub(crate) fn wall_seconds(&self) -> u64 {
        self.executor.runtime().wall_time().seconds()
    }

    pub(crate) fn values(&self, bucket: &str, key: &str) -> Vec<String> {
        self.server.values("default", bucket, key)
    }
}
