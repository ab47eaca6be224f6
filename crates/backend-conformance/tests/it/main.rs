//! The suite over two engines that exist for it alone: a B+tree and an LSM tree, built to show that
//! the trait fits engines unlike the shipped ones, and to have defects planted in them.

mod entry_encoding;
mod spike_btree;
mod spike_lsm;
