//! The segmented append-only log that engines and the commit log are built on.
