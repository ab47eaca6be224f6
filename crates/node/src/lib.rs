//! Settings, wiring and lifecycle; the one binary.
