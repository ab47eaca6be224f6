//! Defects that the code has on demand, to test the searches for defects.
//!
//! All crates share one list, `PlantedDefect`, and one way to switch an entry on: `plant`, for one
//! thread. A simulated cluster or a test of an engine has one thread, so tests with different
//! defects run side by side. The code with a defect calls [`is_planted!`] with its name.
//!
//! The list is compiled only with the feature `enabled`. Without it this crate only has the macro,
//! which is `false`: programs for production contain neither the list nor such a call.

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

/// True when one of these defects is planted on this thread, which never happens without the
/// feature.
#[cfg(not(feature = "enabled"))]
#[macro_export]
macro_rules! is_planted {
    ($($defect:ident)|+) => {
        false
    };
}
