//! Seeds run twice go the same way, and what they find is nothing.

mod seeds;
