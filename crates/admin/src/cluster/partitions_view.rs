//! `cluster partition` and `cluster partition-count`: one partition, and the number of partitions.
//!
//! Pure: the agreed state comes in, texts and JSON come out.

use kvorum_cluster::ClusterState;
use kvorum_ring::{Partition, RingSize};
use serde_json::json;

use super::words::name_of;
use crate::framed_table::framed;
use crate::request::AdminReply;

/// `cluster partition-count`.
pub(super) fn count(state: &ClusterState) -> AdminReply {
    let count = state.ring().size().get();
    let text = format!("Cluster-wide partition-count: {count}\n");
    AdminReply::ok(text, json!({"partitions": count}))
}

/// `cluster partition`: the partition of `which`: `id=3`, `index=0`, or just one of these numbers.
pub(super) fn one(state: &ClusterState, which: &str) -> AdminReply {
    let size = state.ring().size();
    let Some(partition) = named(size, which) else {
        return unknown(which);
    };
    let (id, index) = (partition.number(), partition.index_decimal(size));
    let node = name_of(state, state.ring().owner(partition));
    let cells = vec![index.clone(), id.to_string(), node.clone()];
    let riak = framed(&["index", "id", "node"], &[cells]) + "\n";
    let text = format!("partition {id} is owned by '{node}'\n");
    AdminReply::ok(text, json!({"id": id, "index": index, "node": node})).with_riak_text(riak)
}

/// A partition by its number or its index.
pub(crate) fn named(size: RingSize, which: &str) -> Option<Partition> {
    let by_id = |id: &str| size.partition(id.parse().ok()?);
    let by_index = |index: &str| {
        let mut all = size.partitions();
        all.find(|it| it.index_decimal(size) == index)
    };
    match which.split_once('=') {
        Some(("id", id)) => by_id(id),
        Some(("index", index)) => by_index(index),
        Some(_) => None,
        None => by_id(which).or_else(|| by_index(which)),
    }
}

fn unknown(which: &str) -> AdminReply {
    let refused = AdminReply::refused(format!(
        "Failed: there is no partition {which}; name one as id=3 or index=0, `kvorum admin cluster \
         partition-count` says how many there are"
    ));
    match which.split_once('=') {
        Some(("id", id)) => refused.with_riak_text(format!("ERROR: Id {id} is invalid.")),
        Some(("index", index)) => {
            refused.with_riak_text(format!("ERROR: Index {index} is invalid."))
        }
        _ => refused,
    }
}

/// A verb named a partition that does not exist.
pub(crate) fn no_partition(which: &str) -> AdminReply {
    AdminReply::refused(format!("Failed: there is no partition {which}"))
}

#[cfg(test)]
mod tests {
    use super::super::example_cluster::three_members;
    use super::*;

    #[test]
    fn a_partition_is_named_by_its_number_or_its_index() {
        let size = RingSize::SMALLEST;
        for which in [
            "3",
            "id=3",
            "548063113999088594326381812268606132370974703616",
            "index=548063113999088594326381812268606132370974703616",
        ] {
            assert_eq!(
                named(size, which).map(Partition::number),
                Some(3),
                "{which}"
            );
        }
        for which in ["id=99", "index=1", "index=99", "name=3", "x", ""] {
            assert_eq!(named(size, which), None, "{which}");
        }
    }

    #[test]
    fn under_riaks_name_a_partition_is_a_framed_row() {
        let state = three_members();
        let reply = one(&state, "index=0");
        let node = reply.data["node"].as_str().unwrap();
        let riak = reply.riak.as_deref().unwrap();
        assert!(riak.contains("|index|id|"), "{riak}");
        assert!(riak.contains(&format!("|  0  |0 |{node}|")), "{riak}");
        let refused = one(&state, "id=99");
        assert_eq!(refused.riak.as_deref(), Some("ERROR: Id 99 is invalid."));
        let counted = count(&state);
        assert_eq!(
            counted.text,
            format!(
                "Cluster-wide partition-count: {}\n",
                state.ring().size().get()
            )
        );
    }
}
