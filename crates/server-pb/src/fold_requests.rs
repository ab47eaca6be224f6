//! Folds over the keys of a bucket, Riak's AAE folds: one reply each.
//!
//! Riak queues the keys that it reaps, erases and repairs, and answers with their number; here the
//! reply follows the last key. So `local` and `job` mean the same, and the number of a job is
//! ignored.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use kvorum_coordinator::{Coordinator, KeyChange};
use kvorum_encoding::{Bucket, BucketType, Key};
use kvorum_key_folds::{
    EntryClass, Findings, FoldKind, FoldScope, KeyClock, KeyFold, KeyNumber, LeafFilter,
    ObjectStats,
};
use kvorum_protocol::pb;
use kvorum_tictac::{Tree, TreeSize, compressed_branch, level_bytes};
use prost::Message as _;

use crate::connection::Connection;
use crate::object_requests::{bucket_of, type_of};
use crate::refusal::{Failure, Refusal};

/// The time after which a fold is given up.
const FOLD_TIMEOUT: Duration = Duration::from_secs(3_600);

/// The scope of a request with ranges of keys and of times: each of Riak's messages has these fields, and is
/// a type of its own.
macro_rules! ranged_scope {
    ($request:ident) => {
        FoldScope {
            keys: keys($request.key_range, $request.start_key, $request.end_key)?,
            modified_seconds: modified(
                $request.modified_range,
                $request.last_mod_start,
                $request.last_mod_end,
            )?,
            ..scope_of($request.r#type, $request.bucket)?
        }
    };
}

/// The scope of a request that can also name leaves of a tree.
macro_rules! filtered_scope {
    ($request:ident) => {
        FoldScope {
            leaves: leaves(
                $request.segment_filter,
                $request.id_filter,
                $request.filter_tree_size,
            )?,
            ..ranged_scope!($request)
        }
    };
}

impl Connection {
    pub(crate) async fn fold_object_stats(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::RpbAaeFoldObjectStatsReq::decode(payload)?;
        let scope = ranged_scope!(request);
        let found = fold(&self.shared.coordinator, scope, FoldKind::ObjectStats).await?;
        self.reply(&counts("stats", stats(&found.stats)))
    }

    pub(crate) async fn fold_find_keys(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::RpbAaeFoldFindKeysReq::decode(payload)?;
        let limit = u64::from(request.find_limit);
        let kind = match pb::FindType::try_from(request.finder) {
            Ok(pb::FindType::SiblingCount) => FoldKind::SiblingsAbove(limit),
            Ok(pb::FindType::ObjectSize) => FoldKind::SizeAbove(limit),
            Err(_) => return Err(Refusal::InvalidFold.into()),
        };
        let scope = ranged_scope!(request);
        let found = fold(&self.shared.coordinator, scope, kind).await?;
        let number = |KeyNumber { key, number }| count(key.to_bytes(), None, number);
        let numbers = found.numbers.into_iter().map(number).collect();
        self.reply(&counts("find_keys", numbers))
    }

    pub(crate) async fn fold_find_tombstones(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::RpbAaeFoldFindTombsReq::decode(payload)?;
        let scope = filtered_scope!(request);
        self.fold_clocks(scope, EntryClass::Tombstones).await
    }

    pub(crate) async fn fold_fetch_clocks(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::RpbAaeFoldFetchClocksRangeReq::decode(payload)?;
        let scope = filtered_scope!(request);
        self.fold_clocks(scope, EntryClass::Any).await
    }

    pub(crate) async fn fold_merge_trees(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::RpbAaeFoldMergeTreesRangeReq::decode(payload)?;
        let size = tree_size(request.tree_size)?;
        let kind = FoldKind::Tree {
            leaves: size.leaves(),
            seed: match request.use_prehash {
                true => None,
                false => Some(u64::from(request.init_vector.unwrap_or(0))),
            },
        };
        let scope = filtered_scope!(request);
        let found = fold(&self.shared.coordinator, scope, kind).await?;
        let runtime = self.shared.coordinator.runtime();
        // Compressing the branches of a large tree takes a while.
        let tree = runtime.blocking(move || tree(size, &found.leaves)).await;
        self.reply(&tree)
    }

    pub(crate) async fn fold_reap_tombstones(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::RpbAaeFoldReapTombsReq::decode(payload)?;
        let method = method(request.change_method)?;
        let scope = filtered_scope!(request);
        let change = KeyChange::Reap;
        self.fold_change(scope, change, method, "reap_tombs").await
    }

    pub(crate) async fn fold_erase_keys(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::RpbAaeFoldEraseKeysReq::decode(payload)?;
        let method = method(request.change_method)?;
        let scope = filtered_scope!(request);
        let change = KeyChange::Erase;
        self.fold_change(scope, change, method, "erase_keys").await
    }

    pub(crate) async fn fold_repair_keys(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::RpbAaeFoldRepairKeysReq::decode(payload)?;
        let scope = ranged_scope!(request);
        let (change, method) = (KeyChange::Repair, pb::ChangeMethod::Local);
        self.fold_change(scope, change, method, "repair_keys").await
    }

    pub(crate) async fn fold_list_buckets(&mut self, payload: Bytes) -> Result<(), Failure> {
        // In Riak, n_val selects the replicas in which buckets are searched; here all buckets are
        // found anyway.
        let _n_val = pb::RpbAaeFoldListBucketsReq::decode(payload)?;
        let coordinator = &self.shared.coordinator;
        coordinator.until_opened(None).await;
        let buckets = coordinator.all_buckets(FOLD_TIMEOUT).await?;
        let listed = |(bucket_type, bucket): (BucketType, Bucket)| pb::RpbAaeFoldBucket {
            r#type: shown_type(&bucket_type),
            bucket: bucket.to_bytes(),
        };
        let bucket_list = buckets.into_iter().map(listed).collect();
        self.reply(&pb::RpbAaeFoldListBucketsResp { bucket_list })
    }

    async fn fold_clocks(&mut self, scope: FoldScope, class: EntryClass) -> Result<(), Failure> {
        let (of_type, bucket) = (shown_type(&scope.bucket_type), scope.bucket.to_bytes());
        let found = fold(&self.shared.coordinator, scope, FoldKind::Clocks(class)).await?;
        let value = |KeyClock { key, clock }| pb::RpbKeysValue {
            r#type: of_type.clone(),
            bucket: bucket.clone(),
            key: key.to_bytes(),
            value: clock,
        };
        self.reply(&pb::RpbAaeFoldKeyValueResp {
            response_type: Bytes::from_static(b"clock"),
            keys_value: found.clocks.into_iter().map(value).collect(),
        })
    }

    async fn fold_change(
        &mut self,
        scope: FoldScope,
        change: KeyChange,
        method: pb::ChangeMethod,
        response_type: &'static str,
    ) -> Result<(), Failure> {
        let dispatched = match method {
            pb::ChangeMethod::Count => {
                let kind = FoldKind::Count(change.entries());
                fold(&self.shared.coordinator, scope, kind).await?.count
            }
            pb::ChangeMethod::Local | pb::ChangeMethod::Job => {
                let coordinator = &self.shared.coordinator;
                ready_for(coordinator, &scope).await?;
                let changed = coordinator.change_keys(scope, change, FOLD_TIMEOUT);
                changed.await?.dispatched
            }
        };
        let tag = Bytes::from_static(b"dispatched_count");
        self.reply(&counts(response_type, vec![count(tag, None, dispatched)]))
    }
}

async fn fold(
    coordinator: &Coordinator,
    scope: FoldScope,
    kind: FoldKind,
) -> Result<Findings, Failure> {
    ready_for(coordinator, &scope).await?;
    let found = coordinator.fold_keys(KeyFold { scope, kind }, FOLD_TIMEOUT);
    Ok(found.await?)
}

/// Refuses an unknown type, and waits for stores that are being opened.
async fn ready_for(coordinator: &Coordinator, scope: &FoldScope) -> Result<(), Failure> {
    coordinator
        .state()
        .type_properties(&scope.bucket_type)
        .map_err(Refusal::from)?;
    coordinator.until_opened(None).await;
    Ok(())
}

fn scope_of(bucket_type: Option<Bytes>, bucket: Bytes) -> Result<FoldScope, Refusal> {
    Ok(FoldScope::bucket(
        &type_of(bucket_type)?,
        &bucket_of(bucket)?,
    ))
}

fn keys(
    is_ranged: bool,
    first: Option<Bytes>,
    last: Option<Bytes>,
) -> Result<Option<(Key, Key)>, Refusal> {
    match (is_ranged, first, last) {
        (false, ..) => Ok(None),
        (true, Some(first), Some(last)) => Ok(Some((Key::new(first), Key::new(last)))),
        (true, ..) => Err(Refusal::InvalidFold),
    }
}

fn modified(
    is_ranged: bool,
    first: Option<u32>,
    last: Option<u32>,
) -> Result<Option<(u64, u64)>, Refusal> {
    match (is_ranged, first, last) {
        (false, ..) => Ok(None),
        (true, Some(first), Some(last)) if first <= last => Ok(Some((first.into(), last.into()))),
        (true, ..) => Err(Refusal::InvalidFold),
    }
}

fn leaves(
    is_filtered: bool,
    wanted: Vec<u32>,
    size: Option<i32>,
) -> Result<Option<LeafFilter>, Refusal> {
    if !is_filtered {
        return Ok(None);
    }
    let size = tree_size(size.ok_or(Refusal::InvalidFold)?)?;
    Ok(LeafFilter::new(size.leaves(), wanted))
}

fn tree_size(number: i32) -> Result<TreeSize, Refusal> {
    let number = u8::try_from(number).ok();
    let size = number.and_then(TreeSize::from_number);
    size.ok_or(Refusal::InvalidFold)
}

fn method(number: i32) -> Result<pb::ChangeMethod, Refusal> {
    pb::ChangeMethod::try_from(number).map_err(|_| Refusal::InvalidFold)
}

/// A type as replies name it; `None` for buckets without a type.
fn shown_type(bucket_type: &BucketType) -> Option<Bytes> {
    (!bucket_type.is_default()).then(|| bucket_type.to_bytes())
}

fn counts(
    response_type: &'static str,
    keys_count: Vec<pb::RpbKeysCount>,
) -> pb::RpbAaeFoldKeyCountResp {
    pb::RpbAaeFoldKeyCountResp {
        response_type: Bytes::from_static(response_type.as_bytes()),
        keys_count,
    }
}

/// Messages have 32 bits for a number. A larger number is sent as the largest possible.
fn count(tag: Bytes, order: Option<u64>, count: u64) -> pb::RpbKeysCount {
    let number = |it: u64| u32::try_from(it).unwrap_or(u32::MAX);
    pb::RpbKeysCount {
        tag,
        order: order.map(number),
        count: number(count),
    }
}

fn stats(stats: &ObjectStats) -> Vec<pb::RpbKeysCount> {
    let named =
        |tag: &'static str, order, number| count(Bytes::from_static(tag.as_bytes()), order, number);
    let histogram = |tag: &'static str, histogram: &BTreeMap<u64, u64>| {
        let pairs = histogram.iter();
        let counts = pairs.map(|(order, number)| named(tag, Some(*order), *number));
        counts.collect::<Vec<_>>()
    };
    let mut all = vec![
        named("total_count", None, stats.count),
        named("total_size", None, stats.bytes),
    ];
    all.extend(histogram("sizes", &stats.sizes));
    all.extend(histogram("siblings", &stats.siblings));
    all
}

fn tree(size: TreeSize, leaves: &BTreeMap<u32, u32>) -> pb::RpbAaeFoldTreeResp {
    let mut tree = Tree::new(size);
    for (leaf, hash) in leaves.range(..size.leaves()) {
        tree.correct(*leaf, *hash);
    }
    let branches = (0u32..).zip(0..size.branches());
    let branch = |(number, at)| Bytes::from(compressed_branch(number, tree.branch(at)));
    pb::RpbAaeFoldTreeResp {
        size: i32::from(size.number()),
        level_one: Some(level_bytes(tree.root()).into()),
        level_two: branches.map(branch).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_count_where_they_are_asked_for() {
        let (a, z) = (Bytes::from_static(b"a"), Bytes::from_static(b"z"));
        let both = || (Some(a.clone()), Some(z.clone()));
        assert!(matches!(keys(false, both().0, both().1), Ok(None)));
        let range = keys(true, both().0, both().1).unwrap();
        assert_eq!(range, Some((Key::from("a"), Key::from("z"))));
        assert!(keys(true, both().0, None).is_err());
        assert!(matches!(modified(false, Some(2), Some(1)), Ok(None)));
        assert_eq!(modified(true, Some(1), Some(1)).unwrap(), Some((1, 1)));
        assert!(modified(true, Some(2), Some(1)).is_err());
        assert!(modified(true, None, Some(1)).is_err());
        assert!(matches!(leaves(false, vec![1], None), Ok(None)));
        let filter = leaves(true, vec![2, 1], Some(1)).unwrap();
        assert_eq!(
            filter,
            LeafFilter::new(TreeSize::XSmall.leaves(), vec![1, 2])
        );
        for size in [None, Some(6), Some(-1)] {
            assert!(leaves(true, vec![1], size).is_err());
        }
    }

    #[test]
    fn statistics_are_tagged_numbers_in_riaks_order() {
        let shown = stats(&ObjectStats {
            count: 3,
            bytes: u64::MAX,
            sizes: BTreeMap::from([(2, 3)]),
            siblings: BTreeMap::from([(1, 2), (3, 1)]),
        });
        let shown: Vec<_> = shown
            .iter()
            .map(|it| (&it.tag[..], it.order, it.count))
            .collect();
        let expected: [(&[u8], Option<u32>, u32); 5] = [
            (b"total_count", None, 3),
            (b"total_size", None, u32::MAX),
            (b"sizes", Some(2), 3),
            (b"siblings", Some(1), 2),
            (b"siblings", Some(3), 1),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_tree_has_all_of_its_branches() {
        let shown = tree(TreeSize::XxSmall, &BTreeMap::from([(256, 7)]));
        assert_eq!((shown.size, shown.level_two.len()), (0, 16));
        let root = shown.level_one.unwrap();
        assert_eq!(root.len(), 64);
        assert_eq!(root[..8], [0, 0, 0, 0, 0, 0, 0, 7]);
        let numbers: Vec<u8> = shown.level_two.iter().map(|it| it[3]).collect();
        assert_eq!(numbers, (0..16).collect::<Vec<u8>>());
    }
}
