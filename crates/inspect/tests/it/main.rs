//! Files are written by the code of their crates, inspected, and damaged byte by byte.

mod foreign_copies;
mod innostore;
mod leveldb;
mod leveled;
mod log_hints;
mod logs;
mod store;
mod value_log;
