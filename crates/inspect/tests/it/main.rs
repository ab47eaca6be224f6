//! Files are written by the code that writes them, looked into, and damaged byte by byte.

mod leveldb;
mod logs;
mod store;
mod value_log;
