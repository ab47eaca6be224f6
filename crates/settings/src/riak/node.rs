//! Keys of the node itself.

use super::family::{Family, RiakKey, ignored};

pub(super) const FAMILY: Family = Family {
    title: "Node",
    keys: KEYS,
};

const PLACE: &str = "Kvorum looks for nothing there; the value serves where another path names it";

const KEYS: &[RiakKey] = &[
    ignored(
        "distributed_cookie",
        "nodes do not know each other by a shared cookie",
    ),
    RiakKey {
        default: Some("./bin"),
        ..ignored("platform_bin_dir", PLACE)
    },
    RiakKey {
        default: Some("./etc"),
        ..ignored("platform_etc_dir", PLACE)
    },
    RiakKey {
        default: Some("./lib"),
        ..ignored("platform_lib_dir", PLACE)
    },
    ignored(
        "object.format",
        "objects have one binary form, chosen by Kvorum",
    ),
    ignored(
        "metadata.format",
        "metadata has one binary form, chosen by Kvorum",
    ),
    ignored(
        "metadata_cache_size",
        "heads are read from the backend's own key directory, which is in memory",
    ),
    ignored("cs_version", "Riak CS is not supported"),
];
