//! kvorum bench: basho_bench configurations, generators, drivers and results.

pub mod configuration;
pub mod erlang_hash;
pub mod eterm;
pub mod random;
