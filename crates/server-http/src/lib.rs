//! The HTTP interface: routes, resources and conditional requests.
//!
//! The interface at Riak's port 8098, in the generation that all of its clients were written against:
//! object, bucket and type URLs in their three forms, and Webmachine's order of decisions about a
//! request, since clients depend on which refusal they see. Connections are hyper's; routing is our
//! own, because a request is decided by its path's pieces as they came over the wire (a key may hold an
//! encoded slash), which general routers decode too early.
//!
//! The way of a request: [`Server`] accepts its connection, `dispatch` finds the resource and makes the
//! checks that all resources have in common, the resource's own file does the rest. Values are handed
//! from the store to the socket without a copy. A handler that panics costs its own request a 500 and
//! nothing else.
//!
//! Outside this crate: engines, files, and the records of the node about itself, which come through
//! [`NodeFacts`].

mod body;
mod compressing;
mod counter;
mod data_type;
mod dispatch;
mod exchange;
mod facts;
mod failure;
mod index;
mod listing;
mod map_reduce;
mod name_list;
mod object;
mod openapi;
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
