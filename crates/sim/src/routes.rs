//! The routes of a store of several backends in a run.
//!
//! They are drawn again every few seconds, as if an operator had changed the backends of buckets.
//! So buckets are always about to move, moving, or moving back.
//!
//! The hints, whose keys are not keys of buckets, stay in the first child.

use std::sync::Arc;
use std::time::Duration;

use kvorum_backend_multi::{RouteTable, Routes};
use kvorum_encoding::{Bucket, BucketType};
use kvorum_runtime::Runtime;
use parking_lot::Mutex;

use crate::buckets::{BUCKET, STEADY_BUCKET};

/// A move of a bucket takes a few steps of upkeep: in this time some moves end, and others are
/// reverted.
const PERIOD: Duration = Duration::from_secs(5);

/// See the module's description.
pub(crate) struct DrawnRoutes {
    runtime: Runtime,
    drawn: u64,
    made: Mutex<(u64, Arc<RouteTable>)>,
}

impl DrawnRoutes {
    /// New routes for each opening of a store.
    pub(crate) fn new(runtime: &Runtime) -> Self {
        let drawn = runtime.random_u64();
        Self {
            runtime: runtime.clone(),
            drawn,
            made: Mutex::new((0, Arc::new(table(drawn, 0)))),
        }
    }
}

impl Routes for DrawnRoutes {
    fn version(&self) -> u64 {
        let elapsed = self.runtime.now().elapsed();
        elapsed.as_secs() / PERIOD.as_secs()
    }

    fn table(&self) -> (u64, Arc<RouteTable>) {
        let version = self.version();
        let mut made = self.made.lock();
        if made.0 != version {
            *made = (version, Arc::new(table(self.drawn, version)));
        }
        made.clone()
    }
}

/// A table that routes each bucket by a bit, with different bits for each version.
fn table(drawn: u64, version: u64) -> RouteTable {
    let bits = drawn.rotate_right(u32::try_from(version * 2 % 64).unwrap_or(0));
    let mut table = RouteTable::to(0);
    for (number, name) in [BUCKET, STEADY_BUCKET].into_iter().enumerate() {
        let child = usize::from(bits >> number & 1 == 1);
        let bucket = Bucket::new(name.to_vec());
        table.route_bucket(&BucketType::default_type(), &bucket, child);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_go_there_and_back() {
        let key = kvorum_encoding::bucket_prefix(
            &BucketType::default_type(),
            &Bucket::new(BUCKET.to_vec()),
        );
        let drawn = 0x9e37_79b9_7f4a_7c15;
        let children: Vec<usize> = (0..12).map(|it| table(drawn, it).child_of(&key)).collect();
        assert!(
            children.contains(&0) && children.contains(&1),
            "{children:?}"
        );
    }
}
