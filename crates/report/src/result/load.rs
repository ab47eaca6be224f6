//! Comparison of runs' loads: only figures of runs with the same load have ratios.

use super::{Description, RunResult};

/// Lengths of runs that differ by less than this share are equal.
const LENGTH_WITHIN: f64 = 0.1;

/// Keys of a configuration that concern the server's address or the results, not the load.
const NOT_THE_LOAD: [&str; 8] = [
    "report_interval",
    "test_dir",
    "log_level",
    "code_paths",
    "source_dir",
    "stats",
    "embedded_dir",
    // Instead, the measured length is compared.
    "duration",
];

impl RunResult {
    /// The differences between this run's load and another's, in a few words; empty if none is
    /// known.
    pub fn load_differences(&self, other: &Self) -> Vec<String> {
        let (Some(mine), Some(theirs)) = (&self.description, &other.description) else {
            return Vec::new();
        };
        let mut differences = configuration_differences(mine, theirs);
        let mut differ = |is_different: bool, what: &str| {
            if is_different && !differences.iter().any(|it| it == what) {
                differences.push(what.to_owned());
            }
        };
        differ(mine.workers != theirs.workers, "concurrent");
        differ(mine.mode != theirs.mode || mine.rate != theirs.rate, "rate");
        differ(mine.scale != theirs.scale, "scale");
        let length = |run: &Description| run.duration_seconds.unwrap_or(0.0);
        let (short, long) = (
            length(mine).min(length(theirs)),
            length(mine).max(length(theirs)),
        );
        differ(long - short > LENGTH_WITHIN * long, "duration");
        differences
    }
}

fn configuration_differences(mine: &Description, theirs: &Description) -> Vec<String> {
    let is_place = |key: &str| key.ends_with("_ips") || key.ends_with("_port");
    let counts = |key: &str| !NOT_THE_LOAD.contains(&key) && !is_place(key);
    let keys = mine.configuration.keys().chain(theirs.configuration.keys());
    let mut different: Vec<String> = keys
        .filter(|key| counts(key))
        .filter(|key| mine.configuration.get(*key) != theirs.configuration.get(*key))
        .cloned()
        .collect();
    different.sort();
    different.dedup();
    different
}
