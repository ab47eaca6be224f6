//! A source, a state directory and a server on simulated time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kvorum_disk::{Disk, MemoryDisk, OpenMode};
use kvorum_import::{ImportError, ImportTarget, Progress, SharedOptions, Summary, System};
use kvorum_import_leveldb::{ImportOptions, import};
use kvorum_runtime::{Executor, Runtime};

use crate::fake_server::FakeServer;
use crate::level_store::LevelStore;

pub(crate) struct World {
    executor: Executor,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) server: FakeServer,
    pub(crate) options: ImportOptions,
    pub(crate) lock_holder: fn(&Path) -> Option<u32>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::over(Arc::new(MemoryDisk::new()))
    }

    pub(crate) fn over(disk: Arc<dyn Disk>) -> Self {
        let executor = Runtime::simulated(7).unwrap();
        let server = FakeServer::start(&executor.runtime());
        let shared = SharedOptions {
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
        let options = ImportOptions {
            shared,
            slow_tiers: Vec::new(),
            retention: None,
            ignore_manifests: false,
        };
        Self {
            executor,
            disk,
            server,
            options,
            lock_holder: |_| None,
        }
    }

    pub(crate) fn write(&self, path: &str, bytes: &[u8]) {
        let path = Path::new(path);
        self.disk.create_directory(path.parent().unwrap()).unwrap();
        self.remove(path);
        let file = self.disk.open(path, OpenMode::CreateNew).unwrap();
        file.write_at(bytes, 0).unwrap();
    }

    pub(crate) fn remove(&self, path: &Path) {
        if self.disk.info(path).unwrap().is_some() {
            self.disk.remove_file(path).unwrap();
        }
    }

    /// Writes the store of a partition.
    pub(crate) fn store(&self, partition: u32, store: &LevelStore) {
        let directory = crate::partitions::partition(partition);
        for (name, bytes) in store.all_files() {
            self.write(&format!("riak/{directory}/{name}"), &bytes);
        }
    }

    pub(crate) fn import(&self) -> Result<Summary, ImportError> {
        let system = System {
            disk: self.disk.clone(),
            runtime: self.executor.runtime(),
            file_mode: |_| None,
            is_running: |_| false,
            lock_holder: self.lock_holder,
            open_file: |_| None,
        };
        let progress = Arc::new(Progress::default());
        self.executor
            .block_on(import(system, self.options.clone(), progress))
    }

    pub(crate) fn now_micros(&self) -> u64 {
        self.executor.runtime().wall_time().micros()
    }

    pub(crate) fn values(&self, bucket: &str, key: &str) -> Vec<String> {
        self.server.values("default", bucket, key)
    }
}
