//! Bursts by their seeds: a bounded number in each run of a test. Each burst can be made again
//! alone.

use rand::SeedableRng as _;
use rand::rngs::StdRng;

use crate::burst::{Burst, Protocol};

/// The number of bursts of a run, and of a long run.
const BURSTS: u64 = 200;
const BURSTS_LONG: u64 = 20_000;

/// Sets the first seed.
const SEED_VARIABLE: &str = "KVORUM_TEST_SEED";

/// Requests a long run.
const LONG_VARIABLE: &str = "KVORUM_TEST_LONG";

/// A seed that is printed if the test of its burst panics.
struct Seed(u64);

impl Drop for Seed {
    #[expect(clippy::print_stderr, reason = "a failure is found again by its seed")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "the burst that failed is the first with {SEED_VARIABLE}={}",
                self.0
            );
        }
    }
}

/// Calls `test` with one burst after the other. `variable` looks up a variable of the environment.
pub fn for_each_burst(
    protocol: Protocol,
    variable: impl Fn(&str) -> Option<String>,
    test: impl Fn(Burst),
) {
    let first = variable(SEED_VARIABLE).and_then(|it| it.parse().ok());
    let first = first.unwrap_or(1_u64);
    let bursts = match variable(LONG_VARIABLE) {
        Some(_) => BURSTS_LONG,
        None => BURSTS,
    };
    for number in 0..bursts {
        let seed = Seed(first.wrapping_add(number));
        test(protocol.burst(&mut StdRng::seed_from_u64(seed.0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_burst() {
        for protocol in [Protocol::Messages, Protocol::Http] {
            let burst = || protocol.burst(&mut StdRng::seed_from_u64(7));
            assert_eq!(burst().bytes, burst().bytes);
            let other = protocol.burst(&mut StdRng::seed_from_u64(8));
            assert_ne!(burst().bytes, other.bytes);
        }
    }
}
