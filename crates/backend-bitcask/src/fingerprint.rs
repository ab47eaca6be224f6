//! Fingerprints: hashes of keys for lookups. They use a secret of the store, so that clients cannot
//! choose colliding keys.

use siphasher::sip::SipHasher13;

/// Makes fingerprints of keys.
#[derive(Clone, Copy)]
pub(crate) struct Fingerprints {
    secret: (u64, u64),
    replaced: Option<fn(&[u8]) -> u64>,
}

impl Fingerprints {
    pub(crate) fn new(secret: (u64, u64), replaced: Option<fn(&[u8]) -> u64>) -> Self {
        Self { secret, replaced }
    }

    pub(crate) fn of(&self, key: &[u8]) -> u64 {
        match self.replaced {
            Some(replaced) => replaced(key),
            None => self.keyed(key),
        }
    }

    /// A second hash of a key. With the fingerprint, it represents the key in comparisons of many
    /// keys: reading them from disk would take hours.
    pub(crate) fn check_of(&self, key: &[u8]) -> u64 {
        let (k0, k1) = self.secret;
        SipHasher13::new_with_keys(!k1, k0).hash(key)
    }

    /// A number that differs for each store and each `number`.
    pub(crate) fn mixed(&self, number: u64) -> u64 {
        self.keyed(&number.to_le_bytes())
    }

    fn keyed(&self, key: &[u8]) -> u64 {
        let (k0, k1) = self.secret;
        SipHasher13::new_with_keys(k0, k1).hash(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_depend_on_the_secret() {
        let (a, b) = (
            Fingerprints::new((1, 2), None),
            Fingerprints::new((1, 3), None),
        );
        assert_ne!(a.of(b"key"), b.of(b"key"));
        assert_ne!(a.of(b"key"), a.check_of(b"key"));
    }
}
