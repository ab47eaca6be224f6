//! Counts of checks that passed and failed, and of suites that could not be run.

use std::fmt;
use std::ops::AddAssign;

use crate::console;

/// Numbers of passed and failed checks, and of suites that could not be run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Suites whose sources are not available on this machine.
    pub(crate) not_run: usize,
}

impl Tally {
    /// The tally of one check.
    pub(crate) fn one(passed: bool) -> Tally {
        Tally {
            passed: usize::from(passed),
            failed: usize::from(!passed),
            not_run: 0,
        }
    }

    /// The tally of one suite that could not be run.
    pub(crate) fn not_run() -> Tally {
        Tally {
            not_run: 1,
            ..Tally::default()
        }
    }

    /// Counts a check and prints its result with its name.
    pub(crate) fn check(&mut self, name: &str, result: &anyhow::Result<String>) {
        match result {
            Ok(remark) if remark.is_empty() => console::line(&format!("ok      {name}")),
            Ok(remark) => console::line(&format!("ok      {name}: {remark}")),
            Err(error) => console::line(&format!("FAILED  {name}: {error:#}")),
        }
        *self += Tally::one(result.is_ok());
    }

    /// Reads a line of the form `12 passed, 3 failed`, with `, 1 not run` or other text after it.
    pub(crate) fn parse(line: &str) -> Option<Tally> {
        let (passed, rest) = line.trim().split_once(" passed, ")?;
        let (failed, rest) = rest.split_once(" failed")?;
        let not_run = rest
            .strip_prefix(", ")
            .and_then(|rest| rest.strip_suffix(" not run"));
        Some(Tally {
            passed: passed.parse().ok()?,
            failed: failed.parse().ok()?,
            not_run: not_run.map_or(Ok(0), str::parse).ok()?,
        })
    }

    /// Reads the closing line of one of cargo's test binaries.
    pub(crate) fn parse_cargo(line: &str) -> Option<Tally> {
        let counts = line.trim().strip_prefix("test result: ")?;
        let mut tally = Tally::default();
        for part in counts.split(['.', ';']) {
            match part.trim().split_once(' ') {
                Some((count, "passed")) => tally.passed = count.parse().ok()?,
                Some((count, "failed")) => tally.failed = count.parse().ok()?,
                _ => {}
            }
        }
        Some(tally)
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.not_run += other.not_run;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        match self.not_run {
            0 => Ok(()),
            not_run => write!(f, ", {not_run} not run"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_closing_line_reads_back() {
        let tally = Tally {
            passed: 12,
            failed: 3,
            not_run: 0,
        };
        assert_eq!(Tally::parse(&tally.to_string()), Some(tally));
        let with_one = Tally {
            not_run: 1,
            ..tally
        };
        assert_eq!(with_one.to_string(), "12 passed, 3 failed, 1 not run");
        assert_eq!(Tally::parse(&with_one.to_string()), Some(with_one));
        assert_eq!(Tally::parse("12 passed, 3 failed, 1 skipped"), Some(tally));
        assert_eq!(Tally::parse("some passed, 3 failed"), None);
        assert_eq!(Tally::parse("running 3 tests"), None);
    }

    #[test]
    fn cargos_closing_line_is_read() {
        let line = "test result: FAILED. 29 passed; 1 failed; 0 ignored; 0 measured; 0 filtered";
        let tally = Tally {
            passed: 29,
            failed: 1,
            not_run: 0,
        };
        assert_eq!(Tally::parse_cargo(line), Some(tally));
        assert_eq!(Tally::parse_cargo("test a::b ... ok"), None);
    }
}
