//! One suite that every engine passes: the contract of `kvorum-backend`, shown to hold.
//!
//! An engine's crate implements [`EngineUnderTest`] in its tests and writes
//! `conformance_suite!(engine)`; each [`Group`] then is one test. Checks return a [`Violation`] and
//! do not panic, so that the suite itself can be tested: an engine with a planted defect has to be
//! detected (`expect_caught`, with the feature `planted-defects`).
//!
//! | group | trials |
//! |---|---|
//! | [`Group::Sentences`] | each sentence of the contract, shown deterministically |
//! | [`Group::Model`] | random scripts against an ordered map with history; failures are shrunk |
//! | [`Group::Crash`] | the power cut at every disk operation, several images of each, reopened |
//! | [`Group::Faults`] | the Nth disk operation fails, for every N |
//! | [`Group::Damage`] | files of a store that was closed or killed are flipped, cut, removed, put back and mixed up |
//!
//! There are also golden scripts ([`play_golden_scripts`]): text files in `scripts` that show one
//! behaviour each. The author of a new engine begins there: implement [`EngineUnderTest`], write
//! `conformance_suite!(engine)`, and make `golden_scripts_give_their_replies` pass script by
//! script. Then come the groups, [`Group::Sentences`] first.
//!
//! | script | covered parts of the trait |
//! |---|---|
//! | `backups_stand_still` | `Backups::backup` |
//! | `batches_are_whole` | `put` with several writes |
//! | `bucket_folds_pass_what_is_expired` | `Snapshot::fold_buckets`, expiry |
//! | `closed_stores_refuse` | `close` |
//! | `counts_of_entries` | `status` |
//! | `erased_entries_stay_away` | `erase` |
//! | `erasing` | `erase`, `identity`, `is_empty` |
//! | `expiry` | `ReadAt::now`, `FoldFilter::now`, `is_empty` |
//! | `expiry_is_replaced` | expiry and `maintenance_step` |
//! | `fold_bounds` | `FoldRange` |
//! | `fold_filters` | `FoldFilter` |
//! | `fold_pages` | `FoldEnd::Stopped` |
//! | `folds_in_order` | `Snapshot::fold`, `FoldDetail` |
//! | `folds_of_buckets` | `Snapshot::fold_buckets` |
//! | `heads_and_fields` | `head`, `get`, `Fields` |
//! | `index_entries_follow_their_object` | `IndexFolds::fold_index`, `IndexFolds::counts` |
//! | `index_entries_survive_a_crash` | `IndexFolds::fold_index` |
//! | `index_queries` | `IndexFolds::fold_index` |
//! | `large_values` | `put`, `get`, `maintenance_step` |
//! | `last_write_wins` | `put`, `get` |
//! | `leases_end` | `Lease`, `FoldEnd::LeaseExpired` |
//! | `promises_of_puts` | `Durability`, `sync`, `durable` |
//! | `puts_survive_the_process` | `maintenance_step`, `identity` |
//! | `removed_keys_are_absent` | `put` of removals, `is_empty` |
//! | `snapshots_stand_still` | `snapshot`, `Snapshot::sequence` |
//! | `stores_come_back` | `close`, `identity`, `durable` |
//! | `synced_puts_survive_a_crash` | `sync`, `Durability::Grouped` |
//!
//! Everything random comes from one seed, which is printed with a failure. Random scripts are
//! generated and shrunk here, not by a property-testing library: a script must stay meaningful
//! without any of its steps, and the same scripts drive the crash and fault groups.

mod crash;
mod damage;
mod disk_copy;
mod engine;
mod faults;
mod generate;
mod golden;
mod group;
mod history;
mod model;
mod model_based;
mod names;
mod observe;
#[cfg(feature = "planted-defects")]
mod planted;
mod recording;
mod script;
mod sentences;
mod shrink;
mod suite;
mod suite_macro;
mod trial;
mod violation;

pub use damage::expect_left_out_listed;
pub use engine::{DrawNumber, EngineUnderTest, Opening};
pub use golden::{GoldenRun, Replies, play_golden_scripts};
pub use group::{Effort, Group, Plan};
#[cfg(feature = "planted-defects")]
pub use planted::expect_caught;
pub use suite::run;
pub use violation::{Checked, Violation};
