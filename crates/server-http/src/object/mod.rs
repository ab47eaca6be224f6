//! Objects: reading, storing and deleting them, and walking along their links.

mod content;
mod context;
mod delete;
mod expiry;
mod get;
mod link_walk;
mod parameters;
mod representation;
mod store;

pub(crate) use delete::delete;
pub(crate) use get::get;
pub(crate) use link_walk::walk;
pub(crate) use parameters::Parameters;
pub(crate) use store::store;
