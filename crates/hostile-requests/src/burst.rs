//! A burst of requests that a client sends one after the other, drawn for one protocol.

use rand::RngExt;
use rand::rngs::StdRng;

use crate::{damage, messages, requests};

/// The bucket types in requests, with their properties as JSON.
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

/// The bytes of requests that are sent one after the other.
#[derive(Clone, Debug)]
pub struct Burst {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The number of requests, including damaged ones.
    pub requests: u64,
}

impl Protocol {
    /// Draws some requests. One burst in four has only damaged requests; one in 200 ends with a
    /// request that is too large for a server.
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
