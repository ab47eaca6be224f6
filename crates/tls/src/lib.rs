//! Connections on which both ends prove their identity, and the certificates for it.
//!
//! A cluster has a certificate authority of its own ([`Authority`]), made by one command. Each node has
//! a certificate of it with the names of its node and its cluster ([`Identity`]); both ends of a
//! connection ask for the other's ([`Tls`]). Addresses are in no certificate: they may change.
//!
//! TLS 1.3 alone, by rustls. Certificates are checked against the time of the runtime. Randomness of keys and
//! handshakes is the one thing that does not come from there: the library takes it from the system, so a
//! repeatable simulation runs without TLS.
//!
//! Outside this crate: files, messages, the list of members.

mod authority;
mod certificate;
mod error;
mod identity;
mod material;
mod stream;
mod tls;
mod verifier;

pub use authority::{AUTHORITY_VALIDITY, Authority, DAY_SECONDS, Issued, Validity};
pub use certificate::{Certified, day_of};
pub use error::{AuthorityError, HandshakeError, MaterialError, Part};
pub use identity::Identity;
pub use material::{Material, Pem};
pub use stream::{
    SecureReadHalf, SecureStream, SecureWriteHalf, in_the_clear, into_split, is_encrypted,
};
pub use tls::{Tls, begins_handshake};
