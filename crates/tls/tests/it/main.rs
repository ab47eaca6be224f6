//! Certificates and handshakes: pairs that fit, and all kinds that do not.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot make its input should fail"
)]

mod handshakes;
mod materials;

use std::time::Duration;

use kvorum_runtime::WallTime;
use kvorum_tls::{Authority, Identity, Issued, Material, MaterialError, Pem, Validity};

/// The start time of simulations.
const START: WallTime = WallTime::from_seconds(1_767_225_600);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn for_days(days: u32) -> Validity {
    Validity {
        made: START,
        lasts: DAY * days,
    }
}

fn authority() -> Authority {
    Authority::make("orders", for_days(3650)).unwrap()
}

fn identity(node: &str) -> Identity {
    Identity {
        cluster: "orders".into(),
        node: node.into(),
    }
}

fn issued(authority: &Authority, node: &str, days: u32) -> Issued {
    authority.issue(&[identity(node)], for_days(days)).unwrap()
}

fn read_at(authority: &Authority, own: &Issued, now: WallTime) -> Result<Material, MaterialError> {
    let pem = Pem {
        certificate: own.certificate.as_bytes(),
        key: own.key.as_bytes(),
        authority: authority.issued().certificate.as_bytes(),
    };
    Material::read(pem, now)
}

fn material(authority: &Authority, node: &str) -> Material {
    read_at(authority, &issued(authority, node, 700), START).unwrap()
}
