//! Entity tags: the short text by which HTTP and PB clients distinguish versions.
//!
//! A sibling's tag (Riak's vtag) is derived from its dot, which already names the write; storing it as
//! well would cost 23 bytes an object and could disagree. An object of several siblings is tagged by
//! its clock. Hashing keeps actors and counters out of clients' view.

use std::fmt;

use xxhash_rust::xxh3::xxh3_128;

use crate::base62::fraction_digits;
use crate::{Clock, Dot};

/// Base-62 digits that distinguish all values of 64 bits, and of both halves of 128 bits.
const HALF_LEN: usize = 11;
const ETAG_LEN: usize = 2 * HALF_LEN;
/// Keeps the tag of a dot apart from the tag of a clock with only this dot: clocks are hashed as
/// multiples of 16 bytes. A seed does not suffice: it is merely combined with short inputs.
const DOT_MARK: u8 = b'.';

/// An entity tag: 22 base-62 digits, without quotes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Etag([u8; ETAG_LEN]);

impl Etag {
    /// The tag of the version that `dot` wrote.
    pub fn of_dot(dot: Dot) -> Self {
        let mut bytes = [DOT_MARK; 17];
        bytes[..8].copy_from_slice(&dot.actor.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&dot.counter.to_le_bytes());
        Self::of_hash(xxh3_128(&bytes))
    }

    /// The tag of an object of several siblings.
    pub fn of_clock(clock: &Clock) -> Self {
        Self::of_hash(clock.fingerprint())
    }

    /// The digits.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The digits as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    fn of_hash(hash: u128) -> Self {
        let mut digits = [0; ETAG_LEN];
        let (halves, _) = digits.as_chunks_mut::<HALF_LEN>();
        for (half, bytes) in halves.iter_mut().zip(hash.to_be_bytes().as_chunks::<8>().0) {
            *half = fraction_digits(u64::from_be_bytes(*bytes));
        }
        Self(digits)
    }
}

impl fmt::Display for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Etag({self})")
    }
}
