//! One look at the server: from /proc if it runs here, from its `/metrics` for the rest.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::http_text;
use super::targets::ProbeTargets;
use crate::process::ProcessUsage;

/// Resources that the server has used so far; `None` if no source has the figure.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ServerSample {
    /// CPU time of all threads, user and kernel.
    pub cpu: Option<Duration>,
    /// Resident memory.
    pub resident_bytes: Option<u64>,
    /// Bytes of all files of the stores.
    pub disk_bytes: Option<u64>,
    /// Bytes that came from a disk.
    pub read_bytes: Option<u64>,
    /// Bytes that went or will go to a disk.
    pub written_bytes: Option<u64>,
    /// Payload bytes that the stores received: `written_bytes` divided by this is the write
    /// amplification.
    pub put_bytes: Option<u64>,
}

impl ProbeTargets {
    /// Reads all sources once; may block for a few seconds.
    pub(super) fn sample(&self) -> ServerSample {
        let usages: Option<Vec<ProcessUsage>> = self
            .processes
            .iter()
            .map(|process| ProcessUsage::of(*process))
            .collect();
        let usages = usages.filter(|usages| !usages.is_empty());
        let metrics: Option<Vec<BTreeMap<String, f64>>> = self
            .http
            .iter()
            .map(|address| Some(parse(&http_text::get(address, "/metrics").ok()?)))
            .collect();
        let metrics = metrics.filter(|metrics| !metrics.is_empty());
        let metric = |names: &[&str]| sum_of(metrics.as_deref()?, names);
        let process = |part: fn(&ProcessUsage) -> Option<u64>| {
            let usages = usages.as_ref()?;
            usages.iter().map(part).sum::<Option<u64>>()
        };
        let found = self.directories.iter().map(|path| file_bytes(path)).sum();
        let found = Some(found).filter(|_| !self.directories.is_empty());
        ServerSample {
            cpu: process(|usage| u64::try_from(usage.cpu.as_micros()).ok())
                .map(Duration::from_micros)
                .or_else(|| cpu_metric(metrics.as_deref()?)),
            resident_bytes: process(|usage| usage.resident_bytes).or_else(|| {
                metric(&["kvorum_process_resident_bytes"])
                    .or_else(|| metric(&["process_resident_memory_bytes"]))
            }),
            disk_bytes: found.or_else(|| {
                Some(
                    metric(&["kvorum_store_disk_bytes"])?
                        + metric(&["kvorum_value_log_bytes"])
                            .or_else(|| metric(&["kvorum_commit_log_bytes"]))
                            .unwrap_or(0),
                )
            }),
            read_bytes: process(|usage| usage.read_bytes)
                .or_else(|| metric(&["kvorum_process_read_bytes_total"])),
            written_bytes: process(|usage| usage.written_bytes)
                .or_else(|| metric(&["kvorum_process_written_bytes_total"]))
                .or_else(|| metric(&["kvorum_store_written_bytes_total"])),
            put_bytes: self
                .put_into_stores()
                .or_else(|| metric(&["kvorum_store_put_bytes_total"])),
        }
    }
}

impl ProbeTargets {
    fn put_into_stores(&self) -> Option<u64> {
        let put = self.stores.iter().map(|store| store.status().put_bytes);
        Some(put.sum()).filter(|_| !self.stores.is_empty())
    }
}

impl ServerSample {
    /// The columns of `server.csv` after `elapsed`; unknown values are empty.
    pub(super) fn columns(&self) -> String {
        let number = |value: Option<u64>| value.map_or_else(String::new, |it| it.to_string());
        let cpu = self
            .cpu
            .map_or_else(String::new, |cpu| format!("{:.2}", cpu.as_secs_f64()));
        let numbers = [
            self.resident_bytes,
            self.disk_bytes,
            self.read_bytes,
            self.written_bytes,
            self.put_bytes,
        ];
        let numbers = numbers.map(number).join(", ");
        format!("{cpu}, {numbers}")
    }

    /// Usage since an earlier sample; memory and disk space are the present ones.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let minus = |late: Option<u64>, early: Option<u64>| Some(late?.saturating_sub(early?));
        Self {
            cpu: self
                .cpu
                .zip(before.cpu)
                .map(|(late, early)| late.saturating_sub(early)),
            resident_bytes: self.resident_bytes,
            disk_bytes: self.disk_bytes,
            read_bytes: minus(self.read_bytes, before.read_bytes),
            written_bytes: minus(self.written_bytes, before.written_bytes),
            put_bytes: minus(self.put_bytes, before.put_bytes),
        }
    }

    /// Adds the figures of another server.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let plus = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
        Self {
            cpu: self.cpu.zip(other.cpu).map(|(a, b)| a + b),
            resident_bytes: plus(self.resident_bytes, other.resident_bytes),
            disk_bytes: plus(self.disk_bytes, other.disk_bytes),
            read_bytes: plus(self.read_bytes, other.read_bytes),
            written_bytes: plus(self.written_bytes, other.written_bytes),
            put_bytes: plus(self.put_bytes, other.put_bytes),
        }
    }
}

/// Values by name; values with labels are added up under the name alone.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        // Labels may contain spaces, so the value begins after the closing brace.
        let (name, rest) = match line.split_once('{') {
            Some((name, rest)) => (name, rest.rsplit_once('}').map_or("", |(_, after)| after)),
            None => line.split_once(' ').unwrap_or((line, "")),
        };
        let value = rest.split_ascii_whitespace().next();
        if let Some(value) = value.and_then(|value| value.parse::<f64>().ok()) {
            *values.entry(name.to_owned()).or_insert(0.0) += value;
        }
    }
    values
}

/// The sum over all servers of the values with these names; `None` if a value is missing.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of bytes are whole, and floats saturate"
)]
fn sum_of(metrics: &[BTreeMap<String, f64>], names: &[&str]) -> Option<u64> {
    let mut sum = 0.0;
    for server in metrics {
        for name in names {
            sum += server.get(*name)?;
        }
    }
    Some(sum as u64)
}

fn cpu_metric(metrics: &[BTreeMap<String, f64>]) -> Option<Duration> {
    let of = |server: &BTreeMap<String, f64>| {
        let names = [
            "process_cpu_seconds_total",
            "kvorum_process_cpu_seconds_total",
        ];
        names.iter().find_map(|name| server.get(*name).copied())
    };
    let seconds: Option<f64> = metrics.iter().map(of).sum();
    Duration::try_from_secs_f64(seconds?).ok()
}

/// Space of all files below a directory on their device, in bytes; files that vanish meanwhile do
/// not count.
pub fn file_bytes(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return 0;
    };
    let bytes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => file_bytes(&entry.path()),
        // The space on disk may be less than the length; it is counted in blocks of 512 bytes.
        Ok(metadata) if metadata.is_file() => {
            std::os::unix::fs::MetadataExt::blocks(&metadata) * 512
        }
        _ => 0,
    });
    bytes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = "# TYPE a gauge\nkvorum_store_disk_bytes 100\n\
        kvorum_store_put_bytes_total{vnode=\"a b}\"} 5\n\
        kvorum_store_put_bytes_total{vnode=\"c\"} 6 1700000000\n\
        process_cpu_seconds_total 1.25\n# EOF\n";

    #[test]
    fn values_with_labels_are_added_up() {
        let values = parse(METRICS);
        assert_eq!(values.get("kvorum_store_put_bytes_total"), Some(&11.0));
        assert_eq!(values.get("kvorum_store_disk_bytes"), Some(&100.0));
        assert_eq!(values.len(), 3);
    }

    #[test]
    fn a_value_that_one_server_does_not_report_is_unknown() {
        let servers = [parse(METRICS), parse(METRICS), parse("other 1\n")];
        let name = ["kvorum_store_disk_bytes"];
        assert_eq!(sum_of(&servers[..2], &name), Some(200));
        assert_eq!(sum_of(&servers, &name), None);
        assert_eq!(cpu_metric(&servers[..2]), Some(Duration::from_millis(2500)));
    }

    #[test]
    fn unknown_columns_are_empty() {
        let sample = ServerSample {
            cpu: Some(Duration::from_millis(1500)),
            put_bytes: Some(7),
            ..ServerSample::default()
        };
        assert_eq!(sample.columns(), "1.50, , , , , 7");
        assert_eq!(sample.since(&sample).put_bytes, Some(0));
        assert_eq!(sample.plus(&sample).put_bytes, Some(14));
    }
}
