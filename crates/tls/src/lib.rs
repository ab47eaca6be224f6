//! Connections on which both ends prove their identity, and the certificates for it.
//!
//! A cluster has a certificate authority of its own ([`Authority`]), made by one command. It issues
//! a certificate for each node, with the names of the node and the cluster ([`Identity`]). Both
//! ends of a connection ask for the other's certificate ([`Tls`]). Certificates contain no
//! addresses, since those may change.
//!
//! The only version is TLS 1.3, by rustls. Certificates are checked against the time of the
//! runtime. The randomness of keys and handshakes comes from the system and not from the runtime,
//! so a repeatable simulation runs without TLS.
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
