//! A node's proof of its identity: its certificate, the key, and the authorities that it accepts.

use std::sync::Arc;

use kvorum_runtime::WallTime;
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::{Error as PemError, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;

use crate::certificate::Certified;
use crate::error::{MaterialError, Part};
use crate::verifier::{AuthorityVerifier, unix_time};

/// The contents of the three files, in PEM form.
#[derive(Clone, Copy)]
pub struct Pem<'a> {
    /// The node's certificate; certificates between it and the authority's may follow.
    pub certificate: &'a [u8],
    /// Its private key.
    pub key: &'a [u8],
    /// The certificates of the accepted authorities: two while one replaces the other.
    pub authority: &'a [u8],
}

/// A certificate, its key and authorities that fit one another.
pub struct Material {
    pub(crate) certified_key: Arc<CertifiedKey>,
    pub(crate) roots: Arc<RootCertStore>,
    own: Arc<Certified>,
    authorities: Vec<Certified>,
}

impl Material {
    /// Reads the three files, and checks that they fit together and are valid now.
    ///
    /// # Errors
    /// The first error; [`MaterialError::part`] names the file.
    pub fn read(pem: Pem<'_>, now: WallTime) -> Result<Self, MaterialError> {
        let chain = certificates(pem.certificate, Part::Certificate)?;
        let authorities = certificates(pem.authority, Part::Authority)?;
        let key = PrivateKeyDer::from_pem_slice(pem.key);
        let key = key.map_err(|error| not_read(error, Part::Key))?;
        let own = chain.first().and_then(Certified::of);
        let own = own.ok_or_else(|| unreadable(Part::Certificate, "it is no certificate"))?;
        let roots = Arc::new(roots(&authorities)?);
        let certified_key = CertifiedKey::from_der(chain, key, &ring::default_provider());
        let certified_key = certified_key.map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => MaterialError::OtherKey,
            other => unreadable(Part::Key, &other.to_string()),
        })?;
        check(&certified_key.cert, &roots, now)?;
        Ok(Self {
            certified_key: Arc::new(certified_key),
            roots,
            own: Arc::new(own),
            authorities: authorities.iter().filter_map(Certified::of).collect(),
        })
    }

    /// Checks that the certificate is this node's.
    ///
    /// # Errors
    /// [`MaterialError::OtherNode`].
    pub fn check_names(&self, cluster: &str, node: &str) -> Result<(), MaterialError> {
        if self.own.speaks_for(cluster, node) {
            return Ok(());
        }
        Err(MaterialError::OtherNode {
            certified: self.own.names(),
            node: node.to_owned(),
            cluster: cluster.to_owned(),
        })
    }

    /// The fields of the certificate.
    pub fn own(&self) -> &Arc<Certified> {
        &self.own
    }

    /// The fields of the accepted authorities.
    pub fn authorities(&self) -> &[Certified] {
        &self.authorities
    }
}

/// Checks a certificate as both ends of a connection do.
fn check(
    chain: &[CertificateDer<'static>],
    roots: &Arc<RootCertStore>,
    now: WallTime,
) -> Result<(), MaterialError> {
    let (own, between) = chain.split_first().ok_or(MaterialError::Missing {
        part: Part::Certificate,
    })?;
    let now = unix_time(now);
    let as_called = AuthorityVerifier::new(roots.clone());
    let checked = as_called.check(own, between, now);
    checked.map_err(MaterialError::from_check)?;
    let as_caller = client_verifier(roots.clone())?;
    let checked = as_caller.verify_client_cert(own, between, now);
    checked.map_err(MaterialError::from_check).map(|_| ())
}

/// The verifier of callers.
pub(crate) fn client_verifier(
    roots: Arc<RootCertStore>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, MaterialError> {
    let provider = Arc::new(ring::default_provider());
    let built = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
    built.map_err(|error| unreadable(Part::Authority, &error.to_string()))
}

fn roots(authorities: &[CertificateDer<'static>]) -> Result<RootCertStore, MaterialError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        let added = roots.add(authority.clone());
        added.map_err(|error| unreadable(Part::Authority, &error.to_string()))?;
    }
    Ok(roots)
}

pub(crate) fn certificates(
    pem: &[u8],
    part: Part,
) -> Result<Vec<CertificateDer<'static>>, MaterialError> {
    let found: Result<Vec<_>, PemError> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| not_read(error, part))?;
    if found.is_empty() {
        return Err(MaterialError::Missing { part });
    }
    Ok(found)
}

fn not_read(error: PemError, part: Part) -> MaterialError {
    match error {
        PemError::NoItemsFound => MaterialError::Missing { part },
        other => unreadable(part, &other.to_string()),
    }
}

fn unreadable(part: Part, detail: &str) -> MaterialError {
    let detail = detail.to_owned();
    MaterialError::Unreadable { part, detail }
}
