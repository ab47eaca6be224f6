//! Changes of a ring as golden scripts (`ring_scripts/`): members are added and removed, plans are
//! committed and carried out.
//!
//! A script begins with a cluster of node 1 and eight partitions.
//!
//! | command | replies |
//! |---|---|
//! | `join N`, `leave N`, `remove N`, `replace N by M`, `force-replace N by M`, `weight N W`, `clear`, `down N`, `up N` | refusals only; `remove` is by force |
//! | `plan`, `commit` | the plan; refusals only |
//! | `begin P`, `close P`, `settle P`, `abandon P` | steps of the move of a partition: refusals only |
//! | `grow STEP` | the same for the number of replicas |
//! | `due` | moves that may begin, eight at a time at most, and the number of replicas to change to |
//! | `carry out` | none: takes all steps until nothing is due |
//! | `members`, `ring` | each member and its status; the owners of all partitions, moves, replicas |

use kvorum_cluster::{
    ClusterState, Command, GrowthStep, Member, MemberStatus, MoveStep, Plan, StagedChange, apply,
};
use kvorum_golden::{Stage, play_scripts};
use kvorum_ring::{NodeId, Partition, Phase};

use crate::membership::carry_out;
use crate::{founded, node};

type Replies = Result<Vec<String>, String>;

#[test]
fn rings_change_as_their_scripts_say() {
    play_scripts("ring_scripts", || Cluster { state: founded() });
}

struct Cluster {
    state: ClusterState,
}

impl Stage for Cluster {
    fn take(&mut self, line: &str) -> Replies {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["plan"] => Ok(self.plan()),
            ["due"] => Ok(self.due()),
            ["members"] => Ok(self.members()),
            ["ring"] => Ok(self.ring()),
            ["carry", "out"] => {
                self.state = carry_out(self.state.clone(), 8, |_| {});
                Ok(Vec::new())
            }
            ["commit"] => match self.state.plan() {
                Ok(Plan { id, .. }) => Ok(self.apply(Command::CommitPlan { id })),
                Err(error) => Ok(vec![error.to_string()]),
            },
            _ => {
                let command = self.command(&words)?;
                Ok(self.apply(command))
            }
        }
    }
}

impl Cluster {
    fn apply(&mut self, command: Command) -> Vec<String> {
        match apply(&self.state, command) {
            Ok(state) => {
                self.state = state;
                Vec::new()
            }
            Err(refusal) => vec![with_numbers(&refusal.to_string())],
        }
    }

    fn command(&self, words: &[&str]) -> Result<Command, String> {
        Ok(match *words {
            ["join", new] => self.join(number(new)?),
            ["clear"] => Command::ClearStaged,
            ["leave", it] => stage(it, StagedChange::Leave)?,
            ["remove", it] => stage(it, StagedChange::ForceRemove)?,
            ["replace", it, "by", by] => {
                let by = node(number(by)?);
                stage(it, StagedChange::Replace { by })?
            }
            ["force-replace", it, "by", by] => {
                let by = node(number(by)?);
                stage(it, StagedChange::ForceReplace { by })?
            }
            ["weight", it, weight] => {
                let weight = u32::from(number(weight)?);
                stage(it, StagedChange::Weight(weight))?
            }
            ["down", it] => self.update(number(it)?, MemberStatus::Down),
            ["up", it] => self.update(number(it)?, MemberStatus::Valid),
            ["grow", step] => self.grow(step)?,
            [step, partition] => self.step(step, partition)?,
            _ => return Err(format!("no command is called {words:?}")),
        })
    }

    fn join(&self, number: u8) -> Command {
        Command::AddMember {
            node: node(number),
            member: Member {
                status: MemberStatus::Joining,
                ..Member::new(&format!("riak@10.0.0.{number}"))
            },
        }
    }

    fn update(&self, number: u8, status: MemberStatus) -> Command {
        let node = node(number);
        let name = self.state.member(node).map(|member| member.name.clone());
        Command::UpdateMember {
            node,
            member: Member {
                status,
                ..Member::new(&name.unwrap_or_default())
            },
        }
    }

    fn step(&self, step: &str, partition: &str) -> Result<Command, String> {
        let partition = Partition::of_number(u16::from(number(partition)?));
        let partition = partition.ok_or("no partition has this number")?;
        let step = match step {
            "begin" => MoveStep::Begin,
            "close" => MoveStep::Close,
            "settle" => MoveStep::Settle,
            "abandon" => MoveStep::Abandon,
            _ => return Err(format!("no command is called {step}")),
        };
        let at = self.state.ring().epoch(partition);
        Ok(Command::Move {
            partition,
            at,
            step,
        })
    }

    fn grow(&self, step: &str) -> Result<Command, String> {
        let step = match step {
            "begin" => GrowthStep::Begin(self.state.next_growth().unwrap_or(0)),
            "close" => GrowthStep::Close,
            "settle" => GrowthStep::Settle,
            "abandon" => GrowthStep::Abandon,
            _ => return Err(format!("no step is called {step}")),
        };
        let from = self.state.ring().replicas_max();
        Ok(Command::Grow { from, step })
    }

    fn plan(&self) -> Vec<String> {
        let plan = match self.state.plan() {
            Ok(plan) => plan,
            Err(error) => return vec![error.to_string()],
        };
        let mut printed: Vec<String> = Vec::new();
        for transfer in &plan.transfers {
            let (from, to) = (number_of(transfer.from), number_of(transfer.to));
            printed.push(format!("{} moves from {from} to {to}", transfer.partition));
        }
        for partition in &plan.lost {
            let to = number_of(plan.target.owner(*partition));
            printed.push(format!("{partition} goes to {to} without its data"));
        }
        for partition in &plan.crowded {
            printed.push(format!("{partition} has two replicas on one node"));
        }
        printed
    }

    fn due(&self) -> Vec<String> {
        let moves = self.state.next_moves(8).into_iter();
        let mut due: Vec<String> = moves.map(|(it, _)| format!("move of {it}")).collect();
        due.extend(self.state.next_growth().map(|to| format!("{to} replicas")));
        due
    }

    fn members(&self) -> Vec<String> {
        let mut members: Vec<(u8, String)> = Vec::new();
        for (node, member) in self.state.members() {
            let status = format!("{:?}", member.status).to_lowercase();
            members.push((number_of(*node), status));
        }
        members.sort();
        let shown = members.into_iter();
        shown
            .map(|(number, status)| format!("{number} {status}"))
            .collect()
    }

    fn ring(&self) -> Vec<String> {
        let ring = self.state.ring();
        let owners = ring.partitions();
        let owners: Vec<String> = owners
            .map(|(_, owner, _)| number_of(owner).to_string())
            .collect();
        let mut shown = vec![format!("owners {}", owners.join(" "))];
        for (partition, moving) in ring.moves() {
            let (to, phase) = (number_of(moving.to), word(moving.phase));
            shown.push(format!("{partition} moves to {to}: {phase}"));
        }
        shown.push(match ring.growth() {
            None => format!("replicas {}", ring.replicas_max()),
            Some(growth) => {
                let (from, phase) = (ring.replicas_max(), word(growth.phase));
                format!("replicas {from}, to be {}: {phase}", growth.to)
            }
        });
        shown
    }
}

fn stage(it: &str, change: StagedChange) -> Result<Command, String> {
    Ok(Command::Stage {
        node: node(number(it)?),
        change,
    })
}

fn number(text: &str) -> Result<u8, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

/// The number of a node; the scripts have fewer than ten.
fn number_of(of: NodeId) -> u8 {
    (1..10).find(|number| node(*number) == of).unwrap()
}

/// A text with numbers in place of identities.
fn with_numbers(text: &str) -> String {
    (1..10).fold(text.to_owned(), |text, number| {
        text.replace(&node(number).to_string(), &number.to_string())
    })
}

fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Filling => "filling",
        Phase::Closing => "closing",
    }
}
