//! The verbs for which several nodes are asked: transfers and their limits, repairs, services.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use kvorum_cluster::ClusterState;
use kvorum_maintenance::counted;
use kvorum_member::{Health, Operation, Outcome, StoreMoves, TransferView};
use kvorum_ring::NodeId;
use serde_json::json;

use super::cluster_admin::ClusterAdmin;
use super::partitions_view::{named, no_partition};
use super::plan_view::Sizes;
use super::transfers_view::{AllTransfers, NodeTransfers, Planned, Row};
use super::words::name_of;
use crate::health_view;
use crate::request::{AdminReply, Replied};

/// Outcomes by node, or the reason why there is none.
pub(super) type Answers = BTreeMap<NodeId, Result<Outcome, String>>;

impl ClusterAdmin {
    /// Asks all these nodes at once. Blocks.
    pub(super) fn ask(&self, nodes: Vec<NodeId>, operation: &Operation) -> Answers {
        let runtime = self.member.coordinator().runtime().clone();
        let ask = |node: NodeId| {
            let (member, operation) = (self.member.clone(), operation.clone());
            let asked = async move { (node, member.operate(node, operation).await) };
            runtime.spawn("operation", asked)
        };
        let tasks: Vec<_> = nodes.into_iter().map(ask).collect();
        let all = async move {
            let mut answers = Answers::new();
            for task in tasks {
                if let Ok((node, answer)) = task.await {
                    answers.insert(node, answer);
                }
            }
            answers
        };
        self.wait_for("operations", all).unwrap_or_default()
    }

    /// Members that are up.
    fn reachable(&self, state: &ClusterState) -> Vec<NodeId> {
        let members = state.members().keys().copied();
        let liveness = self.member.liveness();
        members.filter(|node| liveness.is_up(*node)).collect()
    }

    /// Contents of the stores of all nodes that answer.
    pub(super) fn sizes(&self) -> Sizes {
        let state = self.state();
        let answers = self.ask(self.reachable(&state), &Operation::Sizes);
        let sizes = answers
            .into_iter()
            .filter_map(|(node, answer)| match answer {
                Ok(Outcome::Sizes(sizes)) => Some((node, sizes)),
                _ => None,
            });
        sizes.collect()
    }

    /// Moves between backends on all nodes that answer, by the nodes' names, and the names of the others.
    pub(crate) fn backend_moves(&self) -> (BTreeMap<String, Vec<StoreMoves>>, Vec<String>) {
        let state = self.state();
        let answers = self.ask(self.reachable(&state), &Operation::BackendMoves);
        let (mut moves, mut down) = (BTreeMap::new(), self.unreachable(&state));
        for (node, answer) in answers {
            let name = name_of(&state, node);
            match answer {
                Ok(Outcome::BackendMoves(its)) => drop(moves.insert(name, its)),
                _ => down.push(name),
            }
        }
        (moves, down)
    }

    /// The plans last shown to operators, on this node first. A node that has just joined may not count as
    /// up here yet: nodes that are not up are asked too if the others have not shown `wanted`.
    pub(super) fn shown_plans(&self, state: &ClusterState, wanted: Option<u32>) -> Vec<u32> {
        let reachable = self.reachable(state);
        let members = state.members().keys().copied();
        let others = members.filter(|node| !reachable.contains(node)).collect();
        let mut shown = self.plans_shown_by(reachable);
        if wanted.is_some_and(|wanted| !shown.contains(&wanted)) {
            shown.extend(self.plans_shown_by(others));
        }
        shown
    }

    fn plans_shown_by(&self, nodes: Vec<NodeId>) -> Vec<u32> {
        let mut answers = self.ask(nodes, &Operation::ShownPlan);
        let own = answers.remove(&self.member.node());
        let answers = own.into_iter().chain(answers.into_values());
        let shown = answers.filter_map(|answer| match answer {
            Ok(Outcome::ShownPlan(plan)) => plan,
            _ => None,
        });
        shown.collect()
    }

    /// Bytes per second that a node may receive now, by this node's limit.
    pub(super) fn transfer_rate(&self) -> u64 {
        self.maintenance.transfer_rate()
    }

    fn all_transfers(&self) -> AllTransfers {
        let state = self.state();
        let answers = self.ask(self.reachable(&state), &Operation::Transfers);
        let mut down = self.unreachable(&state);
        let mut nodes = Vec::new();
        for (node, answer) in answers {
            let name = name_of(&state, node);
            match answer {
                Ok(Outcome::Transfers(view)) => {
                    let rows = view.inbound.iter().map(|it| row(&state, it)).collect();
                    let node = name;
                    nodes.push(NodeTransfers { node, view, rows });
                }
                _ => down.push(name),
            }
        }
        let wall = self.member.coordinator().runtime().wall_time();
        AllTransfers {
            nodes,
            planned: planned(&state),
            down,
            now: wall.micros() / 1_000_000,
        }
    }

    pub(super) fn transfers(&self) -> AdminReply {
        let all = self.all_transfers();
        AdminReply::ok(all.text(), all.json()).with_riak_text(all.riak_text())
    }

    pub(super) fn transfer_limits(&self) -> AdminReply {
        let all = self.all_transfers();
        AdminReply::ok(all.limits_text(), all.limits_json()).with_riak_text(all.limits_riak_text())
    }

    pub(super) fn limit_transfers(&self, node: Option<&str>, limit: &str) -> Replied {
        let count: usize = limit.parse().map_err(|_| {
            AdminReply::refused(format!(
                "Failed: the limit has to be a whole number, and is {limit:?}"
            ))
        })?;
        let where_to = match node {
            Some(name) => format!("for {name} to {count}"),
            None => format!("to {count} across the cluster"),
        };
        let done =
            format!("Set transfer limit {where_to}; transfer_limit counts from its next start");
        let riak = match node {
            Some(name) => format!("Set transfer limit for '{name}' to {count}"),
            None => format!("Setting transfer limit to {count} across the cluster"),
        };
        let reply = self.order(node, &Operation::LimitTransfers(count), &done)?;
        Ok(reply.with_riak_text(riak))
    }

    /// The port by which other nodes reach a member.
    fn peer_port(&self, name: &str) -> String {
        let state = self.state();
        let member = state.member_named(name).map(|(_, member)| member);
        let address = member.and_then(|member| member.addresses.get(kvorum_member::PEER_SERVICE));
        let port = address.and_then(|address| address.rsplit_once(':'));
        port.map_or_else(|| "-".to_owned(), |(_, port)| port.to_owned())
    }

    /// Sends an operation to the named node, or to all.
    fn order(&self, node: Option<&str>, operation: &Operation, done: &str) -> Replied {
        let state = self.state();
        let nodes = match node {
            Some(name) => vec![self.node_named(name)?],
            None => state.members().keys().copied().collect(),
        };
        let answers = self.ask(nodes, operation);
        let mut failed = Vec::new();
        for (node, answer) in answers {
            let problem = match answer {
                Ok(Outcome::Done) => continue,
                Ok(Outcome::Refused(reason)) => reason,
                Ok(other) => format!("an answer to another question: {other:?}"),
                Err(error) => error,
            };
            failed.push(format!("{}: {problem}", name_of(&state, node)));
        }
        if failed.is_empty() {
            Ok(AdminReply::ok(done, json!({"done": true})))
        } else {
            let failed = failed.join("; on ");
            Err(AdminReply::refused(format!("Failed on {failed}")))
        }
    }

    pub(super) fn handoff(&self, words: &[&str]) -> Replied {
        Ok(match words {
            ["summary"] => {
                let all = self.all_transfers();
                AdminReply::ok(all.summary_text(), all.summary_json())
                    .with_riak_text(all.summary_riak_text())
            }
            ["details"] => {
                let all = self.all_transfers();
                AdminReply::ok(all.details_text(), all.json())
            }
            ["config"] => {
                let all = self.all_transfers();
                let riak = all.config_riak_text(|node| self.peer_port(node));
                AdminReply::ok(all.config_text(), all.summary_json()).with_riak_text(riak)
            }
            [switch @ ("enable" | "disable"), direction] => {
                self.switch(switch, direction, Some(&self.member.settings().name))?
            }
            [switch @ ("enable" | "disable"), direction, "all"] => {
                self.switch(switch, direction, None)?
            }
            [switch @ ("enable" | "disable"), direction, "node", node] => {
                self.switch(switch, direction, Some(node))?
            }
            _ => AdminReply::refused(format!("unknown handoff verb: {}", words.join(" "))),
        })
    }

    fn switch(&self, switch: &str, direction: &str, node: Option<&str>) -> Replied {
        let is_enabled = Some(switch == "enable");
        let (inbound, outbound) = match direction {
            "inbound" => (is_enabled, None),
            "outbound" => (None, is_enabled),
            _ => (is_enabled, is_enabled),
        };
        let operation = Operation::SwitchTransfers { inbound, outbound };
        let on = node.unwrap_or("all nodes");
        let done = format!("Handoff {direction} {switch}d on {on}, until the next start");
        let reply = self.order(node, &operation, &done)?;
        Ok(reply.with_riak_text("Handoff setting successfully updated\n"))
    }

    pub(super) fn repair_partition(&self, partition: &str) -> Replied {
        let state = self.state();
        let found = named(state.ring().size(), partition);
        let found = found.ok_or_else(|| no_partition(partition))?;
        let owner = state.ring().owner(found);
        let partition = found.number();
        let operation = Operation::Repair { partition };
        let answer = self.ask(vec![owner], &operation).remove(&owner);
        Ok(repairing(&name_of(&state, owner), answer))
    }

    pub(super) fn repair_node(&self, name: &str) -> Replied {
        let node = self.node_named(name)?;
        let answer = self.ask(vec![node], &Operation::RepairNode).remove(&node);
        Ok(repairing(name, answer))
    }

    /// The services of a node, and its problems.
    pub(super) fn services(&self, name: &str) -> Replied {
        let own = &self.member.settings().name;
        let node = match self.node_named(name) {
            Ok(node) => node,
            Err(_) if name == own => self.member.node(),
            Err(refused) => return Err(refused),
        };
        // A node that is no longer a member reports that itself.
        if node == self.member.node() {
            return Ok(services_of(name, &self.member.health()));
        }
        let silent = || AdminReply::refused(format!("{name} does not answer"));
        Ok(
            match self.ask(vec![node], &Operation::Health).remove(&node) {
                Some(Ok(Outcome::Health(health))) => services_of(name, &health),
                // A node of an earlier version reports only its services.
                Some(Ok(Outcome::Refused(_))) => {
                    match self.ask(vec![node], &Operation::Services).remove(&node) {
                        Some(Ok(Outcome::Services(services))) => {
                            let text = format!("[{}]", services.join(","));
                            AdminReply::ok(text, json!({"node": name, "services": services}))
                        }
                        _ => silent(),
                    }
                }
                Some(Err(error)) => AdminReply::refused(format!("{name} does not answer: {error}")),
                _ => silent(),
            },
        )
    }
}

fn services_of(name: &str, health: &Health) -> AdminReply {
    let services: Vec<&str> = health.is_ready().then_some("riak_kv").into_iter().collect();
    let mut text = format!("[{}]\n", services.join(","));
    for finding in health.findings() {
        let _infallible = writeln!(text, "  {}: {}", finding.code, finding.text);
    }
    let data = json!({"node": name, "services": services, "health": health_view::json(health)});
    AdminReply::ok(text, data).with_riak_text(format!("[{}]", services.join(",")))
}

/// The moves of the committed plan that no node has begun.
fn planned(state: &ClusterState) -> Vec<Planned> {
    let ring = state.ring();
    let Some(transition) = state.transition() else {
        return Vec::new();
    };
    let due = transition.due(ring);
    let waiting = due.filter(|partition| !ring.moves().contains_key(partition));
    let planned = waiting.map(|partition| Planned {
        from: name_of(state, ring.owner(partition)),
        to: name_of(state, transition.target(partition)),
        partition: partition.number(),
        index: partition.index_decimal(ring.size()),
    });
    planned.collect()
}

fn row(state: &ClusterState, transfer: &TransferView) -> Row {
    let size = state.ring().size();
    let partition = size.partition(transfer.partition);
    let from = transfer.from.as_deref();
    let from = from.and_then(|id| Some(name_of(state, id.parse().ok()?)));
    Row {
        from: from.unwrap_or_else(|| "-".to_owned()),
        index: partition.map_or_else(String::new, |it| it.index_decimal(size)),
        transfer: transfer.clone(),
    }
}

fn repairing(name: &str, answer: Option<Result<Outcome, String>>) -> AdminReply {
    match answer {
        Some(Ok(Outcome::Repairing(partitions))) => {
            let are = if partitions.len() == 1 { "is" } else { "are" };
            let text = format!(
                "{} of '{name}' {are} repaired from the other replicas; 'handoff summary' and \
                 'transfers' show the progress",
                counted(partitions.len(), "partition")
            );
            AdminReply::ok(text, json!({"node": name, "partitions": partitions}))
        }
        Some(Ok(Outcome::Refused(reason))) => AdminReply::refused(format!("Failed: {reason}")),
        Some(Err(error)) => AdminReply::refused(format!("Failed: {name}: {error}")),
        _ => AdminReply::refused(format!("Failed: {name} does not answer")),
    }
}
