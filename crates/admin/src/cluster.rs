//! The admin interface's verbs about the cluster: members, staged changes, plans, the ring.
//!
//! Columns and texts are those that Riak's operators and their scripts expect. `transfer_verbs` has the
//! verbs that ask several nodes; `members_view`, `plan_view` and `transfers_view` are pure and make the
//! output.

mod cluster_admin;
#[cfg(test)]
mod example_cluster;
mod members_view;
mod newest_state;
mod partitions_view;
mod plan_view;
mod recovery;
mod refusals;
mod round_trip;
mod transfer_verbs;
mod transfers_view;
mod type_removal;
mod words;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

use kvorum_cluster::{
    ClusterState, Command, Member as MemberEntry, MemberStatus, ProposeError, StagedChange,
};
use kvorum_member::Unopened;
use kvorum_ring::{NodeId, Partition};
use kvorum_runtime::WallTime;
use serde_json::json;

use crate::host_address::ip_of;
use crate::readiness;
use crate::request::{AdminReply, Replied};
use crate::tls_view;

pub(crate) use self::partitions_view::{named as partition_named, no_partition};

pub(crate) use self::cluster_admin::ClusterAdmin;
use self::members_view::{Names, PartitionRow, Seen};
use self::plan_view::PlanCosts;
pub(crate) use self::words::name_of;
use self::words::status_word;

/// The port of a member that is named without one.
const PEER_PORT: u16 = 8099;
/// Partitions whose stores are missing or another's. Then the other partitions, each with the
/// reason why its loss must be accepted by name.
fn split_refused(
    unopened: BTreeMap<Partition, Unopened>,
) -> (Vec<Partition>, Vec<(Partition, String)>) {
    let (mut refused, mut others) = (Vec::new(), Vec::new());
    for (partition, unopened) in unopened {
        match unopened {
            Unopened::Failed {
                is_refused: true, ..
            } => refused.push(partition),
            Unopened::Failed { error, .. } => {
                let number = partition.number();
                let why = format!(
                    "its store could not be opened, but may be whole ({error}); `kvorum admin \
                     cluster accept-loss {number}` gives it up nevertheless"
                );
                others.push((partition, why));
            }
            Unopened::Opening { .. } => {
                others.push((partition, "its store is being opened".to_owned()));
            }
        }
    }
    (refused, others)
}

impl ClusterAdmin {
    /// Answers a verb with its arguments. Blocks.
    pub(crate) fn answer(&self, words: &[String]) -> Replied {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Ok(match words.as_slice() {
            ["join", node] => self.join(node)?,
            ["leave"] => self.stage(&self.member.settings().name, StagedChange::Leave)?,
            ["leave", node] => self.stage(node, StagedChange::Leave)?,
            ["force-remove", node] => self.stage(node, StagedChange::ForceRemove)?,
            ["replace", node, by] => self.replace(node, by, |by| StagedChange::Replace { by })?,
            ["force-replace", node, by] => {
                self.replace(node, by, |by| StagedChange::ForceReplace { by })?
            }
            ["location", node, location] => {
                let location = (!location.is_empty()).then(|| (*location).to_owned());
                self.stage(node, StagedChange::Location(location))?
            }
            ["plan"] => self.plan(),
            ["commit"] => self.commit(),
            ["clear"] => self.propose(Command::ClearStaged, "Cleared staged cluster changes"),
            ["status"] => self.status(),
            ["partitions"] => self.partitions(),
            ["partition-count"] => partitions_view::count(&self.state()),
            ["partition", which] => partitions_view::one(&self.state(), which),
            ["accept-loss", partition] => self.accept_loss(partition)?,
            ["recover"] => self.recover(false)?,
            ["recover", "force"] => self.recover(true)?,
            ["recover", "follow", node] => self.follow_recovered(node)?,
            ["member-status"] => self.member_status(),
            ["ring-status"] => self.ring_status(),
            ["ringready"] => self.ringready(),
            ["down", node] => self.down(node)?,
            ["transfers"] => self.transfers(),
            ["transfer-limit"] => self.transfer_limits(),
            ["transfer-limit", limit] => self.limit_transfers(None, limit)?,
            ["transfer-limit", node, limit] => self.limit_transfers(Some(node), limit)?,
            ["handoff", words @ ..] => self.handoff(words)?,
            ["repair-partition", partition] => self.repair_partition(partition)?,
            ["repair-node"] => self.repair_node(&self.member.settings().name)?,
            ["repair-node", node] => self.repair_node(node)?,
            ["services"] => self.services(&self.member.settings().name)?,
            ["services", node] => self.services(node)?,
            _ => AdminReply::refused(format!("unknown cluster verb: {}", words.join(" "))),
        })
    }

    fn join(&self, node: &str) -> Replied {
        let (address, name) = address_of(node)?;
        let member = self.member.clone();
        let joining = async move { member.join(address, Some(&name)).await };
        let own = &self.member.settings().name;
        let joined = self.wait_for("join", joining)?;
        let by = joined.map_err(|error| refusals::joining(node, &error))?.by;
        let text = format!("Success: staged join request for '{own}' to '{by}'");
        Ok(AdminReply::ok(text, json!({"joined": own, "by": by})))
    }

    /// Incomplete partitions that no other node can repair.
    fn incomplete_for_good(&self) -> Vec<Partition> {
        if self.state().ring().members().len() > 1 {
            return Vec::new();
        }
        let vnodes = self.member.vnodes().all().into_iter();
        let incomplete = vnodes.filter(|vnode| !vnode.is_complete());
        incomplete.map(|vnode| vnode.partition()).collect()
    }

    /// Accepts the loss of one partition's store, or of all stores that are missing or another's. A
    /// store that could not be opened for another reason may be whole: an operator has to name it.
    fn accept_loss(&self, partition: &str) -> Replied {
        let size = self.state().ring().size();
        let (mut text, mut rows) = (String::new(), Vec::new());
        let partitions: Vec<Partition> = match partition {
            "all" => {
                let (refused, others) = split_refused(self.member.vnodes().unopened());
                for (partition, why) in others {
                    let number = partition.number();
                    let _infallible = writeln!(text, "Skipped: partition {number}: {why}");
                    rows.push(json!({"partition": number, "skipped": why}));
                }
                refused
                    .into_iter()
                    .chain(self.incomplete_for_good())
                    .collect()
            }
            _ => partitions_view::named(size, partition)
                .into_iter()
                .collect(),
        };
        if partitions.is_empty() && partition != "all" {
            return Err(partitions_view::no_partition(partition));
        }
        let mut has_failed = false;
        for partition in partitions {
            let (member, number) = (self.member.clone(), partition.number());
            let accepting = async move { member.accept_loss(number).await };
            let accepted = self.wait_for("accept loss", accepting);
            let moved = match accepted
                .map_err(|stopping| AdminReply::refused(format!("{text}{}", stopping.text)))?
            {
                Ok(moved) => moved,
                Err(error) => {
                    has_failed = true;
                    let _infallible = writeln!(text, "Failed: {error}");
                    rows.push(json!({"partition": number, "error": error.to_string()}));
                    continue;
                }
            };
            let kept: Vec<String> = moved.iter().map(|it| it.display().to_string()).collect();
            let what = match kept.is_empty() {
                true => String::new(),
                false => format!("; the former directory is kept as {}", kept.join(", ")),
            };
            let _infallible = writeln!(
                text,
                "Success: partition {number} goes on without the lost data{what}"
            );
            rows.push(json!({"partition": number, "kept_as": kept}));
        }
        match has_failed {
            true => Err(AdminReply::refused(text.trim_end())),
            false => Ok(AdminReply::ok(text, json!(rows))),
        }
    }

    fn node_named(&self, name: &str) -> Result<NodeId, AdminReply> {
        let named = |state: &ClusterState| state.member_named(name).map(|(node, _)| node);
        // The node may have just joined through another node.
        let found = named(&self.state()).or_else(|| named(&self.newest().0));
        found.ok_or_else(|| refusals::not_a_member(name))
    }

    fn stage(&self, name: &str, change: StagedChange) -> Replied {
        let what = change.name();
        let node = self.node_named(name)?;
        let done = format!("Success: staged {what} request for '{name}'");
        self.propose_change(name, Command::Stage { node, change }, &done)
    }

    fn replace(
        &self,
        name: &str,
        by: &str,
        change: impl FnOnce(NodeId) -> StagedChange,
    ) -> Replied {
        let (node, by_node) = (self.node_named(name)?, self.node_named(by)?);
        let done = format!("Success: staged replacement of '{name}' with '{by}'");
        let change = change(by_node);
        self.propose_change(name, Command::Stage { node, change }, &done)
    }

    /// Proposes a staged change of the member of this name.
    fn propose_change(&self, name: &str, command: Command, done: &str) -> Replied {
        let proposed = self.propose_to_newest(command);
        let state = proposed.map_err(|error| refusals::staging(name, &error))?;
        Ok(AdminReply::ok(
            done,
            json!({"state_version": state.version()}),
        ))
    }

    fn propose(&self, command: Command, done: &str) -> AdminReply {
        match self.propose_to_newest(command) {
            Ok(state) => AdminReply::ok(done, json!({"state_version": state.version()})),
            Err(ProposeError::Refused(refusal)) => {
                AdminReply::refused(format!("Failed: {refusal}"))
            }
            Err(error) => AdminReply::refused(format!("Failed: {}", error.in_full())),
        }
    }

    fn plan(&self) -> AdminReply {
        let (state, behind) = self.newest();
        let (text, riak, mut data) = match state.plan() {
            Ok(plan) => {
                self.member.note_shown_plan(Some(plan.id));
                let costs = PlanCosts::of(&plan, &self.sizes(), self.transfer_rate());
                let text = plan_view::text(&state, &plan, &costs);
                let riak = plan_view::riak_text(&state, &plan, &costs);
                (text, riak, plan_view::json(&state, &plan, &costs))
            }
            Err(error) => {
                let data = json!({"staged": [], "reason": error.to_string()});
                (error.to_string(), error.to_string(), data)
            }
        };
        data["behind"] = newest_state::json(behind.as_ref());
        let warning = behind
            .as_ref()
            .map(newest_state::warning)
            .unwrap_or_default();
        AdminReply::ok(format!("{warning}{text}"), data).with_riak_text(format!("{warning}{riak}"))
    }

    /// Commits the plan of this moment, if any node has shown it to an operator.
    fn commit(&self) -> AdminReply {
        let (state, _) = self.newest();
        let now = state.plan().ok().map(|plan| plan.id);
        let shown = self.shown_plans(&state, now);
        let is_shown = |id: &u32| shown.contains(id);
        // The log refuses a plan that has changed since, with a text.
        let Some(id) = now.filter(is_shown).or_else(|| shown.first().copied()) else {
            let text =
                "You must verify the plan with 'kvorum admin cluster plan' before committing";
            return AdminReply::refused(text)
                .with_riak_text(text.replace("kvorum admin", "riak-admin"));
        };
        let reply = self.propose(Command::CommitPlan { id }, "Cluster changes committed");
        if reply.is_ok {
            self.member.note_shown_plan(None);
        }
        reply
    }

    fn seen<'a>(&self, state: &'a ClusterState) -> Seen<'a> {
        let members = state.members().keys().copied();
        let liveness = self.member.liveness();
        Seen {
            state,
            leader: self.member.state().agreement().status().leader,
            unreachable: members.filter(|node| !liveness.is_up(*node)).collect(),
            is_known: self.member.is_state_known() && self.member.state().is_founded(),
        }
    }

    /// The node that carries out plans: Riak's claimant.
    pub(crate) fn claimant_name(&self) -> String {
        let leader = self.member.state().agreement().status().leader;
        leader.map_or_else(
            || "undefined".to_owned(),
            |node| name_of(&self.state(), node),
        )
    }

    fn member_status(&self) -> AdminReply {
        let state = self.state();
        let seen = self.seen(&state);
        AdminReply::ok(seen.members_text(Names::Quoted), seen.members_json())
            .with_riak_text(seen.members_text(Names::Bare))
    }

    fn status(&self) -> AdminReply {
        let state = self.state();
        let seen = self.seen(&state);
        AdminReply::ok(seen.status_text(), seen.status_json())
            .with_riak_text(seen.status_riak_text())
    }

    /// Encryption between this node and the others.
    pub(crate) fn tls_status(&self, now: WallTime) -> AdminReply {
        tls_view::show(&self.member, now)
    }

    fn partitions(&self) -> AdminReply {
        let (state, own) = (self.state(), self.member.node());
        let vnodes = self.member.vnodes();
        let open = vnodes.all();
        let open = open
            .iter()
            .map(|vnode| (vnode.partition(), readiness::OPEN));
        let unopened = vnodes.unopened().into_iter();
        let unopened = unopened.map(|(partition, it)| (partition, readiness::state_of(&it)));
        let row = |(partition, word)| PartitionRow::new(&state, own, partition, word);
        let mut rows: Vec<PartitionRow> = open.chain(unopened).map(row).collect();
        let name = &self.member.settings().name;
        let text = members_view::partitions_text(name, &mut rows);
        let riak = members_view::partitions_riak_text(name, &rows);
        AdminReply::ok(text, members_view::partitions_json(&rows)).with_riak_text(riak)
    }

    fn ring_status(&self) -> AdminReply {
        let state = self.state();
        let seen = self.seen(&state);
        let mut text = String::new();
        let vnodes = readiness::describe(self.member.vnodes(), &mut text);
        let voters = self.member.state().agreement().status().voters;
        AdminReply::ok(seen.ring_text(&text), seen.ring_json(voters, &vnodes))
            .with_riak_text(seen.ring_riak_text())
    }

    fn unreachable(&self, state: &ClusterState) -> Vec<String> {
        self.seen(state).unreachable_names()
    }

    fn ringready(&self) -> AdminReply {
        let state = self.state();
        let seen = self.seen(&state);
        let names: Vec<&str> = state
            .members()
            .values()
            .map(|it| it.name.as_str())
            .collect();
        let is_ok = seen.is_ring_ready();
        let data = match is_ok {
            true => json!({"ready": true, "nodes": names}),
            false => json!({"ready": false, "nodes_down": seen.missing()}),
        };
        AdminReply {
            is_ok,
            ..AdminReply::ok(seen.ringready_text(), data)
        }
    }

    fn down(&self, name: &str) -> Replied {
        let node = self.node_named(name).map_err(|refused| {
            // Riak writes names in double quotes here.
            let riak = format!("Failed: \"{name}\" is not a member of the cluster.");
            refused.with_riak_text(riak)
        })?;
        if self.member.liveness().is_up(node) {
            return Err(AdminReply::refused(format!("Failed: {name} is up")));
        }
        let state = self.state();
        let member = state.member(node);
        let member = member.ok_or_else(|| AdminReply::refused("Failed: not_member"))?;
        let status = MemberStatus::Down;
        if !matches!(member.status, MemberStatus::Valid | MemberStatus::Down) {
            let word = status_word(member.status);
            return Err(AdminReply::refused(format!("Failed: {name} is {word}")));
        }
        let member = MemberEntry {
            status,
            ..member.clone()
        };
        let done = format!("Success: \"{name}\" marked as down");
        Ok(self.propose(Command::UpdateMember { node, member }, &done))
    }
}

/// `name@host` or `name@host:port`: the node's address, and its name.
fn address_of(node: &str) -> Result<(SocketAddr, String), AdminReply> {
    split_address(node).map_err(|error| AdminReply::refused(format!("{error:#}")))
}

fn split_address(node: &str) -> anyhow::Result<(SocketAddr, String)> {
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
}
