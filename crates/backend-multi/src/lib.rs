//! The `multi` backend: a store made of several stores, its *children*, each of an engine of its own.
//!
//! A bucket is in one child. A [`RouteTable`] selects it by the bucket or its type; it comes
//! through [`Routes`], since this crate does not know the agreed properties of buckets. No
//! operation goes to more children than necessary: a put, a get and a query of one bucket go to its
//! child, and folds over several buckets are merged in the order of keys.
//!
//! # The children and the whole
//!
//! Each child is a store of its own: its directory lies in this store's directory under the child's
//! name, its batches are counted on their own, and it is a tenant of the node's value log under its
//! own identity. The *card* makes them one store ([`known_children`]): two small files with the
//! identity of the whole, and the names, engines and identities of the children. A child that is
//! missing, or another store in its place, is detected when the store is opened.
//!
//! The contract of `kvorum-backend` holds with these restrictions:
//!
//! - Sequences order the batches of one child. [`Backend::durable`](kvorum_backend::Backend::durable) and
//!   [`Backend::sync`](kvorum_backend::Backend::sync) return the sum over all children, which is the same at
//!   the end of a run and at the beginning of the next one, and less if a child has lost batches.
//! - A batch has keys of one child: nothing makes two stores change together. One of several is refused.
//! - A backup has the first batches of each child.
//! - Children without persistence lose their entries in a stop. This counts as one lost batch, so
//!   that nothing that depends on a store without losses (the dots of a vnode) outlives it.
//!
//! # Data in another child than its route
//!
//! Routes change with the agreed properties and with the configuration of a node. Earlier entries
//! stay in their places, and must not be hidden by that. So each read that finds nothing in the
//! child of the route tries the others, and a write takes its key out of them. To avoid that cost,
//! a *survey* lists the buckets with data outside of their route; it is a task of upkeep, repeated
//! when the routes change. Once it is over, only those few buckets pay for it. A move of a bucket
//! from child to child is the same state, with a copying task.

pub mod anatomy;
mod card;
mod carry;
mod child;
mod index_merge;
mod key_merge;
mod move_record;
mod mover;
mod multi;
mod opening;
mod pin;
mod placement;
mod routes;
mod snapshot;
mod status_sum;
mod survey;
mod tickets;
mod upkeep;
mod walk;

pub use card::{KnownChild, find_store, is_store, known_children, make_store_of};
pub use carry::IndexEntriesOf;
pub use child::{Child, ChildNumber};
pub use multi::MultiBackend;
pub use opening::DrawNumber;
pub use routes::{FixedRoutes, RouteTable, Routes};
