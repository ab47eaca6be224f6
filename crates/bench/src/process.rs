//! Resources that a process on this machine has used so far, from Linux's /proc.

use std::time::Duration;

/// Clock ticks per second in /proc: fixed at 100 by the kernel's interface on every common
/// machine.
const TICKS_PER_SECOND: u64 = 100;

/// Used up to one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessUsage {
    /// CPU time of all threads, user and kernel.
    pub cpu: Duration,
    /// Resident memory in bytes.
    pub resident_bytes: Option<u64>,
    /// Bytes that went or will go to a disk; `None` without the permission to read the count.
    pub written_bytes: Option<u64>,
    /// Bytes that came from a disk; `None` without the permission to read the count.
    pub read_bytes: Option<u64>,
}

impl ProcessUsage {
    /// The usage of a process; `None` if there is no such process, or no /proc.
    pub fn of(pid: u32) -> Option<Self> {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        let io = read("io").unwrap_or_default();
        Some(Self {
            cpu: cpu(&read("stat")?)?,
            resident_bytes: field(&read("status")?, "VmRSS:").map(|kib| kib * 1024),
            written_bytes: field(&io, "write_bytes:"),
            read_bytes: field(&io, "read_bytes:"),
        })
    }

    /// Usage since an earlier look; the memory is the present one.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let minus = |late: Option<u64>, early: Option<u64>| Some(late?.saturating_sub(early?));
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            resident_bytes: self.resident_bytes,
            written_bytes: minus(self.written_bytes, before.written_bytes),
            read_bytes: minus(self.read_bytes, before.read_bytes),
        }
    }
}

/// Fields 14 and 15, counted from the end of the name, which may contain spaces and parentheses.
fn cpu(stat: &str) -> Option<Duration> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis(
        (user + system) * (1000 / TICKS_PER_SECOND),
    ))
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_ticks_behind_a_name_with_blanks() {
        let stat = "12 (a b) c) S 1 12 12 0 -1 4 100 0 0 0 250 50 0 0 20 0 3 0 9 1 2";
        assert_eq!(cpu(stat), Some(Duration::from_secs(3)));
        assert_eq!(cpu("nonsense"), None);
        assert_eq!(field("VmRSS:\t  12 kB\n", "VmRSS:"), Some(12));
    }

    #[test]
    fn sees_this_process_and_no_process_zero() {
        let usage = ProcessUsage::of(std::process::id()).unwrap();
        assert!(usage.resident_bytes > Some(0));
        assert_eq!(ProcessUsage::of(0), None);
    }
}
