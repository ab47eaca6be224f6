//! Damage to requests, as by a broken client or an attacker: any bytes may be wrong, missing or
//! added.

use rand::RngExt;
use rand::rngs::StdRng;

/// The most bytes that one change adds.
const ADDED_BYTES_MAX: usize = 64;

/// Numbers at the edges of limits and lengths.
const EDGES: [u32; 6] = [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xffff_ffff];

/// Damages a request in one place, with a probability of one half in another, and so on.
pub(crate) fn damage(request: &mut Vec<u8>, random: &mut StdRng) {
    loop {
        damage_once(request, random);
        if random.random_ratio(1, 2) {
            return;
        }
    }
}

fn damage_once(request: &mut Vec<u8>, random: &mut StdRng) {
    if request.is_empty() {
        return;
    }
    let at = random.random_range(0..request.len());
    match random.random_range(0..6) {
        0 => request[at] = random.random(),
        1 => request[at] ^= 1 << random.random_range(0..8),
        2 => request.truncate(at),
        3 => put_edge(&mut request[at..], random),
        4 => {
            let noise = (0..random.random_range(1..=ADDED_BYTES_MAX)).map(|_| random.random());
            let noise: Vec<u8> = noise.collect();
            request.splice(at..at, noise);
        }
        _ => {
            let end = request.len().min(at + ADDED_BYTES_MAX);
            let again = request[at..end].to_vec();
            request.splice(at..at, again);
        }
    }
}

/// Puts a number of four bytes at the beginning.
fn put_edge(place: &mut [u8], random: &mut StdRng) {
    let edge = EDGES[random.random_range(0..EDGES.len())].to_be_bytes();
    let common = place.len().min(edge.len());
    place[..common].copy_from_slice(&edge[..common]);
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn damage_changes_most_requests_and_lengthens_none_much() {
        let mut random = StdRng::seed_from_u64(1);
        let (whole, mut changed) = (b"GET /ping HTTP/1.1\r\n\r\n".to_vec(), 0);
        for _ in 0..1000 {
            let mut request = whole.clone();
            damage_once(&mut request, &mut random);
            changed += usize::from(request != whole);
            assert!(request.len() <= whole.len() + ADDED_BYTES_MAX);
        }
        assert!(changed > 900, "{changed} of 1000");
        damage(&mut Vec::new(), &mut random);
    }
}
