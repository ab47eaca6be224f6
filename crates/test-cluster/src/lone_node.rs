//! A lone node over stores in memory.

use std::path::Path;
use std::sync::Arc;

use kvorum_cluster::{AgreedState as _, ClusterId, Founding, LocalState, Member};
use kvorum_coordinator::Parts;
use kvorum_disk::{Disk, DiskError, MemoryDisk};
use kvorum_object::Limits;
use kvorum_ring::RingSize;
use kvorum_runtime::Runtime;

use crate::machines::node_id;
use crate::memory_vnodes::{Failure, MemoryVnodes};
use crate::stand_ins::Unmeasured;
use crate::vnodes::Vnodes;

const DIRECTORY: &str = "/node";

/// A node that owns all partitions.
pub struct LoneNode {
    /// The state, which the node agrees on alone.
    pub cluster: Arc<LocalState>,
    /// Stores for new vnodes.
    pub stores: MemoryVnodes,
    /// The open vnodes; none at first.
    pub vnodes: Arc<Vnodes>,
    runtime: Runtime,
}

impl LoneNode {
    /// A node with this name, and a ring of this many partitions.
    pub fn found(
        runtime: &Runtime,
        name: &str,
        ring_size: u64,
        limits: Limits,
    ) -> Result<Self, Failure> {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let founding = Founding {
            cluster_id: ClusterId::from_random([9; 16]),
            cluster_name: "test".into(),
            node: node_id(1),
            member: Member::new(name),
            ring_size: RingSize::new(ring_size)?,
        };
        let directory = Path::new(DIRECTORY);
        let cluster = LocalState::create(disk.clone(), directory, founding)?;
        let drawing = runtime.clone();
        let draw = move || drawing.random_u64();
        let stores = MemoryVnodes::new(disk, directory, runtime.randomness(), draw)?;
        Ok(Self {
            cluster: Arc::new(cluster),
            stores: stores.with_limits(limits),
            vnodes: Arc::default(),
            runtime: runtime.clone(),
        })
    }

    /// Opens all vnodes over empty stores.
    pub fn open(&self) -> Result<(), DiskError> {
        for (partition, _, epoch) in self.cluster.current().ring().partitions() {
            let vnode = self.stores.open(partition, epoch)?;
            self.vnodes.insert(Arc::new(vnode));
        }
        Ok(())
    }

    /// The parts of its coordinator; nothing is measured.
    pub fn parts(&self) -> Parts {
        let unmeasured = Arc::new(Unmeasured);
        Parts {
            node: node_id(1),
            runtime: self.runtime.clone(),
            cluster: self.cluster.clone(),
            vnodes: self.vnodes.clone(),
            meter: unmeasured.clone(),
            maintenance: unmeasured,
            under_way: Arc::default(),
        }
    }
}
