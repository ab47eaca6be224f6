//! The entries that a replica may give after an absence.
//!
//! Tombstones go once all replicas hold them. A replica whose data is from before that, since it was
//! restored from a backup or rolled back, may have deleted entries and lack every trace of the
//! deletion. It comes back as a *receiver*: entries that the others lack were deleted and are dropped,
//! and the others' entries replace its own. Entries that it has written since it came back count like
//! any other replica's.

use kvorum_planted_defects::is_planted;

use crate::watermark::{Completed, LocalMark};

/// A replica's statement about its data when it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaClaim {
    /// Its mark of the last complete exchange; none if it never took part in one.
    pub mark: Option<LocalMark>,
    /// The last batch of its store when it came back.
    pub back_since_sequence: u64,
}

/// The rank of a replica among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It gives and takes.
    Source,
    /// It takes until a complete exchange, and gives only the entries that it wrote since it came back.
    Receiver {
        /// The last batch of its store when it came back.
        back_since_sequence: u64,
    },
}

/// Standings of the replicas of a preference list, in its order, by the last complete exchange that all
/// nodes agree on. A replica without a claim is `None`, and is taken for a receiver without new
/// entries.
///
/// At least one replica is a source. Where all come back from before the exchange, as after the restore
/// of a whole cluster, the sources are those that took part in the latest.
pub fn standings_of(
    claims: &[Option<ReplicaClaim>],
    completed: Option<&Completed>,
) -> Vec<Standing> {
    let number = |claim: &Option<ReplicaClaim>| {
        let mark = claim.as_ref().and_then(|it| it.mark);
        mark.map_or(0, |mark| mark.number)
    };
    let agreed = completed.map_or(0, |it| it.number);
    let latest = claims.iter().map(number).max().unwrap_or(0);
    let needed = agreed.min(match claims.iter().all(Option::is_some) {
        true => latest,
        // One that is not heard may be a source.
        false => agreed,
    });
    let standing = |claim: &Option<ReplicaClaim>| {
        if number(claim) >= needed || is_planted!(RestoredReplicaTakenForSource) {
            return Standing::Source;
        }
        let back_since_sequence = claim.map_or(u64::MAX, |it| it.back_since_sequence);
        Standing::Receiver {
            back_since_sequence,
        }
    };
    claims.iter().map(standing).collect()
}

/// State of a key at the sources among the other replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtSources {
    /// One has an entry.
    Held,
    /// None has, and one or more have answered.
    Absent,
    /// None has answered.
    Unknown,
}

/// The fate of an entry of a replica that differs from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is merged with the others', which take it in.
    Merged,
    /// The others' takes its place, without a merge: it may have been deleted before theirs was written.
    Replaced,
    /// It is dropped.
    Dropped,
    /// It stays where it is, and no replica takes it in.
    Withheld,
}

/// The fate of an entry that a batch of the replica's store wrote.
pub fn fate_of(standing: Standing, sequence: u64, at_sources: AtSources) -> Fate {
    let Standing::Receiver {
        back_since_sequence,
    } = standing
    else {
        return Fate::Merged;
    };
    match at_sources {
        _ if sequence > back_since_sequence => Fate::Merged,
        AtSources::Held => Fate::Replaced,
        AtSources::Absent => Fate::Dropped,
        AtSources::Unknown => Fate::Withheld,
    }
}
