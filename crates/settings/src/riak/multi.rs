//! Keys of several backends on one node.
//!
//! `multi_backend.NAME.` may stand before every key of a backend; that rule is in `catalogue`,
//! and only the two keys that are not of that form are listed here.

use super::family::{Family, RiakKey, ignored};

pub(super) const FAMILY: Family = Family {
    title: "Several backends on one node",
    keys: KEYS,
};

/// Why all of them are ignored.
pub(crate) const MULTI: &str = "the multi backend is not built in yet";

/// The first word of names under which every key of a backend may stand.
pub(crate) const MULTI_PREFIX: &str = "multi_backend";

const KEYS: &[RiakKey] = &[
    ignored("multi_backend.default", MULTI),
    ignored("multi_backend.$name.storage_backend", MULTI),
];
