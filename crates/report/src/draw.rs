//! Charts: their content, the mapping of values to places, and the SVG.
//!
//! Everything here is a function of its arguments, so that the content of a chart can be tested without
//! a browser.

mod chart;
mod labels;
mod scale;
mod scale_kind;
mod svg;
mod thinning;
mod ticks;
mod unit;

pub use chart::{Band, Chart, Column, Ink, Line};
pub use scale::Scale;
pub use scale_kind::ScaleKind;
pub use svg::{Frame, draw};
pub use unit::{Unit, digits};
pub(crate) use unit::{counted, grouped, times};
