//! Keys of default bucket properties that Kvorum cannot honour.

use super::family::{Family, Fate, RiakKey};

pub(super) const FAMILY: Family = Family {
    title: "Default bucket properties",
    keys: KEYS,
};

const HOOKS: &str = "commit hooks are Erlang or JavaScript functions, which Kvorum cannot run";

const fn hooks(name: &'static str) -> RiakKey {
    RiakKey {
        name,
        fate: Fate::Guarded(HOOKS),
        default: None,
    }
}

const KEYS: &[RiakKey] = &[
    hooks("buckets.default.precommit"),
    hooks("buckets.default.postcommit"),
];
