//! A source, a state directory and a server on simulated time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kvorum_disk::{Disk, MemoryDisk, OpenMode};
use kvorum_import_bitcask::{
    ImportError, ImportOptions, ImportTarget, Progress, SharedOptions, Summary, System, import,
};
use kvorum_runtime::{Executor, Moment, Runtime};

use crate::basho::{CaskFile, key};
use crate::fake_server::FakeServer;
use crate::riak_objects::{object_v1, plain};

pub(crate) struct World {
    executor: Executor,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) server: FakeServer,
    pub(crate) options: ImportOptions,
    pub(crate) file_mode: fn(&Path) -> Option<u32>,
    pub(crate) is_running: fn(u32) -> bool,
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
            expiry: None,
            ignore_hints: false,
        };
        Self {
            executor,
            disk,
            server,
            options,
            file_mode: |_| None,
            is_running: |_| false,
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

    /// Writes a data file of a partition, without a hint file.
    pub(crate) fn data(&self, partition: u32, id: u32, file: &CaskFile) {
        let directory = crate::partitions::partition(partition);
        self.write(&format!("riak/{directory}/{id}.bitcask.data"), &file.data);
    }

    /// Writes a data file and its hint file.
    pub(crate) fn closed(&self, partition: u32, id: u32, file: &CaskFile) {
        self.data(partition, id, file);
        let directory = crate::partitions::partition(partition);
        self.write(&format!("riak/{directory}/{id}.bitcask.hint"), &file.hint());
    }

    /// Writes three partitions with the same keys, which are numbered and equal their values.
    pub(crate) fn fill(&self, keys: usize) {
        for partition in 0..3 {
            let mut file = CaskFile::default();
            for number in 0..keys {
                let object = object_v1(&[("a", 1)], &[plain(&number.to_string())]);
                file.put(&key("b", &number.to_string()), &object);
            }
            self.closed(partition, 1, &file);
        }
    }

    pub(crate) fn import(&self) -> Result<Summary, ImportError> {
        self.import_with(&Arc::new(Progress::default()))
    }

    /// Imports with an observed progress.
    pub(crate) fn import_with(&self, progress: &Arc<Progress>) -> Result<Summary, ImportError> {
        let system = System {
            disk: self.disk.clone(),
            runtime: self.executor.runtime(),
            file_mode: self.file_mode,
            is_running: self.is_running,
            lock_holder: |_| None,
            open_file: |_| None,
        };
        self.executor
            .block_on(import(system, self.options.clone(), progress.clone()))
    }

    pub(crate) fn now(&self) -> Moment {
        self.executor.runtime().now()
    }

    pub(crate) fn wall_seconds(&self) -> u64 {
        self.executor.runtime().wall_time().seconds()
    }

    pub(crate) fn values(&self, bucket: &str, key: &str) -> Vec<String> {
        self.server.values("default", bucket, key)
    }
}
