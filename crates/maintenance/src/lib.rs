//! Background work of a node: the thread that carries out the arbiter's decisions, the memory that
//! can be reduced, the record of steps for requests and operators, and the machine's limits for the
//! process.
//!
//! A node fills [`Parts`]. Its log is a [`MaintainedLog`] here, so that this crate does not depend
//! on the assembly of a node.

mod counted;
mod driver;
mod full_disk;
mod log;
pub mod machine;
mod memory;
mod step_log;
mod stop_signal;
mod transfer_budget;
mod unwritable;
mod view;

pub use counted::counted;
pub use driver::{Maintenance, Parts, budgets, disk_room, room_for_requests, step_name};
pub use log::MaintainedLog;
pub use memory::GivingWay;
pub use step_log::StepLog;
pub use stop_signal::StopSignal;
pub use transfer_budget::TransferBudget;
pub use unwritable::{Failures, Unwritable};
pub use view::bytes as bytes_text;
