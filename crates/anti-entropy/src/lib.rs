//! Finding and mending differences between replicas.
//!
//! Everything here is pure: events and times are inputs, effects and verdicts are outputs. Nothing
//! uses clocks, sockets, threads or random numbers.
//!
//! - [`Exchange`] compares the replicas of one preference list: the roots of their trees, the branches
//!   that differ, then keys and versions of the leaves that differ. The machine of read repair mends
//!   its findings.
//! - [`Schedule`] decides the next exchange, and keeps the times of each preference list's last and
//!   last complete exchange.
//! - [`Pace`] bounds the repairs a second.
//!
//! Objects and stores are outside this crate: a version is a number that differs if clocks or bytes
//! differ.

mod differences;
mod entry_summary;
mod exchange;
mod exchange_event;
mod outcome;
mod pace;
mod range_hint;
mod schedule;

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

pub use entry_summary::EntrySummary;
pub use exchange::{Exchange, ExchangeLimits, ExchangeRequest};
pub use exchange_event::{BranchesAnswer, ExchangeEffect, ExchangeEvent, KeysAnswer, RootAnswer};
pub use outcome::{Compared, EndedBy, Outcome};
pub use pace::Pace;
pub use range_hint::RangeHint;
pub use schedule::{Order, Schedule, ScheduleSettings, Target, TargetReport};
