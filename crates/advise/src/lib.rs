//! Advice from declared figures and rules: how much memory and disk data takes, and which backend
//! suits it.
//!
//! The figures are in two tables: `engines.toml` has the cost of an object in each engine, with the
//! source of each figure; `rules.toml` has the published guidance, each rule with its source and with
//! the state of affairs here. The code applies them and names no engine. It does no I/O; the caller
//! does.

mod advice;
mod bench_result;
mod capacity;
mod engines;
mod error;
mod facts;
mod guide;
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
pub use guide::guide_page;
pub use mix::{Mix, mix};
pub use node_stats::facts_of_stats;
pub use rules::{Condition, Rule, RuleTable, Verdict};
