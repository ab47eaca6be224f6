//! The table of all properties, and the two types that are made from it.

use serde_json::{Map, Value};

use crate::commit_hook::CommitHook;
use crate::effect::Effect::{self, Guarded, Harmless, Honoured};
use crate::errors::PropertyErrors;
use crate::errors::Reason::{
    self, NotBoolean, NotFunction, NotInteger, NotString, NotSupported, NotValidQuorum,
    NotValidSyncParam, OtherDatatype, Precision,
};
use crate::function::{KeyFunction, LinkFunction};
use crate::quorum::Quorum;
use crate::validator::Validator;
use crate::value::{Datatype, PropertyValue, Replication, SyncOnWrite};

/// The registers of a HyperLogLog are 2 to this power where the type does not set it.
pub const HLL_PRECISION_DEFAULT: u8 = 14;

/// The default kind of objects.
pub const OBJECT_TAG_DEFAULT: &str = "o_rkv";

/// Names that are read beside the properties and cannot be set, each with the reason; a client may
/// write back values that it read.
pub(crate) const READ_ONLY: &[(&str, &str)] = &[
    ("name", IN_THE_ADDRESS),
    ("bucket_type", IN_THE_ADDRESS),
    ("active", "a bucket type is activated by its verb"),
    ("claimant", "every node can change bucket types"),
];

const IN_THE_ADDRESS: &str = "it is part of the address";

macro_rules! properties {
    // Thirty properties in two structs, two directions of JSON, a merge and a check: written out, six
    // lists would have to agree for ever.
    (
        defaulted {
            $($(#[$doc:meta])* $name:ident: $kind:ty, $valid:expr, $reason:expr, $effect:expr,
                $default:expr;)*
        }
        optional {
            $($(#[$optional_doc:meta])* $optional:ident: $optional_kind:ty, $optional_valid:expr,
                $optional_reason:expr, $optional_effect:expr;)*
        }
    ) => {
        /// The effective properties of a bucket, with every layer and every default.
        #[derive(Clone, Debug, PartialEq)]
        pub struct BucketProperties {
            $($(#[$doc])* pub $name: $kind,)*
            $($(#[$optional_doc])* pub $optional: Option<$optional_kind>,)*
        }

        /// The properties set at one layer; for `None` the layers below count.
        #[derive(Clone, Debug, PartialEq, Default)]
        pub struct PropertyOverlay {
            $($(#[$doc])* pub $name: Option<$kind>,)*
            $($(#[$optional_doc])* pub $optional: Option<$optional_kind>,)*
        }

        impl BucketProperties {
            fn bare_defaults() -> Self {
                Self { $($name: $default,)* $($optional: None,)* }
            }

            /// These properties with the values that the overlay sets.
            #[must_use]
            pub fn with(&self, overlay: &PropertyOverlay) -> Self {
                Self {
                    $($name: overlay.$name.as_ref().unwrap_or(&self.$name).clone(),)*
                    $($optional: overlay.$optional.as_ref().or(self.$optional.as_ref()).cloned(),)*
                }
                .completed()
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

            /// All properties that can be set, each with its effect.
            pub const EFFECTS: &[(&str, Effect)] = &[
                $((stringify!($name), $effect),)*
                $((stringify!($optional), $optional_effect),)*
            ];

            /// Reads an object of properties. Reports every value of a wrong kind or out of range
            /// and every unknown name; skips `name`, `active` and the like.
            pub fn from_json(object: &Map<String, Value>) -> Result<Self, PropertyErrors> {
                let mut overlay = Self::default();
                let mut errors = PropertyErrors::default();
                for (name, value) in object {
                    match name.as_str() {
                        $(stringify!($name) => match PropertyValue::from_json(value) {
                            Some(value) => overlay.$name = Some(value),
                            None => errors.push(name, $reason.with_value(value)),
                        },)*
                        $(stringify!($optional) => match PropertyValue::from_json(value) {
                            Some(value) => overlay.$optional = Some(value),
                            None => errors.push(name, $optional_reason.with_value(value)),
                        },)*
                        read_only if READ_ONLY.iter().any(|(name, _)| *name == read_only) => {}
                        _ => errors.push(name, Reason::UnknownProperty),
                    }
                }
                overlay.out_of_range(&mut errors);
                errors.or_else_ok(overlay)
            }

            /// The set properties, in Riak's JSON forms.
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
                $(if let Some(value) = self.$name.as_ref().filter(|value| !$valid(value)) {
                    errors.push(stringify!($name), $reason.with_value(&value.to_json()));
                })*
                $(if let Some(value) = self.$optional.as_ref().filter(|value| !$optional_valid(value)) {
                    errors.push(stringify!($optional), $optional_reason.with_value(&value.to_json()));
                })*
            }

            /// The properties that would change `current`, each with its effect.
            pub(crate) fn changes(
                &self,
                current: &BucketProperties,
            ) -> Vec<(&'static str, Effect)> {
                let mut changes = Vec::new();
                $(if self.$name.as_ref().is_some_and(|value| *value != current.$name) {
                    changes.push((stringify!($name), $effect));
                })*
                $(if self.$optional.is_some() && self.$optional != current.$optional {
                    changes.push((stringify!($optional), $optional_effect));
                })*
                changes
            }
        }
    };
}

/// Clocks here have an entry for each replica, not for each client: there is nothing to prune.
const PRUNING: Effect = Harmless("clocks are never pruned");
const SEARCH: Effect = Harmless("there is no search");

properties! {
    defaulted {
        /// Replicas of an object.
        n_val: u32, is_positive, NotInteger, Honoured, 3;
        /// Replies that make a read succeed.
        r: Quorum, is_some_reply, NotValidQuorum, Honoured, Quorum::Quorum;
        /// Receipts that make a write succeed.
        w: Quorum, is_some_reply, NotValidQuorum, Honoured, Quorum::Quorum;
        /// Receipts after the backend's write that make a write succeed.
        dw: Quorum, every_value, NotValidQuorum, Honoured, Quorum::Quorum;
        /// Replies to a read that must come from primaries.
        pr: Quorum, every_value, NotValidQuorum, Honoured, Quorum::Number(0);
        /// Receipts of a write that must come from primaries.
        pw: Quorum, every_value, NotValidQuorum, Honoured, Quorum::Number(0);
        /// The quorum of a delete that names neither r nor w.
        rw: Quorum, is_some_reply, NotValidQuorum, Honoured, Quorum::Quorum;
        /// Distinct nodes that must have answered.
        node_confirms: Quorum, every_value, NotValidQuorum, Honoured, Quorum::Number(0);
        /// Replicas that flush before they acknowledge.
        sync_on_write: SyncOnWrite, every_value, NotValidSyncParam, Honoured, SyncOnWrite::Backend;
        /// True if a read gives up once a majority found nothing.
        basic_quorum: bool, every_value, NotBoolean, Honoured, false;
        /// True if a replica that has nothing counts to r.
        notfound_ok: bool, every_value, NotBoolean, Honoured, true;
        /// True if concurrent values are kept as siblings.
        allow_mult: bool, every_value, NotBoolean, Honoured, false;
        /// True if causality is ignored.
        last_write_wins: bool, every_value, NotBoolean, Honoured, false;
        /// True if siblings are distinguished by dots.
        dvv_enabled: bool, every_value, NotBoolean, Harmless("dots always distinguish versions"), false;
        /// Clock entries younger than this are never pruned, in seconds.
        young_vclock: u64, every_value, NotInteger, PRUNING, 20;
        /// Clock entries older than this are pruned in long clocks, in seconds.
        old_vclock: u64, is_positive_long, NotInteger, PRUNING, 86_400;
        /// Clocks of at most this many entries are never pruned.
        small_vclock: u64, is_positive_long, NotInteger, PRUNING, 50;
        /// Clocks of more entries than this are always pruned.
        big_vclock: u64, is_positive_long, NotInteger, PRUNING, 50;
        /// Hooks before a commit.
        precommit: Vec<CommitHook>, every_value, NotFunction, Guarded, Vec::new();
        /// Hooks after a commit.
        postcommit: Vec<CommitHook>, every_value, NotFunction, Guarded, Vec::new();
        /// The part of the address that decides the place on the ring.
        chash_keyfun: KeyFunction, every_value, NotSupported, Honoured, KeyFunction::Standard;
        /// The function that takes links out of objects.
        linkfun: LinkFunction, every_value, NotFunction, Guarded, LinkFunction::default();
    }
    optional {
        /// The data type of all objects.
        datatype: Datatype, every_value, OtherDatatype(String::new()), Honoured;
        /// The precision of HyperLogLogs, 4 to 16.
        hll_precision: u8, is_precision, Precision(String::new()), Honoured;
        /// True if writes are linearizable for each key.
        consistent: bool, every_value, NotBoolean, Guarded;
        /// True if objects are written once and never read before.
        write_once: bool, every_value, NotBoolean, Honoured;
        /// The name of the backend, where a node has several.
        backend: String, is_named, NotString, Guarded;
        /// The name of the kind of all objects, of those that this server has.
        object_tag: String, is_named, NotString, Guarded;
        /// The life of objects that do not set an end themselves, in seconds; 0 for ever.
        expiry_secs: u32, every_value, NotInteger, Honoured;
        /// True if objects are indexed by the old search.
        search: bool, every_value, NotBoolean, SEARCH;
        /// The name of the search index.
        search_index: String, is_named, NotString, SEARCH;
        /// Replication between clusters.
        repl: Replication, every_value, NotSupported, Harmless("there is no replication between clusters");
        /// True if the bucket has statistics of its own.
        stat_tracked: bool, every_value, NotBoolean, Honoured;
        /// True if cached anti-entropy trees leave the bucket out.
        aae_tree_exclude: bool, every_value, NotBoolean, Harmless("the replicas of every bucket are compared");
    }
}

impl BucketProperties {
    /// The properties of buckets without a type before the configured defaults are applied.
    pub fn untyped_defaults() -> Self {
        Self {
            repl: Some(Replication::On),
            write_once: Some(false),
            ..Self::bare_defaults()
        }
    }

    /// Defaults of the buckets of a created type; configured defaults do not apply to them.
    pub fn typed_defaults() -> Self {
        Self {
            allow_mult: true,
            dvv_enabled: true,
            ..Self::bare_defaults()
        }
    }

    /// Fills in properties that follow from others: a HyperLogLog has a precision.
    fn completed(mut self) -> Self {
        if self.datatype == Some(Datatype::HyperLogLog) {
            self.hll_precision.get_or_insert(HLL_PRECISION_DEFAULT);
        }
        self
    }

    /// True when concurrent values are kept until a client resolves them.
    pub fn keeps_siblings(&self) -> bool {
        // Merged values are all kept, whatever other properties state.
        let are_merged = self.datatype.is_some();
        are_merged || self.allow_mult && !self.last_write_wins && !self.is_write_once()
    }

    /// True when objects are written once: absent is false.
    pub fn is_write_once(&self) -> bool {
        self.write_once == Some(true)
    }

    /// True when writes are linearizable for each key: absent is false.
    pub fn is_consistent(&self) -> bool {
        self.consistent == Some(true)
    }

    /// True when the bucket has statistics of its own: absent is false.
    pub fn is_stat_tracked(&self) -> bool {
        self.stat_tracked == Some(true)
    }

    /// The name of the kind of objects, with its default.
    pub fn object_tag(&self) -> &str {
        self.object_tag.as_deref().unwrap_or(OBJECT_TAG_DEFAULT)
    }

    /// The lifetime of objects without a time of expiry, in seconds; none for no limit.
    pub fn expiry_secs(&self) -> Option<u32> {
        self.expiry_secs.filter(|secs| *secs > 0)
    }

    /// The validators of clients' puts, in the order in which they were set.
    pub fn validators(&self) -> impl Iterator<Item = &Validator> {
        self.precommit.iter().filter_map(|hook| match hook {
            CommitHook::Validator(validator) => Some(validator),
            CommitHook::Module(_) | CommitHook::Named(_) => None,
        })
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
