//! The questions of a round to replicas and members, and the seam by which they are asked.

use std::future::Future;
use std::pin::Pin;

use kvorum_cluster::Command;
use kvorum_reaping::{KeptBecause, ListName, RoundName};
use kvorum_ring::NodeId;
use serde::{Deserialize, Serialize};

/// A question of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundQuestion {
    /// The preference list.
    pub list: ListName,
    /// The round.
    pub round: RoundName,
    /// The question.
    pub step: RoundStep,
}

/// The steps of a round in which something is asked: of a replica, by its partition, or of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoundStep {
    /// A replica fixes its extent; the answer is its incarnation.
    Open(u16),
    /// A member notes that it has no hints of the list; the answer is how many it has.
    Hints,
    /// A member waits until its earlier work has ended.
    Settle,
    /// A member answers if a hint has come since it noted that it has none.
    HintsAgain,
    /// A replica makes its extent and its mark durable.
    Note(u16),
    /// A member confirms the watermark.
    ConfirmHints,
    /// A replica confirms the watermark.
    Confirm(u16),
    /// A replica removes its tombstones; the answer is how many.
    Reap(u16),
}

/// The answer to a question; zero where nothing is counted.
pub type RoundAnswer = Result<u64, KeptBecause>;

/// An answer that is on its way.
pub type AskedRound = Pin<Box<dyn Future<Output = RoundAnswer> + Send>>;

/// The way of a round to replicas, members, and the agreed log.
pub trait RoundMeans: Send + Sync {
    /// Asks a node, which may be this one. No answer in time is [`KeptBecause::ReplicaDown`].
    fn ask(&self, node: NodeId, question: RoundQuestion) -> AskedRound;

    /// True when the agreed log has taken a command. An unknown end counts as not.
    fn agree(&self, command: Command) -> Pin<Box<dyn Future<Output = bool> + Send>>;
}
