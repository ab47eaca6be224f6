//! The picture of one moment, for a terminal or a line.

use std::time::Duration;

use crate::observation::TransferView;
use crate::script::NodeNumber;

/// The phase of the demo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nodes start and become a cluster.
    #[default]
    Forming,
    /// The load runs.
    Running,
    /// The load has ended; the cluster recovers.
    Settling,
    /// Every key is read.
    Reading,
}

/// See the module's description.
#[derive(Clone, Debug, Default)]
pub(crate) struct Picture {
    pub(crate) phase: Phase,
    /// Time since the load began, or the demo before that.
    pub(crate) elapsed: Duration,
    pub(crate) left: Option<Duration>,
    pub(crate) is_whole: bool,
    /// The reason why the cluster is not whole.
    pub(crate) hindrance: String,
    pub(crate) nodes: Vec<NodeRow>,
    pub(crate) ring: Vec<Cell>,
    pub(crate) rates: Rates,
    pub(crate) acknowledged: u64,
    pub(crate) judged: u64,
    /// Siblings that a write replaced by one value.
    pub(crate) siblings: u64,
    pub(crate) lost: u64,
    pub(crate) findings: usize,
    pub(crate) transfers: Vec<TransferView>,
    pub(crate) transfers_waiting: usize,
    /// Events with their times.
    pub(crate) notes: Vec<(Duration, String)>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeRow {
    pub(crate) number: NodeNumber,
    pub(crate) state: &'static str,
    pub(crate) is_selected: bool,
    /// The side of a cut.
    pub(crate) side: Option<char>,
    /// Number of members that it sees, and of all members.
    pub(crate) sees: Option<(usize, usize)>,
    pub(crate) partitions: usize,
    pub(crate) hints: u64,
    pub(crate) operations: u64,
    /// The port of its HTTP interface.
    pub(crate) http: u16,
}

/// A partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) owner: Option<NodeNumber>,
    /// The future owner.
    pub(crate) next: Option<NodeNumber>,
}

/// Rates of the last second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rates {
    pub(crate) writes: u64,
    pub(crate) reads: u64,
    pub(crate) failures: u64,
    pub(crate) median: Duration,
    pub(crate) p99: Duration,
    pub(crate) longest: Duration,
    /// Writes in each second until now.
    pub(crate) history: Vec<u64>,
}

impl Picture {
    /// The sentence that the demo is about.
    pub(crate) fn verdict(&self) -> String {
        format!("acknowledged {}, lost {}", self.acknowledged, self.lost)
    }

    /// The picture in one line.
    pub(crate) fn line(&self) -> String {
        let up = self.nodes.iter().filter(|node| node.state == "up").count();
        let hints: u64 = self.nodes.iter().map(|node| node.hints).sum();
        let moving = self.ring.iter().filter(|cell| cell.next.is_some()).count();
        let Rates {
            writes,
            reads,
            failures,
            median,
            p99,
            ..
        } = &self.rates;
        format!(
            "{:>4} s  {up} of {} up, {} transfers, {moving} to move, {hints} hints | {writes} writes/s, \
             {reads} reads/s, {failures} failed/s, median {}, p99 {} | {}",
            self.elapsed.as_secs(),
            self.nodes.len(),
            self.transfers.len(),
            milliseconds(*median),
            milliseconds(*p99),
            self.verdict(),
        )
    }
}

/// The text of a latency.
pub(crate) fn milliseconds(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1_000.0;
    let digits = if ms < 10.0 { 1 } else { 0 };
    format!("{ms:.digits$} ms")
}
