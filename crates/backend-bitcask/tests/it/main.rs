//! The engine's own tests, and the suite that every engine passes.

mod collisions;
mod conformance;
mod damage;
mod engine;
mod expiry;
mod merge_cuts;
mod merges;
mod old_places;
mod planted;
mod reads;
mod restarts;
mod store;
mod threads;
mod unread;
