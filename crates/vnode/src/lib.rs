//! One partition: causality, per-key serialisation, and its backend.
