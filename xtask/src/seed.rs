//! The seed of a test run: fresh each time, printed, and replayable.

use std::env;

use anyhow::Context;

/// The variable that passes a seed to the tests, and with which a user sets it.
pub(crate) const SEED_VARIABLE: &str = "KVORUM_TEST_SEED";

/// The seed from the environment, or else a fresh seed.
pub(crate) fn choose() -> anyhow::Result<u64> {
    match env::var(SEED_VARIABLE) {
        Ok(text) => parse(&text),
        Err(_) => Ok(rand::random()),
    }
}

fn parse(text: &str) -> anyhow::Result<u64> {
    text.trim()
        .parse()
        .with_context(|| format!("{SEED_VARIABLE} is {text:?}, not a number below 2^64"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_number() {
        assert_eq!(parse("17\n").unwrap(), 17);
        assert!(parse("seventeen").is_err());
    }
}
