//! The tree as a whole.
