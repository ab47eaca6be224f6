//! The node-wide arbiter of background work: which step next, of whom, how large, and when.
//!
//! Engines cut their upkeep into small steps and decide neither when nor how fast. This crate
//! decides it, for all stores of a node at once, as a pure state machine: events and the time come
//! in, decisions come out. No clock, lock, thread or random number is inside, so that whole days on
//! modelled devices pass in a test within seconds.
//!
//! # What is done first
//!
//! Urgency comes before kind: what presses, then what is normal, then what can wait. Among equally
//! urgent work, what keeps writers going comes first (flushes, the youngest level, reclaimed space),
//! then merges and compactions, then expiry, then checkpoints and hints, then scrubs. Among stores
//! that owe work of the same rank, the one served least goes next, by bytes. The value log owes for what
//! all of them were put, and comes before them, but for a quarter. And of every sixteen
//! bytes one is for whoever has waited longest behind that rank: nobody starves.
//!
//! # How large
//!
//! A step is to last about [`Budgets::step_time`]. Its budget in bytes follows from what steps of the
//! same kind have shown they do in that time.
//!
//! # How fast
//!
//! What the debt *needs* always runs: the bytes that come in times the background work that such
//! bytes have been seen to cause, plus a share of the debt there is, so that an error in the measured
//! factor ends in a bounded debt and not in a growing one. A fixed floor cannot do that. The log's part
//! is learned within half a minute and paid within seconds: it is what the disk holds too much. What is
//! done beyond the need depends on foreground requests: while they are as fast as they are without
//! it, or while there are none, upkeep goes up to its ceilings, and it falls back to the need
//! within a second or two when they suffer. What presses is held back by the I/O ceiling alone.
//!
//! # Transfers between nodes
//!
//! They are no store's debt: whoever carries them out asks [`Arbiter::transfer`] before each page. They
//! share the I/O ceiling with steps, take the same part of what is free, and go on at a small pace of
//! their own while requests suffer.
//!
//! # Syncs
//!
//! Stores that are to be synced are synced together in rounds, which the driver may spread over two
//! threads; the device then has as long to itself as a round took. The value log syncs its stores by its
//! own steps, one after the other; only one that presses has all of them synced in rounds, each once
//! between two of its steps.
//!
//! # When it is not enough
//!
//! [`put_delay`] turns the distance to the bound of the debt into a small delay of each put: nothing
//! up to half of the bound, then more and more. Writers are slowed like by a spring, never stopped:
//! only a budget of memory or of open files that is used up has puts refused ([`Arbiter::refuses_puts`]),
//! after caches and write buffers gave way ([`MemoryOrders`]).

mod account;
mod arbiter;
mod average;
mod backoff;
mod budgets;
mod event;
mod foreground;
mod memory;
mod merges;
mod order;
mod pace;
mod rank;
mod report;
mod selection;
mod slowdown;
mod speed;

pub use arbiter::Arbiter;
pub use budgets::Budgets;
pub use event::{DiskRoom, Ended, Event, Looked, StepResult, Told};
pub use foreground::{COUNT_MIN as LATENCY_COUNT_MIN, Latency, LatencyReading, latency_between};
pub use memory::{MemoryOrders, SharedMemory};
pub use order::{Decision, Order, Owner};
pub use report::{OwedTask, Report, Steps};
pub use slowdown::put_delay;
