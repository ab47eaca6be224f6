//! The move of buckets from one backend of a store to another, while the store serves: only the decisions.
//!
//! A [`Migration`] returns the next order ([`Migration::order`]), and takes its result
//! ([`Migration::step`]). It has no disk, no clock and no threads: the caller carries its orders
//! out on the two stores, and keeps the [`Record`] from which a later run continues.
//!
//! # Requirements on the caller
//!
//! - The route of all keys of the scope is the target since before the first order, and entries
//!   that the target lacks are read from the source. A write removes its key from the source after
//!   the target has it; a removal does so before. Neither leaves an older version beside a newer
//!   one when it is interrupted. A store of several backends meets this anyway.
//! - No write comes between the reading of an entry and the action on it in the same part of an
//!   order.
//! - The record is written after each part, before the next order is carried out. Parts that are
//!   repeated, because the record was lost, are harmless.
//!
//! # Phases
//!
//! ```text
//! Room --> Copy --> Verify --> Remove --> ended: moved
//!   |        ^         |          |
//!   |        +---------+----------+   what differs, or was left, is copied again
//!   +--> ended: no room
//! ```
//!
//! Nothing is removed from the source before all of its entries have been found in the target, by
//! count and by digest. A cancelled move is the same move in the other direction: entries written
//! meanwhile are in the target, and have to move back.

mod machine;
mod progress;
mod record;

pub use machine::{
    CancelError, End, Event, Migration, Order, Part, Phase, Plan, Tally, room_needed,
};
pub use progress::Progress;
pub use record::{RECORD_MAGIC, Record};
