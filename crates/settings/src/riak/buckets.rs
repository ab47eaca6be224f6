//! Keys of default bucket properties that Kvorum cannot honour.

use super::{Family, ignored};

pub(super) const FAMILY: Family = Family {
    title: "Default bucket properties",
    keys: KEYS,
};

const HOOKS: &str = "commit hooks are Erlang or JavaScript functions, which Kvorum cannot run";

const KEYS: &[super::RiakKey] = &[
    ignored("buckets.default.precommit", HOOKS),
    ignored("buckets.default.postcommit", HOOKS),
];
