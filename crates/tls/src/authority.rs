//! A cluster's own certificate authority, which issues a certificate for each node.

use std::time::Duration;

use kvorum_runtime::WallTime;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use time::OffsetDateTime;

use crate::certificate::{Certified, day_of};
use crate::error::{AuthorityError, MaterialError, Part};
use crate::identity::Identity;
use crate::material::certificates;

/// Validity of an authority made here: ten years.
pub const AUTHORITY_VALIDITY: Duration = Duration::from_secs(3650 * DAY_SECONDS);

/// A day.
pub const DAY_SECONDS: u64 = 24 * 60 * 60;

/// Certificates are valid from two days before they are made, for nodes whose clocks are behind.
const BACKDATED: Duration = Duration::from_secs(2 * DAY_SECONDS);

/// The time at which a certificate is made, and the duration of its validity.
#[derive(Clone, Copy, Debug)]
pub struct Validity {
    /// The present time.
    pub made: WallTime,
    /// The duration of the validity, from `made` on.
    pub lasts: Duration,
}

/// A certificate and its key, in PEM form.
#[derive(Clone)]
pub struct Issued {
    /// The certificate, which is public.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

/// An authority with its key.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    issued: Issued,
    not_after: WallTime,
}

impl Authority {
    /// Makes an authority for a cluster, with a key from the system's randomness.
    ///
    /// # Errors
    /// The library refuses, or the validity is too long.
    pub fn make(cluster: &str, validity: Validity) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate()?;
        let mut parameters = parameters(&format!("Kvorum cluster {cluster}"), validity)?;
        // The nodes' certificates are issued by it directly.
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = parameters.self_signed(&key)?;
        let issued = Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        };
        Ok(Self {
            issuer: Issuer::new(parameters, key),
            issued,
            not_after: validity.made.plus(validity.lasts),
        })
    }

    /// Reads an authority from the contents of its files.
    ///
    /// # Errors
    /// The contents are not an authority and its key.
    pub fn read(certificate: &str, key: &str) -> Result<Self, AuthorityError> {
        let unusable = |part, detail: String| {
            AuthorityError::Unusable(MaterialError::Unreadable { part, detail })
        };
        let pair = KeyPair::from_pem(key);
        let pair = pair.map_err(|error| unusable(Part::Key, error.to_string()))?;
        let ours = certificates(certificate.as_bytes(), Part::Authority);
        let ours = ours.map_err(AuthorityError::Unusable)?;
        let first = ours.first().filter(|it| has_key(it, &pair));
        let certified = first.and_then(Certified::of);
        let certified = certified.ok_or(AuthorityError::Unusable(MaterialError::OtherKey))?;
        let issuer = Issuer::from_ca_cert_pem(certificate, pair);
        let issuer = issuer.map_err(|error| unusable(Part::Authority, error.to_string()))?;
        Ok(Self {
            issuer,
            issued: Issued {
                certificate: certificate.to_owned(),
                key: key.to_owned(),
            },
            not_after: certified.not_after,
        })
    }

    /// The end of its validity. No certificate that it issues ends later.
    pub fn not_after(&self) -> WallTime {
        self.not_after
    }

    /// Its own certificate and key.
    pub fn issued(&self) -> &Issued {
        &self.issued
    }

    /// Issues a certificate with a new key for a node. Several identities are names of one node,
    /// the present one first. The certificate ends with the authority at the latest, since
    /// verifiers check only the certificate's time.
    ///
    /// # Errors
    /// The library refuses, the validity is too long, or the authority is past its end.
    pub fn issue(
        &self,
        identities: &[Identity],
        validity: Validity,
    ) -> Result<Issued, AuthorityError> {
        let name = identities.first().map_or("", |identity| &identity.node);
        let left = self.not_after.since(validity.made);
        if left.is_zero() {
            let day = day_of(self.not_after);
            return Err(AuthorityError::Ended { day });
        }
        let lasts = validity.lasts.min(left);
        let mut parameters = parameters(name, Validity { lasts, ..validity })?;
        for identity in identities {
            let uri = identity.to_uri().try_into()?;
            parameters.subject_alt_names.push(SanType::URI(uri));
        }
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        parameters.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer)?;
        Ok(Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn has_key(certificate: &[u8], key: &KeyPair) -> bool {
    use x509_parser::prelude::{FromDer as _, X509Certificate};
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return false;
    };
    *parsed.public_key().subject_public_key.data == *key.public_key_raw()
}

fn parameters(name: &str, validity: Validity) -> Result<CertificateParams, AuthorityError> {
    let mut parameters = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    parameters.distinguished_name = subject;
    let begins = validity.made.seconds().saturating_sub(BACKDATED.as_secs());
    let ends = validity.made.plus(validity.lasts).seconds();
    parameters.not_before = date_time(begins)?;
    parameters.not_after = date_time(ends)?;
    Ok(parameters)
}

fn date_time(seconds: u64) -> Result<OffsetDateTime, AuthorityError> {
    let seconds = i64::try_from(seconds).map_err(|_| AuthorityError::TooLong)?;
    OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| AuthorityError::TooLong)
}
