//! Context of a read, in addition to a version: the cache, and the sink for damage.

use std::sync::Arc;

use kvorum_disk::Reading;
use kvorum_ordered_tree::Doubts;
use kvorum_sst::ReadContext;

use crate::cache::SharedCache;
use crate::lost::{LostLog, LostSink};

/// See the module.
pub(crate) struct ReadSide {
    pub(crate) cache: Arc<SharedCache>,
    /// The number of this store in the cache, for bodies read from the value log.
    pub(crate) cached_bodies: u64,
    pub(crate) lost: Arc<LostLog>,
    pub(crate) doubts: Arc<Doubts>,
    pub(crate) tables: LostSink,
    pub(crate) blobs: LostSink,
    pub(crate) journal: LostSink,
}

impl ReadSide {
    pub(crate) fn new(cache: Arc<SharedCache>, lost: Arc<LostLog>, doubts: Arc<Doubts>) -> Self {
        let sink = |suffix, doubts| LostSink {
            log: lost.clone(),
            doubts,
            suffix,
        };
        Self {
            cached_bodies: cache.new_table(),
            cache,
            tables: sink(".sst", Some(doubts.clone())),
            blobs: sink(".blob", None),
            journal: sink(".journal", None),
            lost,
            doubts,
        }
    }

    /// The context for point reads.
    pub(crate) fn at(&self, reading: Reading) -> ReadContext<'_> {
        ReadContext {
            cache: &*self.cache,
            sink: &self.tables,
            reading,
            fills_cache: true,
        }
    }

    /// The context for bodies. They are not cached: the page cache often has them, and they would
    /// evict blocks that many reads need.
    pub(crate) fn at_blobs(&self, reading: Reading) -> ReadContext<'_> {
        ReadContext {
            sink: &self.blobs,
            fills_cache: false,
            ..self.at(reading)
        }
    }

    /// The context for records of the journal: as for bodies.
    pub(crate) fn at_journal(&self, reading: Reading) -> ReadContext<'_> {
        ReadContext {
            sink: &self.journal,
            fills_cache: false,
            ..self.at(reading)
        }
    }

    /// The context for folds and merges, which read each block once.
    pub(crate) fn for_folds(&self) -> ReadContext<'_> {
        ReadContext {
            fills_cache: false,
            ..self.at(Reading::MayBlock)
        }
    }
}
