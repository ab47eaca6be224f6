//! The HTTP interface: routes, resources and conditional requests.
//!
//! What Riak's clients expect of port 8098, in the generation of the interface that all of them were
//! written against: object, bucket and type URLs in their three forms, and the order in which
//! Webmachine decided about a request, since clients depend on which refusal they see. Connections
//! are hyper's; routing is our own, because a request is decided by its path's pieces as they came
//! over the wire (a key may hold an encoded slash), which general routers decode too early.
//!
//! The way of a request: [`Server`] accepts its connection, `dispatch` finds the resource and
//! checks what all resources have in common, the resource's own file does the rest. Values are handed
//! from the store to the socket without a copy. A handler that panics costs its own request a 500 and
//! nothing else.
//!
//! What this crate must not know: engines, files, and what the node records about itself ([`NodeFacts`]
//! is how it asks).

mod body;
mod compressing;
mod counter;
mod data_type;
mod dispatch;
mod exchange;
mod facts;
mod failure;
mod fold_filter;
mod index;
mod key_fold;
mod listing;
mod map_reduce;
mod name_list;
mod object;
mod opening;
mod origin;
mod preconditions;
mod preference_list;
mod properties;
mod range;
mod raw_target;
mod reply;
mod root;
mod route;
mod server;
mod settings;
mod spelling;
mod statistics;

pub use facts::{Health, NodeFacts, VnodeCounts};
pub use opening::Opening;
pub use server::Server;
pub use settings::{HttpSettings, JobSwitches};
