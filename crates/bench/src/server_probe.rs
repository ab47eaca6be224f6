//! The server's resources, sampled in every interval beside the client's figures.
//!
//! A separate thread samples and writes `server.csv`, because a server under load may answer
//! slowly, and the report must not wait for it.

mod http_text;
mod sample;
mod targets;

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use sample::{ServerSample, file_bytes};
pub use targets::{ProbeTargets, ServerDescription};

use crate::seconds::seconds;

/// Header of `server.csv`: all columns but the first, third and fourth are running totals.
pub(crate) const HEADER: &str =
    "elapsed, cpu_seconds, resident_bytes, disk_bytes, read_bytes, written_bytes, put_bytes";

/// A thread that samples until it is stopped.
#[derive(Debug)]
pub struct ServerProbe {
    stop: Sender<()>,
    thread: JoinHandle<io::Result<Vec<(Duration, ServerSample)>>>,
}

impl ServerProbe {
    /// Samples now, and then every interval, into a file with a header.
    pub fn start(targets: ProbeTargets, interval: Duration, file: File) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let start = Instant::now();
        let thread = std::thread::Builder::new()
            .name("bench-probe".to_owned())
            .spawn(move || {
                let mut rows = Rows {
                    file,
                    ends: Vec::new(),
                };
                writeln!(rows.file, "{HEADER}")?;
                if targets.is_empty() {
                    return Ok(rows.ends);
                }
                let mut next = interval;
                rows.write(start.elapsed(), targets.sample())?;
                loop {
                    let wait = next.saturating_sub(start.elapsed());
                    let received = stopped.recv_timeout(wait);
                    rows.write(start.elapsed(), targets.sample())?;
                    if received != Err(RecvTimeoutError::Timeout) {
                        return Ok(rows.ends);
                    }
                    while next <= start.elapsed() {
                        next += interval;
                    }
                }
            })?;
        Ok(Self { stop, thread })
    }

    /// Samples once more and returns the change between the first and the last sample.
    pub fn stop(self) -> io::Result<Option<ServerSample>> {
        let _ = self.stop.send(());
        let ends = self
            .thread
            .join()
            .map_err(|_| io::Error::other("the thread that samples the server panicked"))??;
        let (Some((_, first)), Some((_, last))) = (ends.first(), ends.last()) else {
            return Ok(None);
        };
        Ok(Some(last.since(first)))
    }
}

/// The rows written so far; the first and the last are kept.
struct Rows {
    file: File,
    ends: Vec<(Duration, ServerSample)>,
}

impl Rows {
    fn write(&mut self, elapsed: Duration, sample: ServerSample) -> io::Result<()> {
        writeln!(self.file, "{}, {}", seconds(elapsed), sample.columns())?;
        self.ends.truncate(1);
        self.ends.push((elapsed, sample));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_sampled_at_both_ends() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("server.csv");
        std::fs::write(directory.path().join("data"), [0; 5000]).unwrap();
        let targets = ProbeTargets {
            processes: vec![std::process::id()],
            http: Vec::new(),
            directories: vec![directory.path().to_path_buf()],
            stores: Vec::new(),
        };
        let file = File::create(&path).unwrap();
        let probe = ServerProbe::start(targets, Duration::from_secs(3600), file).unwrap();
        let used = probe.stop().unwrap().unwrap();
        assert!(used.resident_bytes > Some(0));
        assert!(used.disk_bytes >= Some(5000));
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some(HEADER));
        assert_eq!(lines.count(), 2);
        for line in text.lines().skip(1) {
            assert_eq!(line.split(", ").count(), 7, "{line}");
            assert!(line.ends_with(", "), "put bytes are unknown: {line}");
        }
    }

    #[test]
    fn without_a_target_there_is_a_header_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("server.csv");
        let file = File::create(&path).unwrap();
        let probe =
            ServerProbe::start(ProbeTargets::default(), Duration::from_secs(1), file).unwrap();
        assert_eq!(probe.stop().unwrap(), None);
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            format!("{HEADER}\n")
        );
    }
}
