//! The admin interface's verbs about the cluster: members, staged changes, plans, the ring.
//!
//! Columns and texts are those that Riak's operators and their scripts know. `transfer_verbs` has what
//! several nodes are asked for; `plan_view` and `transfers_view` are what is shown, pure.

mod newest_state;
mod plan_view;
mod recovery;
mod round_trip;
mod transfer_verbs;
mod transfers_view;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use kvorum_cluster::{
    AgreedState as _, ClusterState, Command, Member as MemberEntry, MemberStatus, ProposeError,
    StagedChange,
};
use kvorum_member::Member;
use kvorum_ring::{NodeId, Ring};
use kvorum_runtime::WallTime;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::admin_request::AdminReply;
use crate::maintenance::Maintenance;
use crate::node::ip_of;
use crate::readiness;
use crate::tls_view;

use self::plan_view::PlanCosts;

/// Where a member listens whose operator names no port.
const PEER_PORT: u16 = 8099;
const RULER: &str =
    "-------------------------------------------------------------------------------";

/// What the verbs work on.
pub(crate) struct ClusterAdmin {
    pub(crate) member: Arc<Member>,
    pub(crate) maintenance: Arc<Maintenance>,
    /// The plan that the operator was shown last; only that one is committed.
    pub(crate) shown_plan: Mutex<Option<u32>>,
}

impl ClusterAdmin {
    pub(crate) fn new(member: Arc<Member>, maintenance: Arc<Maintenance>) -> Self {
        Self {
            member,
            maintenance,
            shown_plan: Mutex::new(None),
        }
    }

    /// Answers a verb with its arguments. Blocks.
    pub(crate) fn answer(&self, words: &[String]) -> AdminReply {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["join", node] => self.join(node),
            ["leave"] => self.stage(&self.member.settings().name, StagedChange::Leave),
            ["leave", node] => self.stage(node, StagedChange::Leave),
            ["force-remove", node] => self.stage(node, StagedChange::ForceRemove),
            ["replace", node, by] => self.replace(node, by, |by| StagedChange::Replace { by }),
            ["force-replace", node, by] => {
                self.replace(node, by, |by| StagedChange::ForceReplace { by })
            }
            ["location", node, location] => {
                let location = (!location.is_empty()).then(|| (*location).to_owned());
                self.stage(node, StagedChange::Location(location))
            }
            ["plan"] => self.plan(),
            ["commit"] => self.commit(),
            ["clear"] => self.propose(Command::ClearStaged, "Cleared staged cluster changes"),
            ["status"] => self.status(),
            ["partitions"] => self.partitions(),
            ["recover"] => self.recover(false),
            ["recover", "force"] => self.recover(true),
            ["recover", "follow", node] => self.follow_recovered(node),
            ["member-status"] => self.member_status(),
            ["ring-status"] => self.ring_status(),
            ["ringready"] => self.ringready(),
            ["down", node] => self.down(node),
            ["transfers"] => self.transfers(),
            ["transfer-limit"] => self.transfer_limits(),
            ["transfer-limit", limit] => self.limit_transfers(None, limit),
            ["transfer-limit", node, limit] => self.limit_transfers(Some(node), limit),
            ["handoff", words @ ..] => self.handoff(words),
            ["repair-partition", partition] => self.repair_partition(partition),
            ["repair-node"] => self.repair_node(&self.member.settings().name),
            ["repair-node", node] => self.repair_node(node),
            ["services"] => self.services(&self.member.settings().name),
            ["services", node] => self.services(node),
            _ => AdminReply::refused(format!("unknown cluster verb: {}", words.join(" "))),
        }
    }

    fn state(&self) -> Arc<ClusterState> {
        self.member.state().current()
    }

    fn join(&self, node: &str) -> AdminReply {
        let (address, name) = match address_of(node) {
            Ok(found) => found,
            Err(error) => return AdminReply::refused(format!("{error:#}")),
        };
        let member = self.member.clone();
        let joining = async move { member.join(address, Some(&name)).await };
        let own = &self.member.settings().name;
        match self.wait_for("join", joining) {
            Some(Ok(joined)) => {
                let by = joined.by;
                let text = format!("Success: staged join request for '{own}' to '{by}'");
                AdminReply::ok(text, json!({"joined": own, "by": by}))
            }
            Some(Err(error)) => AdminReply::refused(format!("Failed: {error}")),
            None => AdminReply::refused("Failed: the node is stopping"),
        }
    }

    /// Waits on this thread for what the runtime's others do; `None` when the node is stopping.
    fn wait_for<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let runtime = self.member.coordinator().runtime();
        runtime.spawn(name, async move {
            // Whoever waited may have given up.
            let _waits_or_not = sender.send(work.await);
        });
        receiver.recv().ok()
    }

    fn node_named(&self, name: &str) -> Result<NodeId, AdminReply> {
        let named = |state: &ClusterState| state.member_named(name).map(|(node, _)| node);
        // It may be one that has just joined by way of another node.
        let found = named(&self.state()).or_else(|| named(&self.newest().0));
        found.ok_or_else(|| {
            AdminReply::refused(format!(
                "Failed: {name} is not a member of the cluster (not_member)"
            ))
        })
    }

    fn stage(&self, name: &str, change: StagedChange) -> AdminReply {
        let what = action_of(&change);
        match self.node_named(name) {
            Ok(node) => {
                let done = format!("Success: staged {what} request for '{name}'");
                self.propose(Command::Stage { node, change }, &done)
            }
            Err(refused) => refused,
        }
    }

    fn replace(
        &self,
        name: &str,
        by: &str,
        change: impl FnOnce(NodeId) -> StagedChange,
    ) -> AdminReply {
        match (self.node_named(name), self.node_named(by)) {
            (Ok(node), Ok(by_node)) => {
                let done = format!("Success: staged replacement of '{name}' with '{by}'");
                let change = change(by_node);
                self.propose(Command::Stage { node, change }, &done)
            }
            (Err(refused), _) | (_, Err(refused)) => refused,
        }
    }

    fn propose(&self, command: Command, done: &str) -> AdminReply {
        match self.propose_to_newest(command) {
            Ok(state) => AdminReply::ok(done, json!({"state_version": state.version()})),
            Err(ProposeError::Refused(refusal)) => {
                AdminReply::refused(format!("Failed: {refusal}"))
            }
            Err(error) => AdminReply::refused(format!("Failed: {error}")),
        }
    }

    fn plan(&self) -> AdminReply {
        let (state, behind) = self.newest();
        let (text, mut data) = match state.plan() {
            Ok(plan) => {
                *self.shown_plan.lock() = Some(plan.id);
                let costs = PlanCosts::of(&plan, &self.sizes(), self.transfer_rate());
                let text = plan_view::text(&state, &plan, &costs);
                (text, plan_view::json(&state, &plan, &costs))
            }
            Err(error) => {
                let data = json!({"staged": [], "reason": error.to_string()});
                (error.to_string(), data)
            }
        };
        data["behind"] = newest_state::json(behind.as_ref());
        let warning = behind.as_ref().map(newest_state::warning);
        AdminReply::ok(warning.unwrap_or_default() + &text, data)
    }

    fn commit(&self) -> AdminReply {
        let Some(id) = *self.shown_plan.lock() else {
            return AdminReply::refused(
                "You must verify the plan with 'kvorum admin cluster plan' before committing",
            );
        };
        let reply = self.propose(Command::CommitPlan { id }, "Cluster changes committed");
        if reply.is_ok {
            *self.shown_plan.lock() = None;
        }
        reply
    }

    fn member_status(&self) -> AdminReply {
        let state = self.state();
        let pending = pending_ring(&state);
        let mut text = banner("Membership");
        text.push_str(&members_text(
            &state,
            state.members(),
            state.ring(),
            pending.as_ref(),
        ));
        let rows = members_json(&state, state.members(), state.ring(), pending.as_ref());
        AdminReply::ok(text, rows)
    }

    fn status(&self) -> AdminReply {
        let state = self.state();
        let pending = pending_ring(&state);
        let leader = self.member.state().agreement().status().leader;
        let is_ready = is_ready(&state);
        let mut text = format!("---- Cluster Status ----\nRing ready: {is_ready}\n\n");
        let _infallible = writeln!(
            text,
            "{:<28} {:<8} {:<6} {:>6} {:>8}  location",
            "node", "status", "avail", "ring", "pending"
        );
        let mut rows = Vec::new();
        for (node, member) in state.members() {
            let mark = if leader == Some(*node) {
                "(C) "
            } else {
                "    "
            };
            let is_up = self.member.liveness().is_up(*node);
            let avail = if is_up { "up" } else { "down!" };
            let (has, will) = (
                share(state.ring(), *node),
                pending_share(pending.as_ref(), *node),
            );
            let location = member.location.as_deref().unwrap_or("--");
            let _infallible = writeln!(
                text,
                "{mark}{:<24} {:<8} {avail:<6} {has:>5.1}% {:>8}  {location}",
                member.name,
                status_word(member.status),
                will.map_or_else(|| "--".to_owned(), |share| format!("{share:.1}%")),
            );
            rows.push(json!({
                "node": member.name, "claimant": leader == Some(*node),
                "status": status_word(member.status), "up": is_up,
                "ring_percent": has, "pending_percent": will, "location": member.location,
            }));
        }
        text.push_str("\nKey: (C) = Claimant\n");
        AdminReply::ok(text, json!({"ring_ready": is_ready, "nodes": rows}))
    }

    /// Encryption between this node and the others.
    pub(crate) fn tls_status(&self, now: WallTime) -> AdminReply {
        tls_view::show(&self.member, now)
    }

    fn partitions(&self) -> AdminReply {
        let state = self.state();
        let own = self.member.node();
        let size = state.ring().size();
        let mut text = format!("Partitions owned by '{}':\n", self.member.settings().name);
        let mut rows = Vec::new();
        for vnode in self.member.vnodes().all() {
            let partition = vnode.partition();
            let is_owner = state.ring().owner(partition) == own;
            let kind = if is_owner { "primary" } else { "secondary" };
            let index = partition.index_decimal(size);
            let _infallible = writeln!(text, "{kind:<10} {index:<50} {}", partition.number());
            rows.push(json!({
                "type": kind, "index": index, "id": partition.number(),
                "state": readiness::OPEN,
            }));
        }
        for (partition, unopened) in self.member.vnodes().unopened() {
            let is_owner = state.ring().owner(partition) == own;
            let kind = if is_owner { "primary" } else { "secondary" };
            let index = partition.index_decimal(size);
            let id = partition.number();
            let word = readiness::state_of(&unopened);
            let _infallible = writeln!(text, "{kind:<10} {index:<50} {id} {word}");
            rows.push(json!({"type": kind, "index": index, "id": id, "state": word}));
        }
        AdminReply::ok(text, Value::Array(rows))
    }

    fn ring_status(&self) -> AdminReply {
        let state = self.state();
        let log = self.member.state().agreement().status();
        let name = |node: NodeId| name_of(&state, node);
        let claimant = log.leader.map(name);
        let is_up = log
            .leader
            .is_some_and(|it| self.member.liveness().is_up(it));
        let mut text = banner("Claimant");
        let _infallible = writeln!(
            text,
            "Claimant:  '{}'\nStatus:     {}\nRing Ready: {}\n",
            claimant.as_deref().unwrap_or("undefined"),
            if is_up { "up" } else { "down" },
            is_ready(&state),
        );
        text.push_str(&banner("Ownership Handoff"));
        let mut moves = Vec::new();
        if let Some(transition) = state.transition() {
            for partition in transition.due(state.ring()) {
                let (from, to) = (state.ring().owner(partition), transition.target(partition));
                let index = partition.index_decimal(state.ring().size());
                let phase = state.ring().moves().get(&partition).map(|it| it.phase);
                let phase = phase.map_or_else(|| "waiting".to_owned(), |it| format!("{it:?}"));
                let phase = phase.to_lowercase();
                let _infallible = writeln!(
                    text,
                    "Owner:      {}\nNext Owner: {}\n\nIndex: {index}\n  {phase}\n\n{RULER}",
                    name(from),
                    name(to)
                );
                moves.push(json!({
                    "owner": name(from), "next_owner": name(to), "index": index, "phase": phase,
                }));
            }
        }
        if let Some(growth) = state.ring().growth() {
            let what = if growth.to == state.ring().replicas_max() {
                "Lists of replicas change, to be on distinct nodes".to_owned()
            } else {
                format!("Replicas become {}", growth.to)
            };
            let _infallible = writeln!(text, "{what} ({:?})", growth.phase);
        }
        let exiting: Vec<String> = state.exited().map(name).collect();
        for name in &exiting {
            let _infallible = writeln!(
                text,
                "'{name}' has handed over its partitions, and is removed when it is up and keeps no \
                 hinted objects any more (handoff summary)"
            );
        }
        if moves.is_empty() && state.ring().growth().is_none() && exiting.is_empty() {
            text.push_str("No pending changes.\n");
        }
        text.push('\n');
        text.push_str(&banner("Vnodes of This Node"));
        let vnodes = readiness::describe(self.member.vnodes(), &mut text);
        text.push('\n');
        text.push_str(&banner("Unreachable Nodes"));
        let unreachable = self.unreachable(&state);
        if unreachable.is_empty() {
            text.push_str("All nodes are up and reachable\n");
        } else {
            let _infallible =
                writeln!(text, "The following nodes are unreachable: {unreachable:?}");
        }
        let data = json!({
            "claimant": claimant, "claimant_up": is_up, "ring_ready": is_ready(&state),
            "pending": moves, "exiting": exiting, "replicas_max": state.ring().replicas_max(),
            "growing_to": state.ring().growth().map(|growth| growth.to),
            "unreachable": unreachable, "state_version": state.version(), "vnodes": vnodes,
            "voters": log.voters.into_iter().map(name).collect::<Vec<_>>(),
        });
        AdminReply::ok(text, data)
    }

    fn unreachable(&self, state: &ClusterState) -> Vec<String> {
        let members = state.members().iter();
        let down = members.filter(|(node, _)| !self.member.liveness().is_up(**node));
        down.map(|(_, member)| member.name.clone()).collect()
    }

    fn ringready(&self) -> AdminReply {
        let state = self.state();
        let marked = |member: &&MemberEntry| member.status == MemberStatus::Down;
        let members = state.members().values();
        let down: Vec<String> = self.unreachable(&state);
        let known: Vec<&str> = members
            .clone()
            .filter(marked)
            .map(|it| it.name.as_str())
            .collect();
        let down: Vec<&String> = down
            .iter()
            .filter(|it| !known.contains(&it.as_str()))
            .collect();
        if down.is_empty() && self.member.state().is_founded() {
            let names: Vec<&str> = members.map(|it| it.name.as_str()).collect();
            let text = format!("TRUE All nodes agree on the ring {names:?}");
            return AdminReply::ok(text, json!({"ready": true, "nodes": names}));
        }
        let text = format!("FALSE {{nodes_down,{down:?}}}");
        AdminReply {
            is_ok: false,
            data: json!({"ready": false, "nodes_down": down}),
            text,
        }
    }

    fn down(&self, name: &str) -> AdminReply {
        let node = match self.node_named(name) {
            Ok(node) => node,
            Err(refused) => return refused,
        };
        if self.member.liveness().is_up(node) {
            return AdminReply::refused(format!("Failed: {name} is up"));
        }
        let state = self.state();
        let Some(member) = state.member(node) else {
            return AdminReply::refused("Failed: not_member");
        };
        let status = MemberStatus::Down;
        if !matches!(member.status, MemberStatus::Valid | MemberStatus::Down) {
            let word = status_word(member.status);
            return AdminReply::refused(format!("Failed: {name} is {word}"));
        }
        let member = MemberEntry {
            status,
            ..member.clone()
        };
        let done = format!("Success: \"{name}\" marked as down");
        self.propose(Command::UpdateMember { node, member }, &done)
    }
}

/// `name@host` or `name@host:port`: where it listens, and its name.
fn address_of(node: &str) -> anyhow::Result<(SocketAddr, String)> {
    let (_, place) = node.split_once('@').ok_or_else(|| {
        anyhow::anyhow!("{node:?} is not of the form name@host or name@host:port")
    })?;
    let (host, port) = match place.rsplit_once(':') {
        // An address of six colons and more has no port behind it unless in brackets.
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host.trim_matches(['[', ']']), port.parse()?)
        }
        _ => (place, PEER_PORT),
    };
    let name = match node.strip_suffix(&format!(":{port}")) {
        Some(name) => name.to_owned(),
        None => node.to_owned(),
    };
    Ok((SocketAddr::new(ip_of(host)?, port), name))
}

fn banner(title: &str) -> String {
    format!("{title:=^79}\n").replace(title, &format!(" {title} "))
}

fn name_of(state: &ClusterState, node: NodeId) -> String {
    let member = state.member(node);
    member.map_or_else(|| node.to_string(), |member| member.name.clone())
}

fn status_word(status: MemberStatus) -> &'static str {
    match status {
        MemberStatus::Joining => "joining",
        MemberStatus::Valid => "valid",
        MemberStatus::Leaving => "leaving",
        MemberStatus::Exiting => "exiting",
        MemberStatus::Down => "down",
    }
}

fn action_of(change: &StagedChange) -> &'static str {
    match change {
        StagedChange::Leave => "leave",
        StagedChange::Replace { .. } => "replace",
        StagedChange::ForceRemove => "force-remove",
        StagedChange::ForceReplace { .. } => "force-replace",
        StagedChange::Location(_) => "location",
        StagedChange::Weight(_) => "weight",
    }
}

/// True when nothing moves and nothing is to.
fn is_ready(state: &ClusterState) -> bool {
    let ring = state.ring();
    let is_still =
        state.transition().is_none() && ring.moves().is_empty() && ring.growth().is_none();
    is_still && state.next_growth().is_none()
}

/// The share of the ring, in percent.
fn share(ring: &Ring, node: NodeId) -> f64 {
    let size = f64::from(ring.size().get());
    let owned = u32::try_from(ring.owned_by(node).count()).unwrap_or(u32::MAX);
    f64::from(owned) * 100.0 / size
}

fn pending_share(pending: Option<&BTreeMap<NodeId, f64>>, node: NodeId) -> Option<f64> {
    pending.map(|shares| shares.get(&node).copied().unwrap_or(0.0))
}

/// The shares once the committed plan is carried out.
fn pending_ring(state: &ClusterState) -> Option<BTreeMap<NodeId, f64>> {
    let transition = state.transition()?;
    let size = state.ring().size();
    let mut shares = BTreeMap::new();
    for partition in size.partitions() {
        *shares.entry(transition.target(partition)).or_insert(0.0) += 100.0 / f64::from(size.get());
    }
    Some(shares)
}

fn members_text(
    state: &ClusterState,
    members: &BTreeMap<NodeId, MemberEntry>,
    ring: &Ring,
    pending: Option<&BTreeMap<NodeId, f64>>,
) -> String {
    let mut text = format!("Status     Ring    Pending    Node\n{RULER}\n");
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (node, member) in members {
        let status = state.staged().get(node).filter(|change| {
            !matches!(change, StagedChange::Location(_) | StagedChange::Weight(_))
        });
        let word = match (status, member.status) {
            (Some(_), MemberStatus::Valid) => "(leaving)",
            _ => status_word(member.status),
        };
        *counts.entry(status_word(member.status)).or_default() += 1;
        let will = pending_share(pending, *node);
        let _infallible = writeln!(
            text,
            "{word:<10} {:>5.1}%    {:>6}    '{}'",
            share(ring, *node),
            will.map_or_else(|| "--".to_owned(), |share| format!("{share:.1}%")),
            member.name,
        );
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

fn members_json(
    state: &ClusterState,
    members: &BTreeMap<NodeId, MemberEntry>,
    ring: &Ring,
    pending: Option<&BTreeMap<NodeId, f64>>,
) -> Value {
    let row = |(node, member): (&NodeId, &MemberEntry)| {
        json!({
            "node": member.name, "id": node.to_string(), "status": status_word(member.status),
            "staged": state.staged().get(node).map(action_of),
            "ring_percent": share(ring, *node),
            "pending_percent": pending_share(pending, *node),
            "addresses": member.addresses, "location": member.location,
        })
    };
    members.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_named_with_or_without_its_port() {
        let expect = |node: &str, address: &str, name: &str| {
            let (got, got_name) = address_of(node).unwrap();
            assert_eq!(
                (got.to_string(), got_name),
                (address.to_owned(), name.to_owned())
            );
        };
        expect("a@127.0.0.1", "127.0.0.1:8099", "a@127.0.0.1");
        expect("a@127.0.0.1:18099", "127.0.0.1:18099", "a@127.0.0.1");
        expect("a@[::1]:18099", "[::1]:18099", "a@[::1]");
        assert!(address_of("127.0.0.1:8099").is_err());
        assert!(address_of("a@127.0.0.1:x").is_err());
    }

    #[test]
    fn banners_are_as_wide_as_rulers() {
        assert_eq!(banner("Membership").trim_end().len(), RULER.len() + 2);
    }
}
