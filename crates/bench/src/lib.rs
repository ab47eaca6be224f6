//! kvorum bench: basho_bench configurations, generators, drivers and results.

pub mod configuration;
pub mod erlang_hash;
pub mod eterm;
pub mod key_generator;
pub mod random;
pub mod value_generator;
