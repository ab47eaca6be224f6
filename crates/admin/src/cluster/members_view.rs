//! Members and the ring as operators see them: `member-status`, `ring-status`, `cluster status`, and
//! `cluster partitions`.
//!
//! Pure: the agreed state and the members that are up come in, texts and JSON come out. Columns and
//! their order are Riak's; facts that Riak does not show are added behind them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use kvorum_cluster::{ClusterState, Member, MemberStatus, StagedChange};
use kvorum_ring::{NodeId, Partition, Ring};
use serde_json::{Value, json};

use super::words::{RULER, banner, name_of, status_word};
use crate::framed_table::framed;
use crate::readiness;

/// The agreed state, and the members that this node can reach.
pub(super) struct Seen<'a> {
    pub(super) state: &'a ClusterState,
    /// The leader of the agreed log, which carries out plans: Riak's claimant.
    pub(super) leader: Option<NodeId>,
    /// Members that this node cannot reach.
    pub(super) unreachable: BTreeSet<NodeId>,
    /// False until a joining node has received the state of its cluster.
    pub(super) is_known: bool,
}

/// A partition that will move.
struct Due {
    partition: Partition,
    index: String,
    /// `waiting`, `filling` or `closing`.
    phase: String,
}

/// A vnode of a node.
pub(super) struct PartitionRow {
    pub(super) index: String,
    pub(super) id: u16,
    pub(super) is_owned: bool,
    pub(super) state: &'static str,
}

/// Shares of the ring that nodes will have, in percent.
pub(super) type Shares = BTreeMap<NodeId, f64>;

/// The share of the ring that a node has, in percent.
pub(super) fn share(ring: &Ring, node: NodeId) -> f64 {
    let size = f64::from(ring.size().get());
    let owned = u32::try_from(ring.owned_by(node).count()).unwrap_or(u32::MAX);
    f64::from(owned) * 100.0 / size
}

/// The shares once the committed plan is carried out.
fn pending_shares(state: &ClusterState) -> Option<Shares> {
    let transition = state.transition()?;
    let partitions = state.ring().size().partitions();
    Some(shares_of(partitions.map(|it| transition.target(it))))
}

/// The owners' shares, from the owner of each partition.
pub(super) fn shares_of(owners: impl Iterator<Item = NodeId>) -> Shares {
    let owners: Vec<NodeId> = owners.collect();
    let each = 100.0 / f64::from(u32::try_from(owners.len()).unwrap_or(u32::MAX));
    let mut shares = Shares::new();
    for owner in owners {
        *shares.entry(owner).or_insert(0.0) += each;
    }
    shares
}

fn pending_share(pending: Option<&Shares>, node: NodeId) -> Option<f64> {
    pending.map(|shares| shares.get(&node).copied().unwrap_or(0.0))
}

/// Riak's order: by status, then by name.
fn in_order(members: &BTreeMap<NodeId, Member>) -> Vec<(NodeId, &Member)> {
    let mut rows: Vec<_> = members.iter().map(|(node, it)| (*node, it)).collect();
    rows.sort_by(|(_, a), (_, b)| {
        (status_word(a.status), &a.name).cmp(&(status_word(b.status), &b.name))
    });
    rows
}

/// True when no move is under way or planned.
fn is_settled(state: &ClusterState) -> bool {
    let ring = state.ring();
    let is_still =
        state.transition().is_none() && ring.moves().is_empty() && ring.growth().is_none();
    is_still && state.next_growth().is_none()
}

impl Seen<'_> {
    fn is_up(&self, node: NodeId) -> bool {
        !self.unreachable.contains(&node)
    }

    /// Members that cannot be reached and are not marked as down.
    pub(super) fn missing(&self) -> Vec<String> {
        let members = in_order(self.state.members()).into_iter();
        let missing =
            members.filter(|(node, it)| !self.is_up(*node) && it.status != MemberStatus::Down);
        missing.map(|(_, member)| member.name.clone()).collect()
    }

    /// True when all expected members are reachable, and so have the same ring. Used by `ringready`
    /// and `ring-status`.
    pub(super) fn is_ring_ready(&self) -> bool {
        self.is_known && self.missing().is_empty()
    }

    /// `ringready`.
    pub(super) fn ringready_text(&self) -> String {
        if self.is_ring_ready() {
            let names = in_order(self.state.members()).into_iter();
            let names: Vec<String> = names.map(|(_, it)| it.name.clone()).collect();
            return format!("TRUE All nodes agree on the ring {}", quoted(&names));
        }
        if !self.is_known {
            return "FALSE this node has not been sent the state of its cluster yet".to_owned();
        }
        format!(
            "FALSE {} down.  All nodes need to be up to check.",
            quoted(&self.missing())
        )
    }

    pub(super) fn unreachable_names(&self) -> Vec<String> {
        let members = in_order(self.state.members()).into_iter();
        let down = members.filter(|(node, _)| !self.is_up(*node));
        down.map(|(_, member)| member.name.clone()).collect()
    }

    /// `member-status`.
    pub(super) fn members_text(&self, names: Names) -> String {
        let (state, pending) = (self.state, pending_shares(self.state));
        let (members, ring) = (state.members(), state.ring());
        banner("Membership") + &table_of_members(state, members, ring, pending.as_ref(), names)
    }

    pub(super) fn members_json(&self) -> Value {
        let state = self.state;
        let pending = pending_shares(state);
        let row = |(node, member): (NodeId, &Member)| {
            json!({
                "node": member.name, "id": node.to_string(),
                "status": status_word(member.status),
                "staged": state.staged().get(&node).map(StagedChange::name),
                "ring_percent": share(state.ring(), node),
                "pending_percent": pending_share(pending.as_ref(), node),
                "addresses": member.addresses, "location": member.location,
            })
        };
        in_order(state.members()).into_iter().map(row).collect()
    }

    /// Riak's words for the expected and the observed state of a member, with a mark if they
    /// differ.
    fn availability(&self, node: NodeId, member: &Member) -> &'static str {
        match (self.is_up(node), member.status == MemberStatus::Down) {
            (true, false) => "up",
            (false, true) => "down",
            (false, false) => "down!",
            (true, true) => "up!",
        }
    }

    /// `cluster status`.
    pub(super) fn status_text(&self) -> String {
        let state = self.state;
        let pending = pending_shares(state);
        let mut text = format!(
            "---- Cluster Status ----\nRing ready: {}\nSettled:    {}\n\n",
            self.is_ring_ready(),
            is_settled(state)
        );
        let _infallible = writeln!(
            text,
            "{:<28} {:<8} {:<6} {:>5} {:>7}  location",
            "node", "status", "avail", "ring", "pending"
        );
        for (node, member) in in_order(state.members()) {
            let is_claimant = self.leader == Some(node);
            let mark = if is_claimant { "(C) " } else { "    " };
            let has = share(state.ring(), node);
            let will = pending_share(pending.as_ref(), node);
            let _infallible = writeln!(
                text,
                "{mark}{:<24} {:<8} {:<6} {has:>5.1} {:>7}  {}",
                member.name,
                status_word(member.status),
                self.availability(node, member),
                will.map_or_else(|| "--".to_owned(), |share| format!("{share:.1}")),
                member.location.as_deref().unwrap_or("--"),
            );
        }
        text.push_str("\nKey: (C) = Claimant; availability marked with '!' is unexpected\n");
        text
    }

    pub(super) fn status_json(&self) -> Value {
        let state = self.state;
        let pending = pending_shares(state);
        let row = |(node, member): (NodeId, &Member)| {
            json!({
                "node": member.name, "claimant": self.leader == Some(node),
                "status": status_word(member.status), "up": self.is_up(node),
                "ring_percent": share(state.ring(), node),
                "pending_percent": pending_share(pending.as_ref(), node),
                "location": member.location,
            })
        };
        let rows: Vec<Value> = in_order(state.members()).into_iter().map(row).collect();
        json!({
            "ring_ready": self.is_ring_ready(), "settled": is_settled(state), "nodes": rows,
        })
    }

    /// The status as Riak prints it.
    pub(super) fn status_riak_text(&self) -> String {
        let state = self.state;
        let pending = pending_shares(state);
        let row = |(node, member): (NodeId, &Member)| {
            let is_claimant = self.leader == Some(node);
            let mark = if is_claimant { "(C)" } else { "   " };
            let will = pending_share(pending.as_ref(), node);
            vec![
                format!(" {mark} {} ", member.name),
                status_word(member.status).to_owned(),
                self.availability(node, member).to_owned(),
                format!("{:>5.1}", share(state.ring(), node)),
                will.map_or_else(|| "--".to_owned(), |share| format!("{share:>5.1}")),
            ]
        };
        let rows: Vec<Vec<String>> = in_order(state.members()).into_iter().map(row).collect();
        let header = ["node", "status", " avail ", "ring ", "pending"];
        format!(
            "---- Cluster Status ----\nRing ready: {}\n\n{}\nKey: (C) = Claimant; availability marked \
             with '!' is unexpected\n",
            self.is_ring_ready(),
            framed(&header, &rows),
        )
    }

    /// Partitions that will move, by their present and next owners.
    fn due(&self) -> BTreeMap<(String, String), Vec<Due>> {
        let (state, ring) = (self.state, self.state.ring());
        let mut due: BTreeMap<_, Vec<Due>> = BTreeMap::new();
        let Some(transition) = state.transition() else {
            return due;
        };
        for partition in transition.due(ring) {
            let (from, to) = (ring.owner(partition), transition.target(partition));
            let moving = ring.moves().get(&partition);
            let phase = moving.map_or_else(|| "waiting".to_owned(), |it| format!("{:?}", it.phase));
            due.entry((name_of(state, from), name_of(state, to)))
                .or_default()
                .push(Due {
                    partition,
                    index: partition.index_decimal(ring.size()),
                    phase: phase.to_lowercase(),
                });
        }
        due
    }

    /// Members that have handed over all partitions, but have not left yet.
    fn exiting(&self) -> Vec<String> {
        let exited = self.state.exited();
        exited.map(|node| name_of(self.state, node)).collect()
    }

    fn claimant(&self) -> Option<String> {
        self.leader.map(|node| name_of(self.state, node))
    }

    fn is_claimant_up(&self) -> bool {
        self.leader.is_some_and(|node| self.is_up(node))
    }

    fn claimant_text(&self) -> String {
        format!(
            "{}Claimant:  '{}'\nStatus:     {}\nRing Ready: {}\n",
            banner("Claimant"),
            self.claimant().as_deref().unwrap_or("undefined"),
            if self.is_claimant_up() { "up" } else { "down" },
            self.is_ring_ready(),
        )
    }

    /// `ring-status`; `vnodes` is the report on this node's own.
    pub(super) fn ring_text(&self, vnodes: &str) -> String {
        let mut text = self.claimant_text();
        let _infallible = writeln!(text, "Settled:    {}\n", is_settled(self.state));
        text.push_str(&banner("Ownership Handoff"));
        text.push_str(&self.changes_text());
        let _infallible = writeln!(text, "\n{}{vnodes}", banner("Vnodes of This Node"));
        text + &self.unreachable_text()
    }

    /// The ring as Riak prints it.
    pub(super) fn ring_riak_text(&self) -> String {
        let mut text = self.claimant_text();
        let _infallible = write!(text, "\n{}", banner("Ownership Handoff"));
        let due = self.due();
        if due.is_empty() {
            text.push_str("No pending changes.\n");
        }
        for ((from, to), moves) in due {
            let _infallible = writeln!(text, "Owner:      {from}\nNext Owner: {to}\n");
            let missing = self.missing();
            let gone: Vec<&String> = [&from, &to]
                .into_iter()
                .filter(|name| missing.contains(name))
                .collect();
            for name in &gone {
                let _infallible = writeln!(text, "!!! {name} is DOWN !!!\n");
            }
            for Due { index, .. } in moves {
                let _infallible = match gone.is_empty() {
                    true => writeln!(text, "Index: {index}\n  Waiting on: [riak_kv_vnode]\n"),
                    false => writeln!(text, "Index: {index}"),
                };
            }
            let end = if gone.is_empty() { "" } else { "\n" };
            let _infallible = writeln!(text, "{end}{RULER}");
        }
        let _infallible = write!(text, "\n{}", self.unreachable_text());
        if self.unreachable.is_empty() {
            text.push('\n');
        } else {
            text.push_str(NOT_CONVERGING);
        }
        text
    }

    fn unreachable_text(&self) -> String {
        let mut text = banner("Unreachable Nodes");
        let unreachable = self.unreachable_names();
        if unreachable.is_empty() {
            text.push_str("All nodes are up and reachable\n");
        } else {
            let unreachable = quoted(&unreachable);
            let _infallible = writeln!(text, "The following nodes are unreachable: {unreachable}");
        }
        text
    }

    fn changes_text(&self) -> String {
        let mut text = String::new();
        let due = self.due();
        if !due.is_empty() {
            let _infallible = writeln!(
                text,
                "{:<9}  {:<8}  {:<36}  next owner\n{RULER}",
                "partition", "phase", "owner"
            );
        }
        for ((from, to), moves) in due {
            for Due {
                partition, phase, ..
            } in moves
            {
                let number = partition.number();
                let _infallible = writeln!(text, "{number:>9}  {phase:<8}  {from:<36}  {to}");
            }
        }
        if let Some(growth) = self.state.ring().growth() {
            let what = if growth.to == self.state.ring().replicas_max() {
                "Lists of replicas change, to be on distinct nodes".to_owned()
            } else {
                format!("Replicas become {}", growth.to)
            };
            let _infallible = writeln!(text, "{what} ({:?})", growth.phase);
        }
        for name in self.exiting() {
            let _infallible = writeln!(
                text,
                "'{name}' has handed over its partitions, and is removed when it is up and keeps no \
                 hinted objects any more (handoff summary)"
            );
        }
        if text.is_empty() {
            text.push_str("No pending changes.\n");
        }
        text
    }

    pub(super) fn ring_json(
        &self,
        voters: impl IntoIterator<Item = NodeId>,
        vnodes: &Value,
    ) -> Value {
        let (state, ring) = (self.state, self.state.ring());
        let due = self.due();
        let moves = due.iter().flat_map(|((from, to), moves)| {
            moves.iter().map(move |it| {
                json!({
                    "owner": from, "next_owner": to, "partition": it.partition.number(),
                    "index": it.index, "phase": it.phase,
                })
            })
        });
        let voters = voters.into_iter().map(|node| name_of(state, node));
        json!({
            "claimant": self.claimant(), "claimant_up": self.is_claimant_up(),
            "ring_ready": self.is_ring_ready(), "settled": is_settled(state), "pending": moves.collect::<Vec<_>>(),
            "exiting": self.exiting(), "replicas_max": ring.replicas_max(),
            "growing_to": ring.growth().map(|growth| growth.to),
            "unreachable": self.unreachable_names(), "state_version": state.version(),
            "vnodes": vnodes, "voters": voters.collect::<Vec<_>>(),
        })
    }
}

/// Riak's warning if a node cannot be reached.
const NOT_CONVERGING: &str = "
WARNING: The cluster state will not converge until all nodes
are up. Once the above nodes come back online, convergence
will continue. If the outages are long-term or permanent, you
can either mark the nodes as down (riak-admin down NODE) or
forcibly remove the nodes from the cluster (riak-admin
force-remove NODE) to allow the remaining nodes to settle.
";

/// Names as Erlang writes a list of atoms.
pub(super) fn quoted(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    format!("[{}]", names.join(","))
}

/// The form of nodes' names in the table of members.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// Names in quotes.
    Quoted,
    /// Names as Riak prints them.
    Bare,
}

/// The table that `member-status` and plans have.
pub(super) fn table_of_members(
    state: &ClusterState,
    members: &BTreeMap<NodeId, Member>,
    ring: &Ring,
    pending: Option<&Shares>,
    names: Names,
) -> String {
    let mut text = format!("Status     Ring    Pending    Node\n{RULER}\n");
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (node, member) in in_order(members) {
        let departure = state.staged().get(&node).filter(|change| {
            !matches!(change, StagedChange::Location(_) | StagedChange::Weight(_))
        });
        let word = match (departure, member.status) {
            (Some(_), MemberStatus::Valid) => "(leaving)",
            _ => status_word(member.status),
        };
        *counts.entry(status_word(member.status)).or_default() += 1;
        let will = pending_share(pending, node);
        let will = will.map_or_else(|| "  --  ".to_owned(), |share| format!("{share:>5.1}%"));
        let has = share(ring, node);
        let name = match names {
            Names::Quoted => format!("'{}'", member.name),
            Names::Bare => member.name.clone(),
        };
        let _infallible = writeln!(text, "{word:<9} {has:>5.1}%    {will}    {name}");
    }
    let count = |word: &str| counts.get(word).copied().unwrap_or(0);
    let _infallible = writeln!(
        text,
        "{RULER}\nValid:{} / Leaving:{} / Exiting:{} / Joining:{} / Down:{}",
        count("valid"),
        count("leaving"),
        count("exiting"),
        count("joining"),
        count("down"),
    );
    text
}

impl PartitionRow {
    pub(super) fn new(
        state: &ClusterState,
        node: NodeId,
        partition: Partition,
        word: &'static str,
    ) -> Self {
        Self {
            index: partition.index_decimal(state.ring().size()),
            id: partition.number(),
            is_owned: state.ring().owner(partition) == node,
            state: word,
        }
    }

    /// Riak's kind; stores that are not open have a kind of their own.
    fn riak_kind(&self) -> &'static str {
        match self.state {
            readiness::OPEN => self.kind(),
            _ => "stopped",
        }
    }

    fn kind(&self) -> &'static str {
        if self.is_owned {
            "primary"
        } else {
            "secondary"
        }
    }
}

/// `cluster partitions`: the vnodes of the node of this name, its own partitions first.
pub(super) fn partitions_text(name: &str, rows: &mut [PartitionRow]) -> String {
    rows.sort_by_key(|row| (!row.is_owned, row.id));
    let mut text = format!("Partitions owned by '{name}':\n");
    let _infallible = writeln!(text, "{:<10} {:<9} state\n{RULER}", "type", "partition");
    for row in rows {
        let (kind, id, state) = (row.kind(), row.id, row.state);
        let _infallible = writeln!(text, "{kind:<10} {id:>9} {state}");
    }
    text
}

/// The partitions as Riak prints them.
pub(super) fn partitions_riak_text(name: &str, rows: &[PartitionRow]) -> String {
    let mut all: Vec<Vec<String>> = Vec::new();
    for kind in ["primary", "secondary", "stopped"] {
        let of_kind = rows.iter().filter(|it| it.riak_kind() == kind);
        let before = all.len();
        all.extend(of_kind.map(|it| vec![kind.to_owned(), it.index.clone(), it.id.to_string()]));
        if all.len() == before {
            all.push(vec![kind.to_owned(), "--".to_owned(), "--".to_owned()]);
        }
    }
    let table = framed(&["type", "index", "id"], &all);
    format!("Partitions owned by '{name}':\n{table}\n")
}

pub(super) fn partitions_json(rows: &[PartitionRow]) -> Value {
    let row = |row: &PartitionRow| json!({"type": row.kind(), "index": row.index, "id": row.id, "state": row.state});
    rows.iter().map(row).collect()
}

#[cfg(test)]
#[path = "members_view_test.rs"]
mod tests;
