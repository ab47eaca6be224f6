//! The node's commit log: one group commit for every vnode, and replay into engines after a crash.
