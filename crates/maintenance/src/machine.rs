//! Limits of the machine, or the container, for the process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// The part of all memory that stores may hold, in percent: the rest is for requests, and for the
/// system's cache of the stores' files.
const STORES_PERCENT: u64 = 75;
/// The value above which a limit means that there is none, in control groups of the first version.
const NO_LIMIT: u64 = 1 << 60;

/// Cores that the process may use.
pub(crate) fn cores() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cores).unwrap_or(u32::MAX)
}

/// Memory for the stores, in bytes; `None` if the system does not report it.
pub(crate) fn memory_for_stores() -> Option<u64> {
    memory_bytes().map(|bytes| bytes / 100 * STORES_PERCENT)
}

/// The memory of the machine, or of the process's control group if that is less; `None` if the
/// system does not report it.
pub fn memory_bytes() -> Option<u64> {
    memory_from(read)
}

/// The same with `read`, which returns the contents of files, empty for unreadable ones.
fn memory_from(read: impl Fn(&Path) -> String) -> Option<u64> {
    let meminfo = read(Path::new("/proc/meminfo"));
    let of_machine = memory_total(&meminfo);
    let groups = read(Path::new("/proc/self/cgroup"));
    let files = control_group_files(&groups);
    let of_groups = files.iter().filter_map(|file| limit(&read(file)));
    of_groups.chain(of_machine).min()
}

/// The limit of the process's open files.
pub(crate) fn open_files_max() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Raises the limit of open files to the system's maximum; `None` if there is no limit.
pub fn raise_open_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if limit.current != limit.maximum {
        let _raised_or_as_before = setrlimit(Resource::Nofile, raised);
    }
    getrlimit(Resource::Nofile).current
}

/// The number of files and sockets that the process has open; `None` if the system does not report
/// it.
pub fn open_files() -> Option<u64> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?;
    // One of them is the directory being read.
    Some((entries.count() as u64).saturating_sub(1))
}

/// Processor time of this thread so far.
pub(crate) fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

/// An unreadable file counts as empty.
fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn memory_total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes.saturating_mul(1024))
}

/// The files with the limits of the process's control group and of those above it, by
/// `/proc/self/cgroup`: `0::PATH` in the second version, `N:memory:PATH` in the first.
fn control_group_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (root, file) = if controllers.is_empty() {
            ("/sys/fs/cgroup", "memory.max")
        } else if controllers.split(',').any(|it| it == "memory") {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            continue;
        };
        // In a container, the path may be the host's: then only the root exists.
        let group = Path::new(group.trim_start_matches('/'));
        for above in group.ancestors() {
            files.push(Path::new(root).join(above).join(file));
        }
    }
    files
}

/// A limit in bytes; `None` for a value that means no limit.
fn limit(text: &str) -> Option<u64> {
    let bytes: u64 = text.trim().parse().ok()?;
    (bytes < NO_LIMIT).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_as_the_kernel_writes_it() {
        let meminfo = "MemTotal:       24689872 kB\nMemFree:          123 kB\n";
        assert_eq!(memory_total(meminfo), Some(24_689_872 * 1024));
        assert_eq!(memory_total(""), None);
        assert_eq!(limit("max\n"), None);
        assert_eq!(limit("9223372036854771712\n"), None);
        assert_eq!(limit("2147483648\n"), Some(2 << 30));
    }

    #[test]
    fn limits_of_every_control_group_above_count() {
        let found = control_group_files("0::/system.slice/kvorum.service\n");
        let expected = [
            "/sys/fs/cgroup/system.slice/kvorum.service/memory.max",
            "/sys/fs/cgroup/system.slice/memory.max",
            "/sys/fs/cgroup/memory.max",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
        let found = control_group_files("9:cpu,memory:/a\n4:pids:/a\n");
        let expected = [
            "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    /// The memory by files with these contents.
    fn memory_of_files(files: &[(&str, &str)]) -> Option<u64> {
        memory_from(|path| {
            let mut held = files.iter().filter(|it| Path::new(it.0) == path);
            held.next().map_or_else(String::new, |it| it.1.to_owned())
        })
    }

    #[test]
    fn the_least_of_the_machine_and_its_control_groups_counts() {
        let machine = ("/proc/meminfo", "MemTotal:  8388608 kB\n");
        let own = ("/proc/self/cgroup", "0::/system/kvorum\n");
        let of_own = |limit| ("/sys/fs/cgroup/system/kvorum/memory.max", limit);
        let of_above = |limit| ("/sys/fs/cgroup/system/memory.max", limit);
        let (one, two, machines) = (Some(1 << 30), Some(2 << 30), Some(8 << 30));
        let (one_text, two_text) = ("1073741824\n", "2147483648\n");
        assert_eq!(memory_of_files(&[machine]), machines);
        assert_eq!(memory_of_files(&[machine, own]), machines);
        assert_eq!(memory_of_files(&[machine, own, of_own(two_text)]), two);
        let both = [machine, own, of_own(two_text), of_above(one_text)];
        assert_eq!(memory_of_files(&both), one);
        let both = [machine, own, of_own(one_text), of_above(two_text)];
        assert_eq!(memory_of_files(&both), one);
        let none = [machine, own, of_own("max\n"), of_above("17179869184\n")];
        assert_eq!(memory_of_files(&none), machines);
        // A group's limit counts even without a value for the machine. Another group's does not.
        assert_eq!(memory_of_files(&[own, of_own(two_text)]), two);
        assert_eq!(memory_of_files(&[machine, of_own(two_text)]), machines);
        assert_eq!(memory_of_files(&[]), None);
    }

    #[test]
    fn limits_of_the_first_version_count_too() {
        let machine = ("/proc/meminfo", "MemTotal:  8388608 kB\n");
        let own = ("/proc/self/cgroup", "9:cpu,memory:/a\n4:pids:/b\n");
        let limit = |path, text| memory_of_files(&[machine, own, (path, text)]);
        let of_own = "/sys/fs/cgroup/memory/a/memory.limit_in_bytes";
        assert_eq!(limit(of_own, "2147483648\n"), Some(2 << 30));
        assert_eq!(limit(of_own, "9223372036854771712\n"), Some(8 << 30));
        // In a container, the path of the group is the host's.
        let root = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        assert_eq!(limit(root, "2147483648\n"), Some(2 << 30));
    }

    #[test]
    fn this_process_has_files_open_and_computes() {
        assert!(open_files().is_some_and(|count| count >= 3));
        assert!(thread_cpu_time() > Duration::ZERO);
        assert!(cores() >= 1);
    }
}
