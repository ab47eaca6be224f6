//! What a disk promises, tried on each disk that promises it.

mod crash;
mod promises;
