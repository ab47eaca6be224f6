//! The admin interface of a running node: verbs over a Unix socket, and their views.
//!
//! A node fills [`Parts`] and serves an [`AdminServer`]; the command line sends it an [`AdminRequest`].
//! Views are pure: they turn the results of verbs into texts, in Kvorum's words and in Riak's.

mod aae_view;
mod backend_moves;
mod bucket_defaults;
mod bucket_keys;
mod bucket_place;
mod bucket_type_view;
mod cluster;
mod folds;
mod framed_table;
mod health_view;
mod host_address;
mod move_scope;
mod readiness;
mod request;
mod server;
mod status_view;
mod tls_view;
mod tombstones_view;
mod vnode_view;

pub use framed_table::framed;
pub use health_view::for_clients;
pub use host_address::ip_of;
pub use move_scope::MoveScope;
pub use readiness::announce;
pub use request::{AdminReply, AdminRequest, LINE_BYTES_MAX};
pub use server::{AdminServer, Parts, stop_this_process};
