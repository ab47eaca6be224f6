//! The bitcask engine: append-only segments and an in-memory key directory.
