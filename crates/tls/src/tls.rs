//! Both ends of a handshake, with certificates that can be replaced while connections are made.

use std::fmt;
use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use kvorum_runtime::{Runtime, Stream};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ServerConfig, version};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use tokio_util::either::Either;

use crate::certificate::Certified;
use crate::error::{HandshakeError, MaterialError};
use crate::material::{Material, client_verifier};
use crate::stream::SecureStream;
use crate::verifier::{AuthorityVerifier, unix_time};

/// The first bytes of every TLS connection: a handshake record of a version 3.x.
const HANDSHAKE_START: [u8; 2] = [0x16, 0x03];

/// True for the beginning of a TLS connection.
pub fn begins_handshake(start: &[u8]) -> bool {
    start.starts_with(&HANDSHAKE_START)
}

/// Makes connections on which both ends have proven their identity.
pub struct Tls {
    time: Arc<RuntimeTime>,
    current: ArcSwap<Current>,
}

/// The parameters of new connections.
struct Current {
    material: Arc<Material>,
    connector: TlsConnector,
    acceptor: TlsAcceptor,
}

impl Tls {
    /// Makes connections with this material, by the runtime's clock.
    ///
    /// # Errors
    /// The library finds something wrong that [`Material::read`] did not.
    pub fn new(runtime: Runtime, material: Material) -> Result<Self, MaterialError> {
        let time = Arc::new(RuntimeTime { runtime });
        let current = Current::new(material, &time)?;
        Ok(Self {
            time,
            current: ArcSwap::from_pointee(current),
        })
    }

    /// Makes new connections use this material. Open connections continue.
    ///
    /// # Errors
    /// Those of [`Tls::new`]; the former material remains in use.
    pub fn replace(&self, material: Material) -> Result<(), MaterialError> {
        let current = Current::new(material, &self.time)?;
        self.current.store(Arc::new(current));
        Ok(())
    }

    /// The material of new connections.
    pub fn material(&self) -> Arc<Material> {
        self.current.load().material.clone()
    }

    /// The caller's side; also returns the other end's certificate. The first byte from the other
    /// end means that this end's certificate was accepted.
    ///
    /// # Errors
    /// One end does not accept the other, or there is no TLS at the other end.
    pub async fn connect(
        &self,
        stream: Stream,
    ) -> Result<(SecureStream, Certified), HandshakeError> {
        let connector = self.current.load().connector.clone();
        // Certificates contain no addresses, and an address is not sent as a name.
        let called = ServerName::from(stream.peer_address().ip());
        let connected = connector.connect(called, stream).await;
        proven(connected.map(TlsStream::Client))
    }

    /// The callee's side, which has already read the bytes `heard`; also returns the caller's
    /// certificate.
    ///
    /// # Errors
    /// Those of [`Tls::connect`].
    pub async fn accept(
        &self,
        stream: Stream,
        mut heard: &[u8],
    ) -> Result<(SecureStream, Certified), HandshakeError> {
        let acceptor = self.current.load().acceptor.clone();
        let accepting = acceptor.accept_with(stream, |connection| {
            // A read from memory cannot fail, and a few bytes always fit.
            let _taken = connection.read_tls(&mut heard);
        });
        proven(accepting.await.map(TlsStream::Server))
    }
}

fn proven(
    shaken: io::Result<TlsStream<Stream>>,
) -> Result<(SecureStream, Certified), HandshakeError> {
    let stream = shaken.map_err(|error| {
        HandshakeError::behind(&error).unwrap_or_else(|| HandshakeError::Failed {
            detail: error.to_string(),
        })
    })?;
    let (_, connection) = stream.get_ref();
    let shown = connection.peer_certificates().and_then(<[_]>::first);
    let certified = shown.and_then(|it: &CertificateDer<'_>| Certified::of(it));
    let certified = certified.ok_or_else(|| HandshakeError::Certificate {
        reason: "it cannot be read".to_owned(),
    })?;
    Ok((Either::Right(Box::new(stream)), certified))
}

impl Current {
    fn new(material: Material, time: &Arc<RuntimeTime>) -> Result<Self, MaterialError> {
        let provider = Arc::new(ring::default_provider());
        let server = server_config(&material, provider.clone(), time.clone())?;
        let client = client_config(&material, provider, time.clone())?;
        Ok(Self {
            connector: TlsConnector::from(Arc::new(client)),
            acceptor: TlsAcceptor::from(Arc::new(server)),
            material: Arc::new(material),
        })
    }
}

fn server_config(
    material: &Material,
    provider: Arc<CryptoProvider>,
    time: Arc<RuntimeTime>,
) -> Result<ServerConfig, MaterialError> {
    let builder = ServerConfig::builder_with_details(provider, time);
    let builder = builder
        .with_protocol_versions(&[&version::TLS13])
        .map_err(|error| unusable(&error))?;
    let verifier = client_verifier(material.roots.clone())?;
    let mut config = builder
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(resolver(&material.certified_key)));
    // Connections are few and long. Each checks certificates anew, so a change takes effect.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn client_config(
    material: &Material,
    provider: Arc<CryptoProvider>,
    time: Arc<RuntimeTime>,
) -> Result<ClientConfig, MaterialError> {
    let builder = ClientConfig::builder_with_details(provider, time);
    let builder = builder
        .with_protocol_versions(&[&version::TLS13])
        .map_err(|error| unusable(&error))?;
    let mut config = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AuthorityVerifier::new(material.roots.clone())))
        .with_client_cert_resolver(Arc::new(resolver(&material.certified_key)));
    config.enable_sni = false;
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn resolver(key: &Arc<CertifiedKey>) -> SingleCertAndKey {
    SingleCertAndKey::from(key.clone())
}

fn unusable(error: &rustls::Error) -> MaterialError {
    MaterialError::Unusable {
        detail: error.to_string(),
    }
}

/// The runtime's time, for the library.
struct RuntimeTime {
    runtime: Runtime,
}

impl fmt::Debug for RuntimeTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RuntimeTime")
    }
}

impl TimeProvider for RuntimeTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(unix_time(self.runtime.wall_time()))
    }
}
