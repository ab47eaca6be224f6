//! Replicas that find and mend their differences, and tombstones that go.
//!
//! Everything here is pure: events and times come in, effects and verdicts come out. No clock, socket,
//! thread or random number is inside.
//!
//! - [`Exchange`] compares the replicas of one preference list: the roots of their trees, the branches
//!   that differ, then keys and versions of the leaves that differ. The machine of read repair mends
//!   its findings.
//! - [`Schedule`] decides the next exchange, and keeps the times of each partition's last comparison
//!   and of its last complete one.
//! - [`Pace`] bounds the repairs a second.
//! - [`judge_tombstone`] decides whether a tombstone may go, [`standings_of`] whether a replica that
//!   was away may give its entries, by facts that all nodes agree on.
//!
//! Objects and stores are outside this crate: a version is a number that differs where clocks or bytes
//! differ.

mod differences;
mod entry_summary;
mod exchange;
mod exchange_event;
mod outcome;
mod pace;
mod range_hint;
mod receiver;
mod schedule;
mod watermark;

#[cfg(test)]
mod exchange_keys_test;
#[cfg(test)]
mod exchange_model_test;
#[cfg(test)]
mod exchange_test;
#[cfg(test)]
mod schedule_simulation_test;
#[cfg(test)]
mod schedule_test;
#[cfg(test)]
mod simulation_test;
#[cfg(test)]
mod test_world;
#[cfg(test)]
mod watermark_test;

pub use entry_summary::EntrySummary;
pub use exchange::{Exchange, ExchangeLimits, ExchangeRequest};
pub use exchange_event::{BranchesAnswer, ExchangeEffect, ExchangeEvent, KeysAnswer, RootAnswer};
pub use outcome::{EndedBy, Outcome};
pub use pace::Pace;
pub use range_hint::RangeHint;
pub use receiver::{AtSources, Fate, ReplicaClaim, Standing, fate_of, standings_of};
pub use schedule::{Order, Schedule, ScheduleSettings, Target, TargetReport};
pub use watermark::{
    Completed, DeleteMode, Incarnation, KeptBecause, LocalMark, PresentFacts, StoredTombstone,
    Verdict, judge_tombstone,
};
