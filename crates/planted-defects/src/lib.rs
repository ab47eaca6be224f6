//! Promises that the code breaks on demand, so that the searches for defects are tested too.
//!
//! There is one list for all crates, `PlantedDefect`, and one way to switch an entry on: `plant`,
//! for one thread. A simulated cluster has one thread, and a test of an engine has one, so tests
//! with different defects run side by side. The place of a defect calls [`is_planted!`] with its
//! name.
//!
//! The list is compiled with the feature `enabled` only. Without it this crate is the macro and
//! nothing else, and the macro is `false`: a program for production has neither the list nor such a
//! call.

#[cfg(feature = "enabled")]
mod planted_defect;

#[cfg(feature = "enabled")]
pub use planted_defect::{Planted, PlantedDefect, plant, planted};

/// True when one of these defects is planted on this thread: `is_planted!(PlanNotCompared)`.
#[cfg(feature = "enabled")]
#[macro_export]
macro_rules! is_planted {
    ($($defect:ident)|+) => {
        matches!($crate::planted(), Some($($crate::PlantedDefect::$defect)|+))
    };
}

/// True when one of these defects is planted on this thread: never, without the feature.
#[cfg(not(feature = "enabled"))]
#[macro_export]
macro_rules! is_planted {
    ($($defect:ident)|+) => {
        false
    };
}
