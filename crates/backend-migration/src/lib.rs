//! The move of buckets from one backend of a store to another, while the store serves: the decisions alone.
//!
//! A [`Migration`] says what is to be done next ([`Migration::order`]), and is told what came of it
//! ([`Migration::step`]). It has no disk, no clock and no threads: who carries its orders out reads and writes
//! the two stores, and keeps the [`Record`] that a later run goes on by.
//!
//! # What has to hold outside
//!
//! - The route of all keys of the scope is the target from before the first order on, and the source is looked
//!   into for what the target lacks. A write takes its key out of the source after it is in the target, a
//!   removal before, and neither leaves an older version beside a newer one when it is cut short. This is how a
//!   store of several backends serves anyway.
//! - No write comes between the reading of an entry and what is done with it in the same part of an order.
//! - The record is written when a part is done, before the next order is carried out. Parts that are done twice,
//!   since the record of the first time was lost, do no harm.
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
//! Nothing of the source goes before all that is left of it has been found in the target, by count and by
//! digest. A cancelled move is the same move in the other direction: what was written meanwhile is in the target,
//! and has to come back.

mod machine;
mod progress;
mod record;

pub use machine::{
    CancelError, End, Event, Migration, Order, Part, Phase, Plan, Tally, room_needed,
};
pub use progress::Progress;
pub use record::{RECORD_MAGIC, Record};
