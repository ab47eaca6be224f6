//! Compares the files of a partition's store with this node's record of it, before the store is opened.
//!
//! A missing directory, or one of another partition's store, must not be served: acknowledged writes would
//! read as never written, and new writes would go to the wrong place. If other replicas have the
//! partition's data, an empty store takes its place and answers no reads until it is repaired from them;
//! the files found are set aside and kept. On a lone node the partition is refused until its directory is
//! back or an operator accepts its loss.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use kvorum_backend::StoreId;
use kvorum_ring::{Partition, RingSize};

use crate::store_list::{Known, StoreList};
use crate::stores::Found;

/// Decision about the files found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Open the store; this is its recorded identity.
    Open(Option<StoreId>),
    /// Another store, for this reason; the other replicas have the partition's data.
    Replace(String),
    /// Another store, for this reason; no other node has the partition's data.
    Refuse(String),
}

/// The reason why a store is refused that is missing or another partition's. All other obstacles to
/// opening a store may pass.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(pub(crate) String);

/// A node's record of its stores.
#[derive(Clone, Debug)]
pub(crate) struct KnownStores {
    pub(crate) size: RingSize,
    pub(crate) stores: BTreeMap<Partition, Known>,
}

impl KnownStores {
    /// The identities in the record.
    pub(crate) fn of(held: &StoreList) -> Self {
        Self {
            size: held.size,
            stores: held.stores.clone(),
        }
    }

    /// The recorded identity of a partition's store, if there was one.
    pub(crate) fn identity(&self, partition: Partition) -> Option<StoreId> {
        let known = self.stores.get(&partition)?;
        known.is_real().then_some(known.store)
    }

    /// Decides about the files found.
    pub(crate) fn judge(
        &self,
        partition: Partition,
        found: &Found,
        others_have_it: bool,
    ) -> Verdict {
        let known = self.identity(partition);
        let why = match (found, known) {
            (Found::Unusable { why, .. }, _) => why.clone(),
            (Found::NotKept, _) | (_, None) => return Verdict::Open(known),
            (
                Found::Store {
                    identity, erased, ..
                },
                Some(known),
            ) if *identity == known || *erased == known => {
                return Verdict::Open(Some(known));
            }
            (Found::Nothing { directory }, Some(known)) => missing(directory, known),
            (
                Found::Store {
                    directory,
                    identity,
                    ..
                },
                Some(known),
            ) => self.exchanged(directory, *identity, known),
        };
        match others_have_it {
            true => Verdict::Replace(why),
            false => Verdict::Refuse(format!("{why}; {}", until_accepted(partition))),
        }
    }

    fn exchanged(&self, directory: &Path, found: StoreId, known: StoreId) -> String {
        let mut why = format!(
            "{} holds another store ({:#018x}) than this partition had ({:#018x})",
            directory.display(),
            found.0,
            known.0
        );
        let owner = self.stores.iter().find(|(_, known)| known.store == found);
        if let Some((owner, _)) = owner {
            let index = owner.index_decimal(self.size);
            let number = owner.number();
            let _infallible = write!(
                why,
                ": that of partition {number}, whose directory is {index}"
            );
        }
        why.push_str("; put back the directory that belongs here");
        why
    }
}

fn missing(directory: &Path, known: StoreId) -> String {
    let directory = directory.display();
    let known = known.0;
    format!(
        "{directory} is missing or empty, and this partition had a store ({known:#018x}); put the directory back"
    )
}

fn until_accepted(partition: Partition) -> String {
    let number = partition.number();
    format!(
        "no other node has its data; once the directory is there it is opened without a restart, \
         and `kvorum admin cluster accept-loss {number}` goes on with an empty store"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: StoreId = StoreId(77);
    const OTHER: StoreId = StoreId(88);

    fn size() -> RingSize {
        RingSize::new(8).unwrap()
    }

    fn known() -> KnownStores {
        let stores = [(1, OWN), (2, OTHER)].map(|(number, store)| {
            let is_complete = true;
            (
                size().partition(number).unwrap(),
                Known { store, is_complete },
            )
        });
        KnownStores {
            size: size(),
            stores: stores.into(),
        }
    }

    fn store(identity: StoreId, erased: StoreId) -> Found {
        Found::Store {
            directory: "stores/1".into(),
            identity,
            erased,
        }
    }

    fn nothing() -> Found {
        Found::Nothing {
            directory: "stores/1".into(),
        }
    }

    #[test]
    fn what_is_known_is_opened_and_so_is_what_nothing_is_known_of() {
        let (known, own) = (known(), size().partition(1).unwrap());
        let none = StoreId(0);
        for others_have_it in [false, true] {
            let judge = |found| known.judge(own, &found, others_have_it);
            assert_eq!(judge(store(OWN, none)), Verdict::Open(Some(OWN)));
            assert_eq!(judge(store(StoreId(99), OWN)), Verdict::Open(Some(OWN)));
            assert_eq!(judge(Found::NotKept), Verdict::Open(Some(OWN)));
            let fresh = size().partition(3).unwrap();
            for found in [nothing(), store(OTHER, none)] {
                assert_eq!(
                    known.judge(fresh, &found, others_have_it),
                    Verdict::Open(None)
                );
            }
        }
    }

    /// Regression: exchanged and missing directories were answered 404, with one warning.
    #[test]
    fn a_missing_and_another_store_are_refused_alone_and_replaced_among_replicas() {
        let (known, own) = (known(), size().partition(1).unwrap());
        let unusable = Found::Unusable {
            directory: "stores/1".into(),
            why: "store-0 is damaged".to_owned(),
        };
        let exchanged = store(OTHER, StoreId(0));
        for (found, named) in [
            (nothing(), "stores/1 is missing"),
            (exchanged, "that of partition 2, whose directory is"),
            (unusable, "store-0 is damaged"),
        ] {
            let Verdict::Refuse(why) = known.judge(own, &found, false) else {
                panic!("{found:?} was not refused");
            };
            assert!(
                why.contains(named) && why.contains("accept-loss 1"),
                "{why}"
            );
            let Verdict::Replace(why) = known.judge(own, &found, true) else {
                panic!("{found:?} was not replaced");
            };
            assert!(why.contains(named) && !why.contains("accept-loss"), "{why}");
        }
    }
}
