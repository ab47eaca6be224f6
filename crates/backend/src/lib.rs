//! The backend trait: the interface of a vnode to its store.
//!
//! Seven engines implement this trait, and the one of a vnode is known at run time only: an
//! operator chooses it in a file, and `multi` mixes several in one node. Hence `Box<dyn Backend>`
//! and no generics. The trait is a small core that every engine has, plus facets that some have
//! ([`Backend::indexes`], [`Backend::backups`], [`Backend::journal_folds`]); a facet is queried,
//! not tried, and no method fails with "unsupported".
//!
//! # Vocabulary
//!
//! A stored *entry* has a key, a [`Sequence`], [`Fields`] that folds filter by, a *head* (clock,
//! metadata, sizes) and a *body*. Engines parse neither head nor body. A *batch* is the unit of
//! atomicity, a *snapshot* the unit of consistent reading, a *sync ticket* the promise that a batch
//! will be durable.
//!
//! # Contract
//!
//! Each sentence has a test in `backend-conformance` that fails when an engine breaks it.
//!
//! Order
//! 1. Batches of one store are ordered by the sequence that [`Backend::put`] returns; a later batch
//!    has a higher sequence, and the last write to a key wins.
//! 2. A fold visits each key at most once, in ascending byte order, and between its bounds only.
//!
//! Atomicity
//! 3. After a crash a batch is there whole, index entries included, or not at all.
//! 4. A reader never sees part of a batch.
//!
//! Durability
//! 5. A put that returned [`Durable::Already`] for [`Durability::Grouped`], or whose ticket resolved,
//!    survives a power cut.
//! 6. [`Backend::sync`] returns a sequence; every batch up to it survives a power cut.
//! 7. Right after opening, [`Backend::durable`] names the highest sequence up to which no accepted
//!    batch is missing.
//! 8. After a crash nothing appears that was never put, and no removed key returns.
//! 9. After a failed sync no later put is acknowledged as durable.
//!
//! Reading
//! 10. A get after a put returned sees that put or a later one.
//! 11. With [`Reading::CachedOnly`] a call never waits for a device; it answers
//!     [`Lookup::WouldBlock`] instead, and may do so for any reason. A put with such an
//!     [`OldEntry`] is refused with [`ErrorKind::WouldBlock`] rather than wait for the entry that
//!     it replaces.
//! 12. [`Backend::head`] agrees with [`Backend::get`] in all but the body.
//! 13. An entry whose expiry is at or before `now` is absent, for gets, heads and folds alike.
//! 14. A snapshot sees all puts before it was taken, and nothing later, until its lease ends; a
//!     fold over an expired lease, or one that ends meanwhile, stops with its resume point and
//!     never returns wrong data.
//!
//! Damage
//! 15. Every byte read is covered by a checksum. A damaged entry is an error of kind
//!     [`ErrorKind::Corrupt`], never other bytes; its neighbours are served.
//! 16. A full disk refuses puts with [`ErrorKind::Full`]; reads go on, and puts resume when there
//!     is room again. With a reserve, removals go on as well ([`Batch::purpose`]), and upkeep has
//!     room for its copies.
//!
//! Upkeep
//! 17. An engine starts no threads and reads no clock. Its upkeep is a list of tasks, each done in
//!     steps of at most the budget given (one entry may overshoot it), and any interleaving of steps
//!     with puts, gets and folds leaves answers unchanged.
//! 18. [`Backend::erase`] leaves the store empty and usable, and frees its space at once.
//!
//! Backups
//! 19. A copy made by [`Backups::backup`] opens as a store with every batch that was put before the
//!     call; of entries put meanwhile it has the earliest. Nothing that the store does later
//!     changes it.
//!
//! Indexes
//! 20. [`IndexFolds::counts`] counts the index entries that puts and removals have added and
//!     deleted, each once.
//!
//! Journals
//! 21. [`JournalFolds::fold_in_journal_order`] visits the same entries as a fold, each key once,
//!     despite overwrites, removals and collections.

mod backend;
mod batch;
mod belonging;
mod copy_form;
mod day_hours;
mod entry;
mod error;
mod facets;
mod group_sync;
mod intake;
mod lasting_failures;
mod lost_directory;
mod maintenance;
mod moves;
mod read_once;
mod replays;
mod scrub;
mod snapshot;
mod status;
mod suspect;
mod sync_ticket;
mod two_copies;
mod unreadable;
mod unsynced;

pub use backend::Backend;
pub use batch::{Batch, IndexEntry, Purpose, Write};
pub use belonging::{Belonging, FoundStore, HINTS_LABEL, LABEL_BYTES_MAX};
pub use copy_form::{
    begin_copy, dissect_copy, end_copy, newer_format, open_copy, put_label, take_label,
};
pub use day_hours::DayHours;
pub use entry::{
    EntryPlace, Fields, Lookup, OldEntry, ReadAt, Reading, Sequence, StoreId, StoredEntry,
    StoredHead, Tag, Timestamp,
};
pub use error::{BackendError, ErrorKind, Result};
pub use facets::{
    BackedUp, Backups, Capabilities, IndexCounts, IndexFolds, IndexRange, IndexVisitor,
    JournalFoldEnd, JournalFolded, JournalFolds, StoreBackup,
};
pub use group_sync::GroupSync;
pub use intake::Intake;
pub use lasting_failures::LastingFailures;
pub use lost_directory::{
    LOST_INDEX_BYTES_MAX, LOST_NAME, LostDirectory, is_news, lost_index_piece,
};
pub use maintenance::{StepBudget, StepOutcome, Task, TaskKind, Urgency};
pub use moves::{MoveEstimate, MoveStatus, Moves, PinnedTo};
pub use read_once::ReadOnce;
pub use replays::{Replayed, Replays};
pub use scrub::{SCRUB_NAME, ScrubFile, Scrubbing};
pub use snapshot::{
    Flow, FoldClock, FoldDetail, FoldEnd, FoldFilter, FoldRange, KEYS_PER_LOOK, Lease, LeaseWatch,
    Snapshot, Visited, Visitor,
};
pub use status::{LostRange, Status};
pub use suspect::{SUSPECT_NAME, mark_suspect};
pub use sync_ticket::{Durability, Durable, Receipt, SyncPoint, SyncTicket};
pub use two_copies::{
    ChosenCopy, ForeignCopy, ReadCopy, StoreCopy, Written, choose_copy, set_copy_aside,
    settle_two_copies, write_two_copies,
};
pub use unreadable::Unreadable;
pub use unsynced::{SyncStrategy, Unsynced};
