//! One partition: causality, per-key serialisation, and its backend.
//!
//! A vnode turns replica requests into reads and batches of its store. Decisions (which siblings
//! survive, whether a condition holds) are made by pure functions of `kvorum-object`; they are carried
//! out by one read and one batch under the key's lock. A request comes in on the thread that received
//! it and is answered there when memory suffices; otherwise the vnode returns [`Handled::WouldBlock`]
//! and is asked again on the blocking pool. No lock is held across a sync: the reply to a put carries
//! the ticket.
//!
//! Outside this crate: the engine, the peer that asks, and the number of replicas.

pub mod anatomy;
mod body_check;
mod catching_up;
mod change_observer;
mod data_type_update;
mod dot_source;
mod folding;
mod hash_trees;
#[cfg(test)]
mod hash_trees_test;
mod hidden;
mod hiding;
mod index_page;
mod index_page_request;
mod kept_trees;
mod key_fold_request;
mod key_folding;
mod key_locks;
mod lease_file;
mod lease_table;
mod limit_log;
mod metering;
mod note_files;
mod operating;
mod page;
mod page_request;
mod paged_object;
mod paging;
mod reading;
mod reaping;
mod replica_request;
mod round_state;
mod rounds;
mod scanning;
mod sealing;
mod stored_form;
mod term_pattern;
mod tree_answering;
mod tree_building;
mod tree_files;
mod tree_keeping;
mod tree_name;
mod tree_request;
mod value_facts;
mod vnode;
pub mod wire;
mod writing;

pub use body_check::BodyCheck;
pub use change_observer::{Change, ChangeObserver};
pub use data_type_update::{DataTypeUpdate, value_of_type};
pub use dot_source::DotSource;
pub use folding::{FoldRequest, fold_clock};
pub use hash_trees::TreesStatus;
pub use hiding::HiddenPage;
pub use index_page_request::{IndexPage, IndexPageRequest, IndexPosition, IndexScan};
pub use key_fold_request::{KeyFoldPart, KeyFoldRequest};
pub use lease_file::Unreadable;
pub use lease_table::{LEASES_NAME, LeaseTable};
pub use metering::{SAMPLED_EVERY, VnodeMeter, VnodeWork};
pub use note_files::{NOTES_NAME, NoteFiles, remove_notes};
pub use page::PageFailure;
pub use page_request::{CountPage, Page, PageKind, PageRequest};
pub use paged_object::PagedUpdate;
pub use reaping::{ReapPage, ReapRequest};
pub use replica_request::{
    ClientUpdate, Condition, Detail, Handled, Operation, ReplicaFailure, ReplicaReply,
    ReplicaRequest,
};
pub use rounds::AgreedList;
pub use scanning::{ScanLimits, ScanPage, ScanRequest, Scanned, StoredObject};
pub use stored_form::{TOMBSTONE_TAG, index_entries};
pub use term_pattern::{InvalidPattern, TermPattern};
pub use tree_building::BuildStep;
pub use tree_files::{KEPT_TREES_NAME, TreeFiles, remove_kept_trees};
pub use tree_name::{TreeName, TreePlacing};
pub use tree_request::{LeafKeys, SeenEntry, TreeAnswer, TreeQuestion, TreeRequest};
pub use value_facts::ValueFacts;
pub use vnode::{TombstonesKept, Vnode, VnodeSettings, VnodeStatus};
