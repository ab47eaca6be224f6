//! kvorum bench: basho_bench configurations, generators, drivers and results.

pub mod eterm;
