//! Keys of several backends on one node. The keys of each backend are `multi_backend.NAME.` and a
//! key of its engine: see `catalogue`.

use crate::key::Key;
use crate::kind::Kind;

use super::node::ENGINES;

pub(super) const KEYS: &[Key] = &[Key::new(
    "multi_backend.default",
    Kind::Word(|settings, value| settings.multi.default = value),
    None,
    "With `storage_backend = multi` and `prefix_multi`: the name of the backend of all buckets \
     for which neither their own property `backend` nor that of their type names one; not set, \
     the first by name. Each backend is declared by `multi_backend.NAME.storage_backend`, which \
     takes the name of an engine. Any key of that engine may follow as `multi_backend.NAME.KEY`; \
     a key that is not set there has the value of the node.",
)];

/// `storage_backend` of one of several backends, which cannot be `multi` or `prefix_multi` itself.
pub(crate) const ENGINE: Key = Key::new(
    "storage_backend",
    Kind::Choice(&ENGINES),
    None,
    "Declares the backend, by the engine that has its data. \
     Without it, the other keys of the backend are refused on a node of several.",
);
