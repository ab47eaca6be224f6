//! The machine of a run, as Linux describes it.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// A machine; unknown parts are empty or zero.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the processor.
    pub cpu_model: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Kind of the filesystem that holds the data.
    pub filesystem: String,
    /// Device of that filesystem.
    pub device: String,
}

impl Machine {
    /// This machine, with the filesystem that holds a directory.
    pub fn with_data_in(directory: &Path) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let (filesystem, device) = mount_of(directory, &read("/proc/self/mounts"));
        Self {
            cpu_model: cpu_model(&read("/proc/cpuinfo")),
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            memory_bytes: memory_bytes(&read("/proc/meminfo")),
            kernel: format!(
                "{} {}",
                read("/proc/sys/kernel/ostype").trim(),
                read("/proc/sys/kernel/osrelease").trim()
            )
            .trim()
            .to_owned(),
            filesystem,
            device,
        }
    }
}

/// The processor's name: `model name` on x86, or the part and the implementer on Arm.
fn cpu_model(text: &str) -> String {
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    value("model name")
        .or_else(|| {
            let part = value("CPU part")?;
            Some(format!(
                "part {part} of implementer {}",
                value("CPU implementer")?
            ))
        })
        .unwrap_or_default()
}

fn memory_bytes(text: &str) -> u64 {
    let kibibytes = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_ascii_whitespace().next())
        .and_then(|number| number.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

/// Kind and device of the mount with the longest path that contains the directory.
fn mount_of(directory: &Path, mounts: &str) -> (String, String) {
    let directory = directory
        .canonicalize()
        .unwrap_or_else(|_| directory.to_path_buf());
    let mut found = (0, String::new(), String::new());
    for line in mounts.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (Some(device), Some(point), Some(kind)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        // Later mounts of the same place hide earlier ones.
        if directory.starts_with(point) && point.len() >= found.0 {
            found = (point.len(), kind.to_owned(), device.to_owned());
        }
    }
    (found.1, found.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_and_newest_mount_is_found() {
        let mounts = "/dev/a / ext4 rw 0 0\n/dev/b /data xfs rw 0 0\n/dev/c /data zfs rw 0 0\n\
                      /dev/d /database btrfs rw 0 0\n";
        let of = |path| mount_of(Path::new(path), mounts);
        assert_eq!(of("/data/no/such"), ("zfs".to_owned(), "/dev/c".to_owned()));
        assert_eq!(of("/etc"), ("ext4".to_owned(), "/dev/a".to_owned()));
    }

    #[test]
    fn texts_of_the_kernel_are_read() {
        assert_eq!(memory_bytes("MemFree: 1 kB\nMemTotal:  2048 kB\n"), 2 << 20);
        assert_eq!(cpu_model("a : b\nmodel name\t: Fast One\n"), "Fast One");
        assert_eq!(
            cpu_model("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"),
            "part 0xd0c of implementer 0x41"
        );
        assert_eq!(cpu_model(""), "");
    }

    #[test]
    fn this_machine_has_memory_and_cores() {
        let machine = Machine::with_data_in(Path::new("/"));
        assert!(machine.memory_bytes > 1 << 20);
        assert!(machine.cores > 0);
        assert!(!machine.filesystem.is_empty());
    }
}
