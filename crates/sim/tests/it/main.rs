//! Two runs of a seed are equal, and find no violation.

mod seeds;
