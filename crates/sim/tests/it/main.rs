//! Seeds run twice go the same way, and find nothing.

mod seeds;
