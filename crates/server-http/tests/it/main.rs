//! The HTTP interface over simulated sockets and memory backends, asked by a raw client.

mod client;
mod conditions;
mod connections;
mod hostile;
mod listings;
mod objects;
mod properties;
mod refusals;
mod resources;
mod siblings;
mod world;
