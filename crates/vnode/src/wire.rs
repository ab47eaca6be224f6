//! Replica requests and answers as bytes, for replicas on other machines.
//!
//! A message has a head and a body. The body is an object's values and nothing else, so that it
//! goes from the store to the socket and back without being copied; everything else about the
//! request is in the head. An object's head carries its own checksum and a hash of the body; both
//! are compared before anything is stored. The checksum of the transport's frames covers the rest.
//!
//! A message of an unknown version or with bytes left over is refused: no message is carried out in part.

mod index;
mod key_fold;
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
