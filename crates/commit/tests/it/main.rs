//! The commit log with engines that lose what was not synced, under power cuts, faults and threads.

mod bitcask;
mod crash;
mod engine;
mod failures;
mod faults;
mod history_engine;
mod log;
mod node;
mod power_cuts;
mod recovery;
mod suite;
mod threads;
mod writers;
