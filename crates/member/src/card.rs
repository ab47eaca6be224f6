//! The membership card: this node's identity, its cluster, and the log that it follows.
//!
//! A node that joins a cluster takes up another log in another directory; the card makes the change
//! in one atomic step. A card that cannot be read never leads to a new identity: a new node would
//! then use another node's data.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_cluster::ClusterId;
use kvorum_disk::{Disk, DiskError};
use kvorum_ring::NodeId;
use parking_lot::Mutex;

use crate::checked_file::{CheckedFile, Found};
use crate::error::OpenError;
use crate::store_list::nodes_of_records;

/// Prefix of the name of a log's directory, before the log's number.
pub(crate) const LOG_DIRECTORY: &str = "log-";
/// Parts of the name of the second mark, before and after the log's number.
pub(crate) const SECOND_MARK: &str = "agreed_log-";
pub(crate) const SECOND_MARK_END: &str = ".end";
/// The number of the log that a node founds, as a cluster of one.
pub(crate) const FIRST_LOG: u64 = 1;

/// The stage of a node's agreed log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The node is creating its own log, for a new cluster or a cluster that it recovers. Files of
    /// an earlier attempt are created again.
    Founding,
    /// The node founded its own log.
    Founded,
    /// The node joined a cluster, which sends it the log.
    Joined,
}

/// See the module's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    pub(crate) stage: Stage,
    pub(crate) node: NodeId,
    pub(crate) cluster: ClusterId,
    /// The number of the log's directory.
    pub(crate) log: u64,
}

impl Card {
    /// Reads the body of a card.
    pub(crate) fn parse(body: &str) -> Option<Self> {
        parse(body)
    }
}

/// The card and its copy on disk.
pub(crate) struct CardFile {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    data_directory: PathBuf,
    file: CheckedFile,
    sequence: Mutex<u64>,
}

impl CardFile {
    pub(crate) fn new(disk: Arc<dyn Disk>, directory: &Path, data_directory: &Path) -> Self {
        Self {
            disk,
            directory: directory.to_owned(),
            data_directory: data_directory.to_owned(),
            file: Self::named(directory),
            sequence: Mutex::new(0),
        }
    }

    /// The file and its copy in a directory.
    pub(crate) fn named(directory: &Path) -> CheckedFile {
        CheckedFile::new(directory, "card", "kvorum membership card")
    }

    /// The card, if there is one.
    pub(crate) fn load(&self) -> Result<Option<Card>, OpenError> {
        let damaged = || OpenError::CardDamaged {
            file: self.file.path().to_owned(),
        };
        let unread = |error| OpenError::CardUnread {
            file: self.file.path().to_owned(),
            error,
        };
        self.settle_two_nodes(unread)?;
        let found = self.file.load(&*self.disk);
        match found.map_err(unread)? {
            Found::Nothing => Ok(None),
            Found::Damaged => Err(damaged()),
            Found::Content {
                sequence,
                body,
                stale,
            } => {
                if let Some(stale) = stale {
                    tracing::warn!(event = "card_mended", file = %stale.display());
                }
                *self.sequence.lock() = sequence;
                parse(&body).ok_or_else(damaged).map(Some)
            }
        }
    }

    /// Settles a conflict between cards of two nodes: the card of this node replaces the other one.
    /// The logs that the cards name decide which card is right, or else the record of stores. The
    /// higher sequence does not count.
    fn settle_two_nodes(&self, unread: impl Fn(DiskError) -> OpenError) -> Result<(), OpenError> {
        let contents = self.file.contents(&*self.disk).map_err(&unread)?;
        let [Some(first), Some(second)] = contents else {
            return Ok(());
        };
        let (Some(one), Some(other)) = (parse(&first.1), parse(&second.1)) else {
            return Ok(());
        };
        if one.node == other.node {
            return Ok(());
        }
        let known = nodes_of_records(&*self.disk, &self.directory).map_err(&unread)?;
        let is_first = match (self.is_confirmed(&one), self.is_confirmed(&other)) {
            (true, false) => Some(true),
            (false, true) => Some(false),
            _ => match (known.contains(&one.node), known.contains(&other.node)) {
                (true, false) => Some(true),
                (false, true) => Some(false),
                _ => None,
            },
        };
        let Some(is_first) = is_first else {
            return Err(OpenError::CardsOfTwoNodes {
                file: self.file.path().to_owned(),
                first: one.node,
                second: other.node,
            });
        };
        let (sequence, body) = if is_first { first } else { second };
        tracing::warn!(event = "card_of_another_node", file = %self.file.path().display());
        Ok(self.file.store(&*self.disk, sequence, &body)?)
    }

    /// True when the log that a card names belongs to the card's node.
    fn is_confirmed(&self, card: &Card) -> bool {
        let log = self.log_directory(card.log);
        kvorum_agreement::check::node_of(&*self.disk, &log) == Some(card.node)
    }

    pub(crate) fn store(&self, card: &Card) -> Result<(), DiskError> {
        let mut sequence = self.sequence.lock();
        *sequence += 1;
        self.file.store(&*self.disk, *sequence, &text(card))
    }

    /// The directory of the card.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The directory of files that a node keeps beside its stores.
    pub(crate) fn data_directory(&self) -> &Path {
        &self.data_directory
    }

    /// The directory of the log with this number.
    pub(crate) fn log_directory(&self, log: u64) -> PathBuf {
        Self::log_directory_in(&self.directory, log)
    }

    pub(crate) fn log_directory_in(ring: &Path, log: u64) -> PathBuf {
        ring.join(format!("{LOG_DIRECTORY}{log}"))
    }

    /// The mark of the durable end of the log of this number, in the data directory.
    pub(crate) fn second_mark(&self, log: u64) -> PathBuf {
        Self::second_mark_in(&self.data_directory, log)
    }

    pub(crate) fn second_mark_in(data: &Path, log: u64) -> PathBuf {
        data.join(format!("{SECOND_MARK}{log}{SECOND_MARK_END}"))
    }
}

/// The state that a recovered cluster begins with: the base of a card of a later founding.
pub(crate) fn recovered_file(directory: &Path, node: NodeId) -> CheckedFile {
    let title = "kvorum state of a recovered cluster";
    CheckedFile::new(directory, "recovered", title).of(node)
}

/// The nodes that the cards in a directory belong to.
pub(crate) fn nodes_of_cards(
    disk: &dyn Disk,
    directory: &Path,
) -> Result<BTreeSet<NodeId>, DiskError> {
    let bodies = CardFile::named(directory).bodies(disk)?;
    let cards = bodies.iter().filter_map(|body| parse(body));
    Ok(cards.map(|card| card.node).collect())
}

fn text(card: &Card) -> String {
    let stage = match card.stage {
        Stage::Founding => "founding",
        Stage::Founded => "founded",
        Stage::Joined => "joined",
    };
    let mut text = String::new();
    let _infallible = write!(
        text,
        "stage {stage}\nnode {}\ncluster {}\nlog {}\n",
        card.node, card.cluster, card.log
    );
    text
}

fn parse(text: &str) -> Option<Card> {
    let mut lines = text.lines();
    let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    let stage = match value("stage")? {
        "founding" => Stage::Founding,
        "founded" => Stage::Founded,
        "joined" => Stage::Joined,
        _ => return None,
    };
    Some(Card {
        stage,
        node: value("node")?.parse().ok()?,
        cluster: value("cluster")?.parse().ok()?,
        log: value("log")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use kvorum_disk::{ErrorKind, Fault, FaultyDisk, MemoryDisk, OpenMode, Operation, Rule};

    use super::*;

    #[test]
    fn a_card_that_could_not_be_read_is_distinguished_from_one_that_is_damaged() {
        let memory = MemoryDisk::new();
        memory.create_directory(Path::new("ring")).unwrap();
        let faulty = FaultyDisk::over_memory(&memory);
        let file = CardFile::new(
            Arc::new(faulty.clone()),
            Path::new("ring"),
            Path::new("data"),
        );
        let card = Card {
            stage: Stage::Founded,
            node: NodeId::from_bytes([1; 16]),
            cluster: ClusterId::from_random([2; 16]),
            log: FIRST_LOG,
        };
        file.store(&card).unwrap();
        for (kind, advice) in [
            (
                ErrorKind::Device,
                "may be intact: look into the system's log",
            ),
            (
                ErrorKind::Denied,
                "change their permissions and start again",
            ),
        ] {
            faulty.add_rule(Rule::new(Fault::Error(kind)).on(Operation::Read));
            let refused = file.load().unwrap_err();
            assert!(matches!(refused, OpenError::CardUnread { .. }), "{refused}");
            assert!(refused.to_string().contains(advice), "{refused}");
            faulty.heal();
            assert_eq!(file.load().unwrap(), Some(card));
        }
        for name in ["ring/card", "ring/card.copy"] {
            let card = memory.open(Path::new(name), OpenMode::ReadWrite).unwrap();
            card.write_at(b"?", 40).unwrap();
        }
        let refused = file.load().unwrap_err();
        assert!(
            matches!(refused, OpenError::CardDamaged { .. }),
            "{refused}"
        );
        assert!(refused.to_string().contains("is intact; restore"));
    }

    #[test]
    fn a_card_reads_back() {
        for stage in [Stage::Founding, Stage::Founded, Stage::Joined] {
            let card = Card {
                stage,
                node: NodeId::from_bytes([1; 16]),
                cluster: ClusterId::from_random([2; 16]),
                log: 7,
            };
            assert_eq!(parse(&text(&card)), Some(card));
        }
        assert_eq!(parse("stage founded\nnode x\n"), None);
    }
}
