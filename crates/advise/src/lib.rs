//! Advice from declared figures and rules: how much memory and disk data takes, and which backend
//! suits it.
//!
//! What is known stands in two tables, `engines.toml` (what an object costs in each engine, with the
//! source of each figure) and `rules.toml` (the published guidance, each rule with its source and
//! what is so here). The code applies them and knows nothing of any engine. It reads no files and
//! asks nobody; that is for the caller.

mod advice;
mod bench_result;
mod capacity;
mod engines;
mod error;
mod facts;
mod mix;
mod node_stats;
mod render;
mod rules;

pub use advice::{Advice, JudgedEngine, Reason, advise};
pub use bench_result::BenchResult;
pub use capacity::{CapacityAnswer, CapacityQuestion, RiakComparison, capacity};
pub use engines::{Costs, Engine, EngineTable, Figure, NodeFigures, ObjectFigures, RiakFigures};
pub use error::AdviseError;
pub use facts::{FactDeclaration, Facts, Kind, Known, Value, parse_value};
pub use mix::{Mix, mix};
pub use node_stats::facts_of_stats;
pub use rules::{Condition, Rule, RuleTable, Verdict};
