//! The table of all properties, and the two types that are made from it.

use serde_json::{Map, Value};

use crate::HLL_PRECISION_DEFAULT;
use crate::errors::{PropertyErrors, Reason};
use crate::function::{CommitHook, KeyFunction, LinkFunction};
use crate::quorum::Quorum;
use crate::value::{Datatype, PropertyValue, Replication, SyncOnWrite};

/// Named in what is read but not set by what is written; a client may write back what it read.
const READ_ONLY: [&str; 4] = ["name", "bucket_type", "active", "claimant"];

macro_rules! properties {
    // Thirty properties in two structs, two directions of JSON, a merge and a check: written out, six
    // lists would have to agree for ever.
    (
        defaulted {
            $($(#[$doc:meta])* $name:ident: $kind:ty, $valid:expr, $reason:ident, $default:expr;)*
        }
        optional {
            $($(#[$optional_doc:meta])* $optional:ident: $optional_kind:ty, $optional_valid:expr,
                $optional_reason:ident;)*
        }
    ) => {
        /// The properties that count for a bucket, with every layer and every default applied.
        #[derive(Clone, Debug, PartialEq)]
        pub struct BucketProperties {
            $($(#[$doc])* pub $name: $kind,)*
            $($(#[$optional_doc])* pub $optional: Option<$optional_kind>,)*
        }

        /// What was set at one layer; `None` leaves the layers below as they are.
        #[derive(Clone, Debug, PartialEq, Default)]
        pub struct PropertyOverlay {
            $($(#[$doc])* pub $name: Option<$kind>,)*
            $($(#[$optional_doc])* pub $optional: Option<$optional_kind>,)*
        }

        impl BucketProperties {
            /// Where buckets without a type start, before the configured defaults are applied.
            pub fn untyped_defaults() -> Self {
                Self { $($name: $default,)* $($optional: None,)* }
            }

            /// These properties where `overlay` says nothing, the overlay's where it does.
            #[must_use]
            pub fn with(&self, overlay: &PropertyOverlay) -> Self {
                Self {
                    $($name: overlay.$name.as_ref().unwrap_or(&self.$name).clone(),)*
                    $($optional: overlay.$optional.as_ref().or(self.$optional.as_ref()).cloned(),)*
                }
            }

            /// Every property that has a value, in Riak's JSON forms.
            pub fn to_json(&self) -> Map<String, Value> {
                let mut object = Map::new();
                $(object.insert(stringify!($name).to_owned(), PropertyValue::to_json(&self.$name));)*
                $(if let Some(value) = &self.$optional {
                    object.insert(stringify!($optional).to_owned(), PropertyValue::to_json(value));
                })*
                object
            }
        }

        impl PropertyOverlay {
            /// The names of all properties that can be set.
            pub const NAMES: &[&str] = &[$(stringify!($name),)* $(stringify!($optional),)*];

            /// Reads an object of properties. Every value of a wrong kind, every value out of range
            /// and every unknown name is reported; `name`, `active` and their like are passed over.
            pub fn from_json(object: &Map<String, Value>) -> Result<Self, PropertyErrors> {
                let mut overlay = Self::default();
                let mut errors = PropertyErrors::default();
                for (name, value) in object {
                    match name.as_str() {
                        $(stringify!($name) => match PropertyValue::from_json(value) {
                            Some(value) => overlay.$name = Some(value),
                            None => errors.push(name, Reason::$reason),
                        },)*
                        $(stringify!($optional) => match PropertyValue::from_json(value) {
                            Some(value) => overlay.$optional = Some(value),
                            None => errors.push(name, Reason::$optional_reason),
                        },)*
                        read_only if READ_ONLY.contains(&read_only) => {}
                        _ => errors.push(name, Reason::UnknownProperty),
                    }
                }
                overlay.out_of_range(&mut errors);
                errors.or_else_ok(overlay)
            }

            /// What was set, in Riak's JSON forms.
            pub fn to_json(&self) -> Map<String, Value> {
                let mut object = Map::new();
                $(if let Some(value) = &self.$name {
                    object.insert(stringify!($name).to_owned(), PropertyValue::to_json(value));
                })*
                $(if let Some(value) = &self.$optional {
                    object.insert(stringify!($optional).to_owned(), PropertyValue::to_json(value));
                })*
                object
            }

            /// This layer with a newer one over it.
            #[must_use]
            pub fn with(&self, newer: &Self) -> Self {
                Self {
                    $($name: newer.$name.as_ref().or(self.$name.as_ref()).cloned(),)*
                    $($optional: newer.$optional.as_ref().or(self.$optional.as_ref()).cloned(),)*
                }
            }

            fn out_of_range(&self, errors: &mut PropertyErrors) {
                $(if self.$name.as_ref().is_some_and(|value| !$valid(value)) {
                    errors.push(stringify!($name), Reason::$reason);
                })*
                $(if self.$optional.as_ref().is_some_and(|value| !$optional_valid(value)) {
                    errors.push(stringify!($optional), Reason::$optional_reason);
                })*
            }
        }
    };
}

properties! {
    defaulted {
        /// How many replicas an object has.
        n_val: u32, is_positive, NotInteger, 3;
        /// Replies that make a read succeed.
        r: Quorum, is_some_reply, NotValidQuorum, Quorum::Quorum;
        /// Receipts that make a write succeed.
        w: Quorum, is_some_reply, NotValidQuorum, Quorum::Quorum;
        /// Receipts after the backend's write that make a write succeed.
        dw: Quorum, every_value, NotValidQuorum, Quorum::Quorum;
        /// Of the replies to a read, how many must come from primaries.
        pr: Quorum, every_value, NotValidQuorum, Quorum::Number(0);
        /// Of the receipts of a write, how many must come from primaries.
        pw: Quorum, every_value, NotValidQuorum, Quorum::Number(0);
        /// The quorum of a delete that names neither r nor w.
        rw: Quorum, is_some_reply, NotValidQuorum, Quorum::Quorum;
        /// Distinct nodes that must have answered.
        node_confirms: Quorum, every_value, NotValidQuorum, Quorum::Number(0);
        /// Which replicas flush before they acknowledge.
        sync_on_write: SyncOnWrite, every_value, NotValidSyncParam, SyncOnWrite::Backend;
        /// Whether a read gives up once a majority found nothing.
        basic_quorum: bool, every_value, NotBoolean, false;
        /// Whether a replica that has nothing counts to r.
        notfound_ok: bool, every_value, NotBoolean, true;
        /// Whether concurrent values are kept as siblings.
        allow_mult: bool, every_value, NotBoolean, false;
        /// Whether causality is ignored.
        last_write_wins: bool, every_value, NotBoolean, false;
        /// Whether siblings are told apart by dots.
        dvv_enabled: bool, every_value, NotBoolean, false;
        /// Clock entries younger than this are never pruned, in seconds.
        young_vclock: u64, every_value, NotInteger, 20;
        /// Clock entries older than this are pruned in long clocks, in seconds.
        old_vclock: u64, is_positive_long, NotInteger, 86_400;
        /// Clocks of at most this many entries are never pruned.
        small_vclock: u64, is_positive_long, NotInteger, 50;
        /// Clocks of more entries than this are always pruned.
        big_vclock: u64, is_positive_long, NotInteger, 50;
        /// Hooks before a commit.
        precommit: Vec<CommitHook>, every_value, NotFunction, Vec::new();
        /// Hooks after a commit.
        postcommit: Vec<CommitHook>, every_value, NotFunction, Vec::new();
        /// What of the address decides the place on the ring.
        chash_keyfun: KeyFunction, every_value, NotSupported, KeyFunction::Standard;
        /// How links are taken out of objects.
        linkfun: LinkFunction, every_value, NotFunction, LinkFunction::default();
    }
    optional {
        /// The data type of all objects.
        datatype: Datatype, every_value, NotSupported;
        /// The precision of HyperLogLogs, 4 to 16.
        hll_precision: u8, is_precision, NotInteger;
        /// Whether writes are linearizable for each key.
        consistent: bool, every_value, NotBoolean;
        /// Whether objects are written once and never read before.
        write_once: bool, every_value, NotBoolean;
        /// The name of the backend, where a node has several.
        backend: String, is_named, NotString;
        /// Whether objects are indexed by the old search.
        search: bool, every_value, NotBoolean;
        /// The name of the search index.
        search_index: String, is_named, NotString;
        /// Replication between clusters.
        repl: Replication, every_value, NotSupported;
        /// Whether the bucket has statistics of its own.
        stat_tracked: bool, every_value, NotBoolean;
        /// Whether cached anti-entropy trees leave the bucket out.
        aae_tree_exclude: bool, every_value, NotBoolean;
    }
}

impl BucketProperties {
    /// Where the buckets of a created type start; configured defaults do not apply to them.
    pub fn typed_defaults() -> Self {
        Self {
            allow_mult: true,
            dvv_enabled: true,
            ..Self::untyped_defaults()
        }
    }

    /// True when objects are written once: absent is false.
    pub fn is_write_once(&self) -> bool {
        self.write_once == Some(true)
    }

    /// True when writes are linearizable for each key: absent is false.
    pub fn is_consistent(&self) -> bool {
        self.consistent == Some(true)
    }

    /// The precision of HyperLogLogs, with its default.
    pub fn hll_precision(&self) -> u8 {
        self.hll_precision.unwrap_or(HLL_PRECISION_DEFAULT)
    }
}

impl PropertyOverlay {
    /// True when nothing was set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Reports every value that its property cannot have; for overlays that did not come from JSON.
    pub fn check_values(&self) -> Result<(), PropertyErrors> {
        let mut errors = PropertyErrors::default();
        self.out_of_range(&mut errors);
        errors.or_else_ok(())
    }
}

fn every_value<T>(_: &T) -> bool {
    true
}

fn is_positive(number: &u32) -> bool {
    *number > 0
}

fn is_positive_long(number: &u64) -> bool {
    *number > 0
}

fn is_some_reply(quorum: &Quorum) -> bool {
    *quorum != Quorum::Number(0)
}

fn is_precision(precision: &u8) -> bool {
    (4..=16).contains(precision)
}

fn is_named(name: &str) -> bool {
    !name.is_empty()
}

#[cfg(test)]
#[path = "table_test.rs"]
mod tests;
