//! The pages of `kvorum bench`: one run, several side by side, and a matrix of tests and backends.
//!
//! The tool reads result directories and writes HTML that needs no network.
//!
//! - [`result`]: a result directory, read; [`figures`]: single numbers about a run.
//! - [`draw`]: scales, ticks, units and the SVG of a chart.
//! - [`page`]: the documents.

pub mod draw;
pub mod figures;
mod files;
pub mod matrix_text;
pub mod page;
pub mod result;
mod run_report;

pub use files::write_atomically;
pub use run_report::{REPORT, write_page, write_report};
