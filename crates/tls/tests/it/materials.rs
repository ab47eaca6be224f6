//! The three files of a node: checks that they fit, and errors that name the wrong file.

use kvorum_runtime::WallTime;
use kvorum_tls::{Authority, Material, MaterialError, Part, Pem, Validity};
use proptest::prelude::*;

use super::{DAY, START, authority, for_days, identity, issued, read_at};

fn refused(pem: Pem<'_>) -> MaterialError {
    Material::read(pem, START).map(|_| ()).unwrap_err()
}

#[test]
fn a_certificate_speaks_for_the_nodes_that_it_was_issued_for() {
    let authority = authority();
    let both = [identity("new@host"), identity("old@host")];
    let own = authority.issue(&both, for_days(30)).unwrap();
    let material = read_at(&authority, &own, START).unwrap();
    assert_eq!(material.own().identities, both);
    assert_eq!(material.own().not_after, START.plus(DAY * 30));
    for node in ["new@host", "old@host"] {
        assert_eq!(material.check_names("orders", node), Ok(()));
    }
    for (cluster, node) in [("orders", "other@host"), ("test", "new@host")] {
        let other = material.check_names(cluster, node).unwrap_err();
        assert!(matches!(other, MaterialError::OtherNode { .. }), "{other}");
        assert_eq!(other.part(), Part::Certificate);
    }
}

#[test]
fn an_authority_goes_on_from_its_files() {
    let made = authority();
    let files = made.issued().clone();
    let again = Authority::read(&files.certificate, &files.key).unwrap();
    let own = issued(&again, "a@host", 30);
    assert!(read_at(&made, &own, START).is_ok());
    let other = authority();
    assert!(Authority::read(&files.certificate, &other.issued().key).is_err());
    assert!(Authority::read(&files.key, &files.certificate).is_err());
}

#[test]
fn what_does_not_fit_is_named() {
    let (ours, other) = (authority(), authority());
    let own = issued(&ours, "a@host", 30);
    let foreign = issued(&other, "a@host", 30);
    let fitting = Pem {
        certificate: own.certificate.as_bytes(),
        key: own.key.as_bytes(),
        authority: ours.issued().certificate.as_bytes(),
    };
    assert!(Material::read(fitting, START).is_ok());
    let key = foreign.key.as_bytes();
    assert_eq!(refused(Pem { key, ..fitting }), MaterialError::OtherKey);
    let authority = other.issued().certificate.as_bytes();
    assert_eq!(
        refused(Pem {
            authority,
            ..fitting
        }),
        MaterialError::OtherAuthority
    );
    for (pem, part) in [
        (
            Pem {
                certificate: b"",
                ..fitting
            },
            Part::Certificate,
        ),
        (
            Pem {
                key: fitting.certificate,
                ..fitting
            },
            Part::Key,
        ),
        (
            Pem {
                authority: b"\n",
                ..fitting
            },
            Part::Authority,
        ),
    ] {
        assert_eq!(refused(pem), MaterialError::Missing { part });
    }
}

#[test]
fn time_is_looked_at() {
    let authority = authority();
    let own = issued(&authority, "a@host", 30);
    let at = |now| read_at(&authority, &own, now).map(|_| ());
    assert_eq!(at(START.plus(DAY * 29)), Ok(()));
    assert_eq!(at(START.plus(DAY * 31)), Err(MaterialError::Expired));
    let early = WallTime::from_seconds(START.seconds() - 3 * 24 * 60 * 60);
    assert_eq!(at(early), Err(MaterialError::NotYetValid));
}

#[test]
fn a_certificate_outlives_no_authority() {
    let authority = Authority::make("orders", for_days(10)).unwrap();
    let own = issued(&authority, "a@host", 30);
    let files = authority.issued();
    let again = Authority::read(&files.certificate, &files.key).unwrap();
    assert_eq!(again.not_after(), authority.not_after());
    let now = START.plus(DAY * 11);
    let outlived = read_at(&authority, &own, now).map(|_| ());
    assert_eq!(outlived, Err(MaterialError::Expired));
    let made = Validity {
        made: now,
        lasts: DAY,
    };
    let late = authority.issue(&[identity("a@host")], made);
    assert!(
        late.map(|_| ())
            .unwrap_err()
            .to_string()
            .contains("2026-01-11")
    );
}

#[test]
fn an_authority_is_no_node() {
    let authority = authority();
    let itself = authority.issued().clone();
    let read = read_at(&authority, &itself, START).map(|_| ()).unwrap_err();
    assert!(matches!(read, MaterialError::Unusable { .. }), "{read}");
}

#[test]
fn a_validity_beyond_all_years_is_refused() {
    let lasts = DAY * 365 * 9_000;
    let validity = Validity { made: START, lasts };
    assert!(Authority::make("orders", validity).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_refused_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..300), at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let authority = authority();
        let own = issued(&authority, "a@host", 30);
        let read = |certificate: &[u8]| {
            let pem = Pem {
                certificate,
                key: own.key.as_bytes(),
                authority: authority.issued().certificate.as_bytes(),
            };
            Material::read(pem, START).map(|read| read.own().identities.clone())
        };
        prop_assert!(read(&bytes).is_err());
        let mut flipped = own.certificate.clone().into_bytes();
        let at = at.index(flipped.len());
        flipped[at] ^= 1 << bit;
        // A flip in a line break or label may leave the file readable; names never change.
        if let Ok(identities) = read(&flipped) {
            prop_assert_eq!(identities, [identity("a@host")]);
        }
    }
}
