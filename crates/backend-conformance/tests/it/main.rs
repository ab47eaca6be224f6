//! The suite over two engines that exist only for it: a B+tree and an LSM tree, built to show that
//! the trait fits engines unlike the shipped ones, and to plant defects in them.

mod entry_encoding;
mod spike_btree;
mod spike_lsm;
