//! Requests that a server has to survive: valid ones of every kind, damaged ones, and some that are too large.
//!
//! A fuzzer that starts from random bytes meets the first check of a decoder and little behind it. Here requests are
//! drawn whole, each with fields that go on to handlers, and are then damaged in a few places. Everything comes from
//! one source of random numbers, so that a seed is a test case.
//!
//! This crate must not depend on servers, or on connections.

mod damage;
mod messages;
mod requests;
mod seeds;

pub use seeds::for_each_burst;

use rand::RngExt;
use rand::rngs::StdRng;

/// The bucket types that requests are for, with their properties as JSON.
pub const BUCKET_TYPES: &[(&str, &str)] = &[
    ("plain", r#"{"allow_mult":true}"#),
    ("changing", r#"{"allow_mult":true}"#),
    ("counters", r#"{"datatype":"counter"}"#),
    ("sets", r#"{"datatype":"set"}"#),
    ("gsets", r#"{"datatype":"gset"}"#),
    ("maps", r#"{"datatype":"map"}"#),
    ("hlls", r#"{"datatype":"hll"}"#),
    ("once", r#"{"write_once":true}"#),
];

/// The most requests of a burst.
const REQUESTS_MAX: usize = 40;

/// A protocol of clients.
#[derive(Clone, Copy, Debug)]
pub enum Protocol {
    /// Protocol buffers.
    Messages,
    /// HTTP.
    Http,
}

/// The bytes of some requests that are sent behind each other.
#[derive(Clone, Debug)]
pub struct Burst {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The number of requests, damaged ones among them.
    pub requests: u64,
}

impl Protocol {
    /// Draws some requests. One burst in four has nothing but damaged ones; one in 200 ends with one that is larger
    /// than a server takes.
    pub fn burst(self, random: &mut StdRng) -> Burst {
        let (draw, oversized): (Draw, Draw) = match self {
            Self::Messages => (messages::draw, messages::oversized),
            Self::Http => (requests::draw, requests::oversized),
        };
        let all_damaged = random.random_ratio(1, 4);
        let (mut bytes, mut requests) = (Vec::new(), 0);
        for _ in 0..random.random_range(1..=REQUESTS_MAX) {
            let mut request = draw(random);
            if all_damaged || random.random_ratio(1, 8) {
                damage::damage(&mut request, random);
            }
            bytes.extend(request);
            requests += 1;
        }
        if random.random_ratio(1, 200) {
            bytes.extend(oversized(random));
            requests += 1;
        }
        Burst { bytes, requests }
    }
}

/// Draws one request.
type Draw = fn(&mut StdRng) -> Vec<u8>;
