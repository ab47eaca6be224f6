//! The node-wide arbiter of background work: the owner, size and time of each step.
//!
//! Engines cut their upkeep into small steps and decide neither when nor how fast. This crate
//! decides it, for all stores of a node at once, as a pure state machine: events and the time come
//! in, decisions come out. No clock, lock, thread or random number is inside, so that whole days on
//! modelled devices pass in a test within seconds.
//!
//! # Order
//!
//! Urgency comes before kind: pressing work, then normal work, then work that can wait. Within an
//! urgency, work that writers need comes first (flushes, the youngest level, reclaimed space), then
//! merges and compactions, then expiry, then checkpoints and hints, then scrubs. Among stores with
//! a backlog of the same rank, the one served least, by bytes, goes next. The value log's backlog
//! comes from the puts to all stores, so it goes before theirs, but leaves them a quarter of the
//! bytes. One of every sixteen bytes is for the owner that has waited longest in a later rank, so
//! that none starves.
//!
//! # Size
//!
//! A step should last about [`Budgets::step_time`]. Its budget in bytes follows from the measured
//! speed of steps of the same kind.
//!
//! # Speed
//!
//! The *need* of the backlog always runs: the incoming bytes times the measured background work that
//! they cause, plus a share of the present backlog. So an error in the measured factor leads to a
//! bounded backlog; a fixed floor could not ensure that. The log's part is measured over half a
//! minute and done within seconds, since it is excess data on the disk. Work beyond the need
//! depends on foreground requests: while upkeep does not slow them, or while there are none, upkeep
//! goes up to its ceilings. It falls back to the need within a second or two when requests are
//! slowed. Only the I/O ceiling limits pressing work.
//!
//! # Transfers between nodes
//!
//! They are not a store's backlog: the caller that does one calls [`Arbiter::transfer`] before each page.
//! They share the I/O ceiling with steps, take the same part of the free capacity, and continue at
//! a small pace of their own while requests are slowed.
//!
//! # Syncs
//!
//! Stores with a sync due are synced together in rounds, which the driver may spread over two
//! threads. After a round, the device rests for as long as the round took. The value log syncs its
//! stores by its own steps, one after the other. Only a pressing log syncs all of them in rounds,
//! each once between two of its steps.
//!
//! # Overload
//!
//! [`put_delay`] turns the distance to the bound of the backlog into a small delay of each put:
//! nothing up to half of the bound, then more and more. Writers are slowed as by a spring, never
//! stopped: puts are refused ([`Arbiter::refuses_puts`]) only when a budget of memory or of open
//! files is used up, after caches and write buffers were reduced ([`MemoryOrders`]).

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
pub use event::{Answer, DiskRoom, Ended, Event, Looked, StepResult};
pub use foreground::{COUNT_MIN as LATENCY_COUNT_MIN, Latency, LatencyReading, latency_between};
pub use memory::{MemoryOrders, SharedMemory};
pub use order::{Decision, Order, Owner};
pub use report::{DueTask, Report, Steps};
pub use slowdown::put_delay;
