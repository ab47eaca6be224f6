//! Requests that a server has to survive: valid ones of every kind, damaged ones, and some that are too large.
//!
//! A fuzzer that starts from random bytes tests the first check of a decoder and little behind it.
//! Here complete requests are drawn, with fields that reach the handlers, and then damaged in a few
//! places. All draws come from one source of random numbers, so a seed is a test case.
//!
//! This crate must not depend on servers, or on connections.

mod burst;
mod damage;
mod messages;
mod requests;
mod seeds;

pub use burst::{BUCKET_TYPES, Burst, Protocol};
pub use seeds::for_each_burst;
