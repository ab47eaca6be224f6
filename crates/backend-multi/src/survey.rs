//! The search for buckets with data outside of the child of their route, in steps.

use std::collections::HashMap;

use bytes::Bytes;
use kvorum_backend::{Flow, FoldEnd, FoldFilter, FoldRange, Lease, Result, Timestamp};
use kvorum_encoding::without_page_mark;

use crate::child::{Child, ChildNumber, ChildSet};
use crate::key_merge::bucket_of_key;
use crate::routes::RouteTable;

/// The most buckets that a step checks.
const BUCKETS_A_STEP: u64 = 1024;
/// The estimated cost of checking a bucket: a seek in a sorted table reads a block. Bytes.
pub(crate) const BUCKET_BYTES: u64 = 4096;

/// A search for one table of routes.
pub(crate) struct Survey {
    /// The version of its routes.
    pub(crate) version: u64,
    /// The child that is being checked.
    child: ChildNumber,
    /// The range that was not checked yet.
    rest: FoldRange,
    found: HashMap<Bytes, ChildSet>,
}

/// The result of a step.
pub(crate) struct SurveyStep {
    /// The estimated cost.
    pub(crate) cost_bytes: u64,
    /// All strays, after the last step.
    pub(crate) found: Option<HashMap<Bytes, ChildSet>>,
}

impl Survey {
    pub(crate) fn new(version: u64) -> Self {
        Self {
            version,
            child: 0,
            rest: FoldRange::all(),
            found: HashMap::new(),
        }
    }

    /// Checks some more buckets, up to this many estimated bytes.
    pub(crate) fn step(
        &mut self,
        children: &[Child],
        table: &RouteTable,
        bytes_max: u64,
        now: Timestamp,
    ) -> Result<SurveyStep> {
        let buckets_max = (bytes_max / BUCKET_BYTES).clamp(1, BUCKETS_A_STEP);
        let Some(child) = children.get(self.child) else {
            return Ok(self.step_of(0));
        };
        let (own, found, mut looked_at) = (self.child, &mut self.found, 0);
        let snapshot = child.named(child.store.snapshot(Lease::Unlimited))?;
        let filter = FoldFilter::unexpired(now);
        let end = snapshot.fold_buckets(&self.rest, &filter, &mut |visited| {
            let bucket = without_page_mark(bucket_of_key(visited.key));
            if table.child_of(bucket) != own {
                let children = found.entry(Bytes::copy_from_slice(bucket)).or_default();
                *children = children.with(own);
            }
            looked_at += 1;
            match looked_at < buckets_max {
                true => Flow::Continue,
                false => Flow::Stop,
            }
        });
        match child.named(end)? {
            FoldEnd::Complete => {
                self.child += 1;
                self.rest = FoldRange::all();
            }
            FoldEnd::Stopped(at) | FoldEnd::LeaseExpired(at) => {
                self.rest = FoldRange::all().resumed_at(&at);
            }
        }
        let is_over = self.child == children.len();
        Ok(match is_over {
            true => self.step_of(looked_at),
            false => SurveyStep {
                cost_bytes: cost_of(looked_at),
                found: None,
            },
        })
    }

    fn step_of(&mut self, looked_at: u64) -> SurveyStep {
        SurveyStep {
            cost_bytes: cost_of(looked_at),
            found: Some(std::mem::take(&mut self.found)),
        }
    }
}

/// The cost of a step; a child without buckets has a cost as well.
fn cost_of(looked_at: u64) -> u64 {
    looked_at.max(1) * BUCKET_BYTES
}
