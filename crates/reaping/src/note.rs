//! The durable note of a replica about rounds. A store that is put back to an older copy has no note,
//! or an older one.

use crate::extent::Extent;
use crate::watermark::{RoundName, Watermark};

/// The last round that a replica took part in up to its mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The round.
    pub round: RoundName,
    /// The batches that were on all replicas when the round had compared them.
    pub extent: Extent,
    /// All replicas and members have confirmed the round's watermark: tombstones within the extent
    /// may go.
    pub is_confirmed: bool,
}

/// A replica without the mark of a watermark is a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiving {
    /// The watermark of which the replica has no mark.
    pub watermark: RoundName,
    /// All that its stores had when it was opened, or when it joined the list. It counts as absent
    /// until the replica is repaired, and is removed then: `None`.
    pub hidden: Option<Extent>,
}

/// The note of a replica for one preference list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// The epoch in which the replica joined the list last; zero if its stores were created for it.
    pub joined: u64,
    /// Its mark.
    pub mark: Option<Mark>,
    /// It is a receiver.
    pub receiving: Option<Receiving>,
}

impl Note {
    /// The note of a replica that has come to the list in an epoch and has nothing of it: it lacks no
    /// mark of the watermark.
    pub fn joined(epoch: u64, watermark: Option<&Watermark>) -> Self {
        let receiving = watermark.map(|it| Receiving {
            watermark: it.round,
            hidden: None,
        });
        Self {
            joined: epoch,
            mark: None,
            receiving,
        }
    }

    /// True if the replica has taken part in the watermark's round, or has noted since that it lacks
    /// entries.
    pub(crate) fn is_current(&self, watermark: &Watermark) -> bool {
        let mark = self.mark.as_ref().map(|it| it.round);
        let receiving = self.receiving.as_ref().map(|it| it.watermark);
        mark.is_some_and(|it| it.is_at_or_behind(watermark.round))
            || receiving == Some(watermark.round)
    }
}
