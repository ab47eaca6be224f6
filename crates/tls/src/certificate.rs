//! The fields of a certificate that nodes use.

use kvorum_runtime::WallTime;
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};
use x509_parser::time::ASN1Time;

use crate::identity::Identity;

/// A time as its day, such as 2028-11-21.
pub fn day_of(time: WallTime) -> String {
    let seconds = i64::try_from(time.seconds()).unwrap_or(i64::MAX);
    let time = OffsetDateTime::from_unix_timestamp(seconds);
    time.map_or_else(|_| "never".to_owned(), |time| time.date().to_string())
}

/// The contents of a certificate. Only the verifier checks its validity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certified {
    /// Its identities. The certificate of a node that is renamed has both names.
    pub identities: Vec<Identity>,
    /// The start of its validity.
    pub not_before: WallTime,
    /// The end of its validity.
    pub not_after: WallTime,
    /// Its number, in hexadecimal.
    pub serial: String,
}

impl Certified {
    /// Reads a certificate; `None` for other bytes.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let names = parsed.subject_alternative_name().ok()?;
        let names = names.map(|extension| &extension.value.general_names);
        let uris = names.into_iter().flatten().filter_map(|name| match name {
            GeneralName::URI(uri) => Identity::from_uri(uri),
            _ => None,
        });
        Some(Self {
            identities: uris.collect(),
            not_before: wall_time(parsed.validity().not_before),
            not_after: wall_time(parsed.validity().not_after),
            serial: parsed.raw_serial_as_string(),
        })
    }

    /// True for a certificate of this node in this cluster.
    pub fn speaks_for(&self, cluster: &str, node: &str) -> bool {
        self.identities
            .iter()
            .any(|identity| identity.cluster == cluster && identity.node == node)
    }

    /// True for a certificate of some node in this cluster.
    pub fn is_of(&self, cluster: &str) -> bool {
        self.identities
            .iter()
            .any(|identity| identity.cluster == cluster)
    }

    /// Its identities as text.
    pub fn names(&self) -> String {
        if self.identities.is_empty() {
            return "no node of any cluster".to_owned();
        }
        let names: Vec<String> = self.identities.iter().map(Identity::to_string).collect();
        names.join(" and ")
    }
}

fn wall_time(time: ASN1Time) -> WallTime {
    // A time before 1970 counts as 1970.
    WallTime::from_seconds(u64::try_from(time.timestamp()).unwrap_or(0))
}
