//! The membership card: who this node is, to which cluster it belongs, and which log it follows.
//!
//! A node that joins a cluster takes up another log in another directory; the card is what makes the
//! change, in one atomic step. A card that cannot be read never leads to a new identity: that would be
//! a new node over another one's data.

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
use crate::held::nodes_of_records;

/// The number of the log of a cluster that a node makes of itself alone.
pub(crate) const FIRST_LOG: u64 = 1;

/// How far a node has come with its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is making one of its own, of a new cluster or of one that it recovers; what there is of it is
    /// made anew.
    Founding,
    /// Its log was founded by itself.
    Founded,
    /// It joined a cluster, whose log it is sent.
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

/// Of which node a card is.
enum Doubt {
    /// There is no more than one.
    None,
    /// Of two, it is this one.
    Settled(NodeId),
    /// Nothing says which of two.
    Open,
}

/// The card and its copy on disk.
pub(crate) struct CardFile {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    file: CheckedFile,
    sequence: Mutex<u64>,
}

impl CardFile {
    pub(crate) fn new(disk: Arc<dyn Disk>, directory: &Path) -> Self {
        Self {
            disk,
            directory: directory.to_owned(),
            file: file_in(directory),
            sequence: Mutex::new(0),
        }
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
        let node = self.node_in_doubt().map_err(unread)?;
        let node = match node {
            Doubt::None => None,
            Doubt::Settled(node) => Some(node),
            Doubt::Open => {
                return Err(OpenError::CardsOfTwoNodes {
                    file: self.file.path().to_owned(),
                });
            }
        };
        let is_own = |body: &str| {
            let card = parse(body);
            node.is_none_or(|node| card.is_some_and(|card| card.node == node))
        };
        let found = self.file.load_own(&*self.disk, is_own);
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

    /// Looks whether the card and its copy are of two nodes. Then the record of stores says which of them
    /// this one is.
    fn node_in_doubt(&self) -> Result<Doubt, DiskError> {
        let nodes = nodes_of_cards(&*self.disk, &self.directory)?;
        if nodes.len() < 2 {
            return Ok(Doubt::None);
        }
        let known = nodes_of_records(&*self.disk, &self.directory)?;
        let mut both = nodes.intersection(&known);
        Ok(match (both.next(), both.next()) {
            (Some(node), None) => Doubt::Settled(*node),
            _ => Doubt::Open,
        })
    }

    pub(crate) fn store(&self, card: &Card) -> Result<(), DiskError> {
        let mut sequence = self.sequence.lock();
        *sequence += 1;
        self.file.store(&*self.disk, *sequence, &text(card))
    }

    /// Where the card is.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where the log of this number is.
    pub(crate) fn log_directory(&self, log: u64) -> PathBuf {
        self.directory.join(format!("log-{log}"))
    }
}

/// The nodes of which the cards in a directory are.
pub(crate) fn nodes_of_cards(
    disk: &dyn Disk,
    directory: &Path,
) -> Result<BTreeSet<NodeId>, DiskError> {
    let bodies = file_in(directory).bodies(disk)?;
    let cards = bodies.iter().filter_map(|body| parse(body));
    Ok(cards.map(|card| card.node).collect())
}

fn file_in(directory: &Path) -> CheckedFile {
    CheckedFile::new(directory, "card", "kvorum membership card")
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
    fn a_card_that_could_not_be_read_is_told_from_one_that_is_damaged() {
        let memory = MemoryDisk::new();
        memory.create_directory(Path::new("ring")).unwrap();
        let faulty = FaultyDisk::over_memory(&memory);
        let file = CardFile::new(Arc::new(faulty.clone()), Path::new("ring"));
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
            (ErrorKind::Denied, "give it that right and start again"),
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
        assert!(
            refused
                .to_string()
                .contains("holds what was written there; restore")
        );
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
