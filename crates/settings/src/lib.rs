//! Configuration: every key declared once as data, riak.conf's form, and the fate of each Riak key.
//!
//! Text comes in, structures come out; this crate opens no file and reads no environment. The
//! tables under `honoured` are the only place with a key's name, type, default and help. Each
//! declaration has the function that puts its value into [`Settings`], so no declared key can be
//! without effect. For every other key of Riak 2.2 to 3.4, the tables under `riak` have our
//! corresponding key, or the reason why it is ignored. From the same tables come the errors,
//! `kvorum describe`, `kvorum chkconfig`, the sample file and the reference page.
//!
//! ```
//! let configuration = kvorum_settings::Configuration::load(
//!     "ring_size = 16\nerlang.async_threads = 64\n",
//!     &["listener.http.internal=127.0.0.1:10018"],
//! )?;
//! assert_eq!(configuration.settings.node.ring_size, 16);
//! print!("{}", configuration.report());
//! # Ok::<(), kvorum_settings::Problems>(())
//! ```

mod anchors;
mod byte_size;
mod catalogue;
mod conf_file;
mod configuration;
mod consistency;
mod describe;
mod duration;
mod erlang;
mod former_names;
mod honoured;
mod key;
mod kind;
mod line_report;
mod name;
mod problem;
mod reference;
mod report;
mod riak;
mod sample;
mod secret;
mod settings;
mod several_backends;
mod substitution;

pub use anchors::Anchors;
pub use catalogue::{Known, honoured_keys, lookup, riak_families};
pub use configuration::{Configuration, Effective, Origin};
pub use duration::Unit;
pub use key::{Ancestry, Change, Key};
pub use kind::{Choice, Kind, Refusal};
pub use line_report::{LineReport, Outcome};
pub use name::Name;
pub use problem::{Place, Problem, Problems, TermsFile};
pub use reference::reference_page;
pub use riak::{Family, Fate, RiakKey};
pub use sample::sample_file;
pub use settings::{
    BitcaskSettings, BucketDefaults, Compression, DeleteMode, Durability, DurabilityMode,
    HanoidbSettings, HttpSettings, InnostoreSettings, JobSettings, KeyFunction, LeveldbSettings,
    LeveledSettings, ListenerSettings, LogFormat, LogLevel, LogOutput, LogSettings,
    MaintenanceSettings, MemorySettings, MergePolicy, MultiSettings, NamedBackend, NodeSettings,
    ObjectLimits, ProtobufSettings, QuorumValue, RequestSettings, Settings, StorageBackend,
    SyncOnWrite, TlsMode, TlsSettings, ValueLogSettings,
};
