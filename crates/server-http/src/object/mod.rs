//! Objects: reading, storing and deleting them.

mod content;
mod context;
mod delete;
mod expiry;
mod get;
mod parameters;
mod representation;
mod store;

pub(crate) use delete::delete;
pub(crate) use get::get;
pub(crate) use parameters::Parameters;
pub(crate) use store::store;
