//! Tests of the server as a process: its behaviour for a user and an operator, and its data after a
//! kill or a power cut.

pub(crate) mod backend;
mod backup;
mod cut;
mod demo;
mod filled;
mod full;
mod history;
mod idle;
mod kill_loop;
mod lifecycle;
mod load;
pub(crate) mod mount;
mod mounted_site;
mod sync_trace;

pub(crate) use self::cut::power_cut;
pub(crate) use self::kill_loop::kill;
pub(crate) use self::lifecycle::lifecycle;
