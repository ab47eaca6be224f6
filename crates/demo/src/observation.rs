//! The nodes' views of themselves and of the cluster, combined. Pure.

use std::collections::{BTreeMap, BTreeSet};

use kvorum_ring::{Partition, RingSize};
use serde_json::Value;

use crate::node::RING_SIZE;
use crate::script::NodeNumber;

/// Replicas of every key once the cluster has grown.
const REPLICAS: u64 = 3;

/// The view of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeView {
    /// Members in its state, itself included.
    pub(crate) members: BTreeSet<String>,
    /// Members that it does not reach.
    pub(crate) unreachable: BTreeSet<String>,
    /// Partitions that it owns.
    pub(crate) partitions: Vec<usize>,
    /// Partitions that have to move, each with its future owner.
    pub(crate) pending: Vec<(usize, Option<NodeNumber>)>,
    /// True if nothing moves or has to move, and keys have all their replicas.
    pub(crate) is_settled: bool,
}

/// A transfer under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TransferView {
    pub(crate) kind: String,
    pub(crate) partition: usize,
    pub(crate) from: Option<NodeNumber>,
    pub(crate) to: Option<NodeNumber>,
    pub(crate) keys: u64,
    pub(crate) percent: Option<u64>,
}

/// Transfers of all nodes that could be asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TransfersView {
    pub(crate) active: Vec<TransferView>,
    pub(crate) waiting: usize,
    /// Hints, by the node that keeps them.
    pub(crate) hints: BTreeMap<NodeNumber, u64>,
}

/// The views of all nodes that answer.
pub(crate) type Views = BTreeMap<NodeNumber, NodeView>;

/// Everything observed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Observation {
    pub(crate) nodes: Views,
    pub(crate) transfers: TransfersView,
}

impl NodeView {
    /// The view in `ring-status`, `partitions` and `member-status`.
    pub(crate) fn of(ring: &Value, partitions: &Value, members: &Value) -> Self {
        let owned = rows(partitions).filter(|row| row["type"] == "primary");
        let pending: Vec<_> = rows(&ring["pending"])
            .filter_map(|row| Some((partition_of_index(row)?, number(&row["next_owner"]))))
            .collect();
        let is_settled = ring["settled"] == true
            && ring["replicas_max"] == REPLICAS
            && pending.is_empty()
            && ring["vnodes"]["opening"] == 0
            && ring["vnodes"]["failed"] == 0;
        Self {
            members: rows(members).filter_map(|row| text(&row["node"])).collect(),
            unreachable: rows(&ring["unreachable"]).filter_map(text).collect(),
            partitions: owned.map(|row| count(&row["id"])).collect(),
            pending,
            is_settled,
        }
    }
}

impl TransfersView {
    /// The transfers in `transfers`.
    pub(crate) fn of(transfers: &Value) -> Self {
        let active = rows(&transfers["active"]).map(|row| TransferView {
            kind: text(&row["type"]).unwrap_or_default(),
            partition: count(&row["partition"]),
            from: number(&row["from"]),
            to: number(&row["to"]),
            keys: row["keys"].as_u64().unwrap_or(0),
            percent: row["percent"].as_u64(),
        });
        let hints = rows(&transfers["hinted"]);
        let hints = hints.filter_map(|row| Some((number(&row["node"])?, row["objects"].as_u64()?)));
        Self {
            active: active.collect(),
            waiting: rows(&transfers["waiting"]).count(),
            hints: hints.collect(),
        }
    }

    fn is_idle(&self) -> bool {
        self.active.is_empty() && self.waiting == 0 && self.hints.values().all(|hints| *hints == 0)
    }
}

impl Observation {
    /// True if `nodes` are all the members, see one another, and no partition moves: every read
    /// that begins now has to find every earlier acknowledged write.
    pub(crate) fn is_whole(&self, nodes: &[NodeNumber]) -> bool {
        let all_settled = nodes.iter().all(|node| {
            self.nodes.get(node).is_some_and(|view| {
                view.is_settled && view.unreachable.is_empty() && view.members.len() == nodes.len()
            })
        });
        let all_reported = nodes
            .iter()
            .all(|node| self.transfers.hints.contains_key(node));
        all_settled && all_reported && self.transfers.is_idle()
    }

    /// The reason why the cluster is not whole, in a few words.
    pub(crate) fn hindrance(&self, nodes: &[NodeNumber]) -> String {
        for node in nodes {
            let Some(view) = self.nodes.get(node) else {
                return format!("node {node} does not answer");
            };
            if !view.unreachable.is_empty() {
                let count = view.unreachable.len();
                return format!("node {node} does not see {count} others");
            }
            if view.members.len() != nodes.len() {
                return format!("node {node} knows {} members", view.members.len());
            }
            if !view.pending.is_empty() {
                return format!("{} partitions are to move", view.pending.len());
            }
            if !view.is_settled {
                return "keys get further replicas".to_owned();
            }
        }
        let hints: u64 = self.transfers.hints.values().sum();
        match (self.transfers.active.len() + self.transfers.waiting, hints) {
            (0, 0) => "not all nodes reported their transfers".to_owned(),
            (0, hints) => format!("{hints} hinted objects are to be handed over"),
            (transfers, _) => format!("{transfers} transfers are to be made"),
        }
    }

    /// The owner of each partition, from the owners' views; other partitions keep their owner in
    /// `before`.
    pub(crate) fn owners(&self, before: &[Option<NodeNumber>]) -> Vec<Option<NodeNumber>> {
        let mut owners = before.to_vec();
        owners.resize(RING_SIZE, None);
        for (node, view) in &self.nodes {
            for &partition in &view.partitions {
                if let Some(owner) = owners.get_mut(partition) {
                    *owner = Some(*node);
                }
            }
        }
        owners
    }

    /// Partitions that have to move, each with its future owner, in the view of the node with the
    /// most of them.
    pub(crate) fn pending(&self) -> BTreeMap<usize, Option<NodeNumber>> {
        let views = self.nodes.values();
        let most = views.max_by_key(|view| view.pending.len());
        most.into_iter()
            .flat_map(|view| view.pending.iter().copied())
            .collect()
    }
}

/// The number in `node3@127.0.0.1`.
fn number(name: &Value) -> Option<NodeNumber> {
    let name = name.as_str()?.strip_prefix("node")?;
    name.split_once('@')?.0.parse().ok()
}

/// The partition that a row names by its index on the ring.
fn partition_of_index(row: &Value) -> Option<usize> {
    let size = RingSize::new(RING_SIZE as u64).ok()?;
    let partition = Partition::from_index_decimal(row["index"].as_str()?, size).ok()?;
    Some(usize::from(partition.number()))
}

fn rows(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn count(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap_or(0)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(partitions: &[u64], pending: &Value, unreachable: &Value) -> NodeView {
        let ring = json!({
            "settled": pending.as_array().unwrap().is_empty(), "replicas_max": 3,
            "pending": pending, "unreachable": unreachable,
            "vnodes": {"open": 8, "opening": 0, "failed": 0},
        });
        let partitions = partitions.iter();
        let mut partitions: Vec<Value> = partitions
            .map(|id| json!({"type": "primary", "id": id}))
            .collect();
        partitions.push(json!({"type": "secondary", "id": 31}));
        let member = |number| json!({"node": format!("node{number}@127.0.0.1")});
        let members = json!([member(1), member(2), member(3)]);
        NodeView::of(&ring, &json!(partitions), &members)
    }

    fn transfers(hints: u64) -> TransfersView {
        let hinted = |number: u32, objects: u64| {
            let node = format!("node{number}@127.0.0.1");
            json!({"node": node, "objects": objects})
        };
        TransfersView::of(&json!({
            "active": [], "waiting": [],
            "hinted": [hinted(1, 0), hinted(2, hints), hinted(3, 0)],
        }))
    }

    fn whole() -> Observation {
        let settled = || view(&[0, 3], &json!([]), &json!([]));
        Observation {
            nodes: (1..=3).map(|node| (node, settled())).collect(),
            transfers: transfers(0),
        }
    }

    #[test]
    fn it_is_whole_when_all_members_say_so_and_nothing_is_on_its_way() {
        assert!(whole().is_whole(&[1, 2, 3]));
        assert!(!whole().is_whole(&[1, 2]), "they know a third");
        assert!(!whole().is_whole(&[1, 2, 3, 4]), "the fourth says nothing");
        let mut hinted = whole();
        hinted.transfers = transfers(22);
        assert!(!hinted.is_whole(&[1, 2, 3]));
        assert!(hinted.hindrance(&[1, 2, 3]).contains("22 hinted"));
        let mut apart = whole();
        let unreachable = json!(["node1@127.0.0.1"]);
        apart.nodes.insert(2, view(&[1], &json!([]), &unreachable));
        assert!(!apart.is_whole(&[1, 2, 3]));
        assert!(apart.hindrance(&[1, 2, 3]).contains("node 2 does not see"));
        let mut silent = whole();
        silent.transfers = TransfersView::default();
        assert!(!silent.is_whole(&[1, 2, 3]));
    }

    #[test]
    fn owners_are_those_that_say_so_and_a_silent_node_keeps_its_own() {
        let mut observation = whole();
        observation.nodes.clear();
        observation
            .nodes
            .insert(2, view(&[1, 5], &json!([]), &json!([])));
        let mut before = vec![Some(1); RING_SIZE];
        before[5] = Some(3);
        let owners = observation.owners(&before);
        assert_eq!(owners[..6], [1, 2, 1, 1, 1, 2].map(Some));
        assert_eq!(owners[31], Some(1));
    }

    #[test]
    fn what_is_to_move_is_reported_by_the_index_on_the_ring() {
        let size = RingSize::new(RING_SIZE as u64).unwrap();
        let index = size.partition(7).unwrap().index_decimal(size);
        let pending = json!([{"index": index, "next_owner": "node6@127.0.0.1"}]);
        let mut observation = whole();
        observation.nodes.insert(1, view(&[], &pending, &json!([])));
        let expected = BTreeMap::from([(7, Some(6))]);
        assert_eq!(observation.pending(), expected);
        assert!(observation.hindrance(&[1, 2, 3]).contains("1 partitions"));
    }

    #[test]
    fn transfers_are_reported_with_the_numbers_of_their_nodes() {
        let transfers = TransfersView::of(&json!({
            "active": [{
                "type": "ownership", "partition": 9, "from": "node3@127.0.0.1", "to": "node6@127.0.0.1",
                "keys": 12, "percent": 45,
            }],
            "waiting": [{}, {}], "hinted": [],
        }));
        let transfer = &transfers.active[0];
        assert_eq!((transfer.from, transfer.to), (Some(3), Some(6)));
        assert_eq!((transfer.partition, transfer.percent), (9, Some(45)));
        assert_eq!(transfers.waiting, 2);
    }
}
