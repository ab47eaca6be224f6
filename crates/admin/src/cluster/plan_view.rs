//! A plan as operators see it: joining and leaving nodes, moves, their size and their duration.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use kvorum_cluster::{ClusterState, MemberStatus, Plan, StagedChange};
use kvorum_maintenance::counted;
use kvorum_member::StoreSize;
use kvorum_ring::{NodeId, Partition};
use serde_json::{Value, json};

use super::members_view::{Names, share, shares_of, table_of_members};
use super::transfers_view::{bytes, duration};
use super::words::{RULER, banner, name_of, status_word};

/// Moves that are shown one by one; JSON has them all.
const MOVES_SHOWN: usize = 16;

/// Contents of the stores of the nodes that answered.
pub(super) type Sizes = BTreeMap<NodeId, Vec<StoreSize>>;

/// The costs of a plan.
pub(super) struct PlanCosts {
    moves: Vec<PlannedMove>,
    pairs: BTreeMap<(NodeId, NodeId), Pair>,
    /// Bytes into each node; the nodes receive side by side.
    into: BTreeMap<NodeId, u64>,
    /// Bytes per second into a receiving node, as estimated now.
    bytes_per_second: u64,
}

struct PlannedMove {
    partition: Partition,
    from: NodeId,
    to: NodeId,
    size: Option<StoreSize>,
}

/// Data from one node to another.
#[derive(Default)]
struct Pair {
    partitions: usize,
    keys: u64,
    bytes: u64,
    /// Partitions whose owner did not answer.
    unknown: usize,
}

impl PlanCosts {
    pub(super) fn of(plan: &Plan, sizes: &Sizes, bytes_per_second: u64) -> Self {
        let mut costs = Self {
            moves: Vec::new(),
            pairs: BTreeMap::new(),
            into: BTreeMap::new(),
            bytes_per_second,
        };
        for transfer in &plan.transfers {
            let (partition, from, to) = (transfer.partition, transfer.from, transfer.to);
            let of_owner = sizes.get(&from).into_iter().flatten();
            let size = of_owner
                .copied()
                .find(|it| it.partition == partition.number());
            let pair = costs.pairs.entry((from, to)).or_default();
            pair.partitions += 1;
            match size {
                Some(size) => {
                    pair.keys += size.keys;
                    pair.bytes += size.bytes;
                    *costs.into.entry(to).or_default() += size.bytes;
                }
                None => pair.unknown += 1,
            }
            costs.moves.push(PlannedMove {
                partition,
                from,
                to,
                size,
            });
        }
        costs
    }

    fn bytes(&self) -> u64 {
        self.into.values().sum()
    }

    /// The busiest node's time.
    fn seconds(&self) -> u64 {
        let most = self.into.values().max().copied().unwrap_or(0);
        most.div_ceil(self.bytes_per_second.max(1))
    }

    fn sum_text(&self, state: &ClusterState) -> String {
        if self.moves.is_empty() {
            return String::new();
        }
        let unknown = self.moves.iter().filter(|it| it.size.is_none()).count();
        let at_least = if unknown == 0 { "" } else { "at least " };
        let mut text = format!(
            "\nTo be moved: {at_least}{} in {}; {} {} at {}/s into each node\n",
            bytes(self.bytes()),
            counted(self.moves.len(), "partition"),
            if unknown == 0 { "about" } else { "longer than" },
            duration(self.seconds().saturating_mul(1_000)),
            bytes(self.bytes_per_second),
        );
        for it in self.moves.iter().take(MOVES_SHOWN) {
            let size = it.size.map_or("unknown".to_owned(), |it| bytes(it.bytes));
            let _infallible = writeln!(
                text,
                "  partition {:>4}: '{}' => '{}', {size}",
                it.partition.number(),
                name_of(state, it.from),
                name_of(state, it.to),
            );
        }
        if self.moves.len() > MOVES_SHOWN {
            let _infallible = writeln!(text, "  and {} more", self.moves.len() - MOVES_SHOWN);
        }
        text
    }
}

impl PlannedMove {
    fn json(&self, state: &ClusterState) -> Value {
        json!({
            "partition": self.partition.number(),
            "from": name_of(state, self.from), "to": name_of(state, self.to),
            "objects": self.size.map(|it| it.keys), "bytes": self.size.map(|it| it.bytes),
        })
    }
}

impl Pair {
    fn size_text(&self) -> String {
        let known = format!("{}, {}", counted(self.keys, "object"), bytes(self.bytes));
        match self.unknown {
            0 => known,
            unknown => format!(
                "{known}, and {} of unknown size",
                counted(unknown, "partition")
            ),
        }
    }
}

fn staged_rows(state: &ClusterState) -> Vec<(&'static str, String)> {
    let joins = state.members().values();
    let joins = joins.filter(|member| member.status == MemberStatus::Joining);
    let joins = joins.map(|member| ("join", format!("'{}'", member.name)));
    let staged = state.staged().iter().map(|(node, change)| {
        let details = match change {
            StagedChange::Replace { by } | StagedChange::ForceReplace { by } => {
                format!("'{}' with '{}'", name_of(state, *node), name_of(state, *by))
            }
            StagedChange::Location(location) => {
                let location = location.as_deref().unwrap_or("none");
                format!("'{}' to {location}", name_of(state, *node))
            }
            _ => format!("'{}'", name_of(state, *node)),
        };
        (change.name(), details)
    });
    joins.chain(staged).collect()
}

pub(super) fn text(state: &ClusterState, plan: &Plan, costs: &PlanCosts) -> String {
    let mut text = plan_text(state, plan, Names::Quoted);
    for ((from, to), pair) in &costs.pairs {
        let _infallible = writeln!(
            text,
            "{}: {}",
            pair_text(state, *from, *to, pair),
            pair.size_text()
        );
    }
    text.push_str(&costs.sum_text(state));
    text
}

/// The plan as Riak prints it.
pub(super) fn riak_text(state: &ClusterState, plan: &Plan, costs: &PlanCosts) -> String {
    let mut text = plan_text(state, plan, Names::Bare);
    for ((from, to), pair) in &costs.pairs {
        let _infallible = writeln!(text, "{}", pair_text(state, *from, *to, pair));
    }
    text + "\n"
}

fn pair_text(state: &ClusterState, from: NodeId, to: NodeId, pair: &Pair) -> String {
    let (count, from, to) = (pair.partitions, name_of(state, from), name_of(state, to));
    format!("  {} from '{from}' to '{to}'", counted(count, "transfer"))
}

/// The plan without the moves between each pair of nodes.
fn plan_text(state: &ClusterState, plan: &Plan, names: Names) -> String {
    let mut text = banner("Staged Changes");
    let _infallible = writeln!(text, "Action         Details(s)\n{RULER}");
    for (action, details) in staged_rows(state) {
        let _infallible = writeln!(text, "{action:<14} {details}");
    }
    let _infallible = writeln!(text, "{RULER}\n");
    for (node, change) in state.staged() {
        if matches!(
            change,
            StagedChange::ForceRemove | StagedChange::ForceReplace { .. }
        ) {
            let name = name_of(state, *node);
            let _infallible = writeln!(text, "WARNING: All of '{name}' replicas will be lost");
        }
    }
    let _infallible = writeln!(
        text,
        "\nNOTE: Applying these changes will result in 1 cluster transition\n\n\
         {0}\n{1:24} After cluster transition 1/1\n{0}\n",
        "#".repeat(RULER.len()),
        "",
    );
    text.push_str(&banner("Membership"));
    let shares = shares_of(plan.target.partitions().map(|(_, owner, _)| owner));
    text.push_str(&table_of_members(
        state,
        &plan.members,
        state.ring(),
        Some(&shares),
        names,
    ));
    if !plan.crowded.is_empty() {
        text.push_str("\nWARNING: Not all replicas will be on distinct nodes\n");
    }
    text.push_str(&reassigned_text(state, plan));
    let count = plan.transfers.len();
    let _infallible = writeln!(text, "\nTransfers resulting from cluster changes: {count}");
    text
}

/// Partitions that change owner without a transfer, because the old owner is gone.
fn reassigned_text(state: &ClusterState, plan: &Plan) -> String {
    if plan.lost.is_empty() {
        return String::new();
    }
    let mut tally: BTreeMap<(String, String), usize> = BTreeMap::new();
    for partition in &plan.lost {
        let (from, to) = (
            state.ring().owner(*partition),
            plan.target.owner(*partition),
        );
        let pair = (name_of(state, from), name_of(state, to));
        *tally.entry(pair).or_default() += 1;
    }
    let mut text = format!(
        "\nPartitions reassigned from cluster changes: {}\n",
        plan.lost.len()
    );
    for ((from, to), count) in tally {
        let _infallible = writeln!(text, "  {count} reassigned from '{from}' to '{to}'");
    }
    text.push_str(
        "They come without a transfer and are repaired from their other replicas; data that only \
         the removed node had is lost\n",
    );
    text
}

pub(super) fn json(state: &ClusterState, plan: &Plan, costs: &PlanCosts) -> Value {
    let staged: Vec<Value> = staged_rows(state)
        .into_iter()
        .map(|(action, details)| json!({"action": action, "details": details}))
        .collect();
    let pairs: Vec<Value> = costs
        .pairs
        .iter()
        .map(|((from, to), pair)| {
            json!({
                "from": name_of(state, *from), "to": name_of(state, *to),
                "partitions": pair.partitions, "objects": pair.keys, "bytes": pair.bytes,
                "partitions_of_unknown_size": pair.unknown,
            })
        })
        .collect();
    let members: Vec<Value> = plan
        .members
        .iter()
        .map(|(node, member)| {
            json!({
                "node": member.name, "status": status_word(member.status),
                "ring_percent": share(state.ring(), *node),
                "pending_percent": share(&plan.target, *node),
            })
        })
        .collect();
    json!({
        "id": plan.id, "staged": staged, "members": members, "transfers": pairs,
        "lost": plan.lost.len(), "crowded": plan.crowded.len(),
        "moves": costs.moves.iter().map(|it| it.json(state)).collect::<Vec<_>>(),
        "bytes": costs.bytes(), "seconds": costs.seconds(),
        "bytes_per_second": costs.bytes_per_second,
    })
}

#[cfg(test)]
#[path = "plan_view_test.rs"]
mod tests;
