//! Keys of both generations of active anti-entropy.

use super::family::{Family, RiakKey, ignored};

pub(super) const FAMILY: Family = Family {
    title: "Anti-entropy",
    keys: KEYS,
};

const LEGACY: &str = "hash trees of this kind are not used; anti-entropy is not built in yet";

const TICTAC: &str = "anti-entropy is not built in yet";

const KEYS: &[RiakKey] = &[
    ignored("anti_entropy", LEGACY),
    ignored("anti_entropy.tree.build_limit.number", LEGACY),
    ignored("anti_entropy.tree.build_limit.per_timespan", LEGACY),
    ignored("anti_entropy.tree.expiry", LEGACY),
    ignored("anti_entropy.concurrency_limit", LEGACY),
    ignored("anti_entropy.trigger_interval", LEGACY),
    ignored("anti_entropy.data_dir", LEGACY),
    ignored("anti_entropy.write_buffer_size", LEGACY),
    ignored("anti_entropy.max_open_files", LEGACY),
    ignored("anti_entropy.bloomfilter", LEGACY),
    ignored("anti_entropy.throttle", LEGACY),
    ignored("anti_entropy.throttle.$tier.mailbox_size", LEGACY),
    ignored("anti_entropy.throttle.$tier.delay", LEGACY),
    ignored("anti_entropy.use_background_manager", LEGACY),
    ignored("tictacaae_active", TICTAC),
    ignored("aae_tokenbucket", TICTAC),
    ignored("legacyformat_tictacaae_tree", TICTAC),
    ignored("tictacaae_dataroot", TICTAC),
    ignored("tictacaae_parallelstore", TICTAC),
    ignored("tictacaae_rebuildwait", TICTAC),
    ignored("tictacaae_rebuilddelay", TICTAC),
    ignored("tictacaae_storeheads", TICTAC),
    ignored("tictacaae_exchangetick", TICTAC),
    ignored("tictacaae_rebuildtick", TICTAC),
    ignored("tictacaae_rebuild_blocktime", TICTAC),
    ignored("tictacaae_maxresults", TICTAC),
    ignored("tictacaae_repairloops", TICTAC),
    ignored("tictacaae_rangeboost", TICTAC),
    ignored("tictacaae_primaryonly", TICTAC),
    ignored("tictacaae_backendloglevel", TICTAC),
    ignored("tictacaae_loglevel", TICTAC),
    ignored("tictacaae_backendcompression", TICTAC),
    ignored("aae_fetchclocks_repair", TICTAC),
];
