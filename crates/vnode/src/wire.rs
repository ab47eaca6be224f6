//! Replica requests and answers as bytes, for replicas on other machines.
//!
//! A message has a head and a body. The body is an object's values and nothing else, so that it goes
//! from the store to the socket and back without being copied; everything else about the request is in
//! the head. Objects carry their own checksums through the wire: the head its own, and a hash of the
//! body, which are compared before anything is stored. The rest is covered by the checksum of the
//! transport's frames.
//!
//! A message of an unknown version is refused, and so is one with bytes left over: a message that is
//! not understood is not half done.

mod index;
mod message;
mod reply;
mod request;
mod tree;

pub use message::{WireError, WireMessage};
pub use reply::{decode_reply, encode_reply};
pub use request::{PeerRequest, decode_request, encode_request};

#[cfg(test)]
#[path = "wire_test.rs"]
mod tests;
