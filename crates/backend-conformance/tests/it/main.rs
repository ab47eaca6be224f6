//! The suite over two engines that exist for it alone: a B+tree and an LSM tree, built to see whether
//! the trait fits engines unlike the ones that ship, and to have something for defects to be planted
//! in.

mod entry_encoding;
mod spike_btree;
mod spike_lsm;
