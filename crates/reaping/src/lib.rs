//! The conditions under which tombstones go, and the entries that a replica from before may show.
//!
//! Everything here is pure: events come in, effects and verdicts come out. No clock, socket, thread
//! or random number is inside.
//!
//! - [`Round`] is led by the node that compares a preference list. It goes from one fact to the
//!   next until nothing older than the tombstones can come, and raises the list's [`Watermark`] in
//!   [`AgreedRounds`].
//! - [`Keeper`] is a replica's side: its [`Note`], the tombstones that it may remove, and the
//!   entries that are hidden because they are from before the watermark.
//! - [`HintsNote`] is the side of a store of hints.
//! - [`encode_notes`] and [`decode_notes`] are the file of a vnode's notes.
//!
//! The crate depends on neither objects nor stores. `docs/decisions/0037-tombstones-go.md` has the
//! rule, and the result of each case.

mod agreed_rounds;
mod delete_mode;
mod extent;
mod hints_note;
mod keeper;
mod keeper_event;
mod kept_because;
mod note;
mod notes_file;
mod round;
mod round_event;
mod watermark;

#[cfg(test)]
mod keeper_test;
#[cfg(test)]
mod model;
#[cfg(test)]
mod notes_file_test;
#[cfg(test)]
mod round_test;

pub use agreed_rounds::{AgreedRounds, Refused};
pub use delete_mode::DeleteMode;
pub use extent::{BatchName, Extent};
pub use hints_note::HintsNote;
pub use keeper::{Keeper, KeeperStart};
pub use keeper_event::{KeeperAnswer, KeeperEffect, KeeperEvent};
pub use kept_because::KeptBecause;
pub use note::{Mark, Note, Receiving};
pub use notes_file::{
    HAS_MARK, HIDES, ListName, NOTES_MAGIC, NotesFileError, RECEIVES, VnodeNotes, decode_notes,
    encode_notes,
};
pub use round::{Round, RoundRequest};
pub use round_event::{Asked, ReplicaAnswer, RoundEffect, RoundEvent, RoundOutcome};
pub use watermark::{Incarnation, RoundName, Watermark};
