//! Figures of the machine, in the form of Riak's statistics.
//!
//! Riak asked Erlang's monitor of the operating system, and collectors expect its units: loads in parts
//! of 256, memory in bytes, and of each file system the size in KiB and the part in use in percent.
//! Figures that the system does not give are absent.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

/// Loads are given in parts of this.
const LOAD_UNIT: f64 = 256.0;

/// The machine's figures at one moment.
#[derive(Debug, Default)]
pub(crate) struct MachineFigures {
    load: Option<Load>,
    memory: Option<Memory>,
    file_systems: Vec<FileSystem>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    /// Averages of 1, 5 and 15 minutes, in parts of [`LOAD_UNIT`].
    averages: [u64; 3],
    /// Processes and threads that there are.
    processes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Memory {
    total_bytes: u64,
    allocated_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FileSystem {
    mounted_at: String,
    size_kib: u64,
    used_percent: u64,
}

impl MachineFigures {
    /// Asks the system. The file system of `data_directory` is among the figures.
    pub(crate) fn read(data_directory: &Path) -> Self {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let data_directory = std::fs::canonicalize(data_directory).unwrap_or_default();
        let mounts = mounts_of(&text("/proc/mounts"), &data_directory);
        Self {
            load: load_of(&text("/proc/loadavg")),
            memory: memory_of(&text("/proc/meminfo")),
            file_systems: mounts.iter().filter_map(|it| file_system(it)).collect(),
        }
    }

    /// Adds the figures under Riak's names.
    pub(crate) fn put_into(&self, values: &mut Map<String, Value>) {
        for (name, value) in self.numbers() {
            values.insert(name.to_owned(), value.into());
        }
        let disks = self.file_systems.iter();
        let disks: Vec<Value> = disks
            .map(|it| json!({"id": it.mounted_at, "size": it.size_kib, "used": it.used_percent}))
            .collect();
        values.insert("disk".to_owned(), disks.into());
    }

    /// All but the file systems.
    pub(crate) fn numbers(&self) -> Vec<(&'static str, u64)> {
        let mut numbers = Vec::new();
        if let Some(load) = &self.load {
            let names = ["cpu_avg1", "cpu_avg5", "cpu_avg15"];
            numbers.extend(names.into_iter().zip(load.averages));
            numbers.push(("cpu_nprocs", load.processes));
        }
        if let Some(memory) = &self.memory {
            numbers.push(("mem_total", memory.total_bytes));
            numbers.push(("mem_allocated", memory.allocated_bytes));
        }
        numbers
    }

    /// Each file system's mount point, its size in KiB and the percent of it in use.
    pub(crate) fn disks(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        let file_systems = self.file_systems.iter();
        file_systems.map(|it| (&it.mounted_at[..], it.size_kib, it.used_percent))
    }
}

/// `0.20 0.18 0.12 1/80 11206`: three loads, then running and existing threads.
fn load_of(loadavg: &str) -> Option<Load> {
    let mut words = loadavg.split_ascii_whitespace();
    let mut average = || -> Option<u64> {
        let load: f64 = words.next()?.parse().ok()?;
        #[expect(clippy::cast_possible_truncation, reason = "it is no more than 1e9")]
        let parts = (load.clamp(0.0, 1e6) * LOAD_UNIT).round() as u64;
        Some(parts)
    };
    let averages = [average()?, average()?, average()?];
    let (_running, existing) = words.next()?.split_once('/')?;
    Some(Load {
        averages,
        processes: existing.parse().ok()?,
    })
}

fn memory_of(meminfo: &str) -> Option<Memory> {
    let bytes = |name: &str| -> Option<u64> {
        let lines = meminfo.lines();
        let value = lines.filter_map(|line| line.strip_prefix(name)).next()?;
        let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    };
    let total_bytes = bytes("MemTotal:")?;
    let free = bytes("MemAvailable:").or_else(|| bytes("MemFree:"))?;
    Some(Memory {
        total_bytes,
        allocated_bytes: total_bytes.saturating_sub(free),
    })
}

/// The file systems on devices, that of the root and that of the data directory, each once.
fn mounts_of(mounts: &str, data_directory: &Path) -> Vec<PathBuf> {
    let mounted: Vec<(&str, PathBuf)> = mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (device, place) = (words.next()?, words.next()?);
            Some((device, PathBuf::from(unescaped(place))))
        })
        .collect();
    let of_data = mounted
        .iter()
        .map(|(_, place)| place)
        .filter(|place| data_directory.starts_with(place))
        .max_by_key(|place| place.components().count());
    let mut devices = Vec::new();
    let mut wanted: Vec<PathBuf> = Vec::new();
    for (device, place) in &mounted {
        let is_named = place == Path::new("/") || Some(place) == of_data;
        let is_first = device.starts_with("/dev/") && !devices.contains(device);
        if (is_named || is_first) && !wanted.contains(place) {
            devices.push(device);
            wanted.push(place.clone());
        }
    }
    wanted
}

/// Spaces and the like stand as `\040`, in octal.
fn unescaped(place: &str) -> String {
    let mut plain = place.to_owned();
    for (escape, character) in [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ] {
        plain = plain.replace(escape, character);
    }
    plain
}

fn file_system(mounted_at: &Path) -> Option<FileSystem> {
    let told = rustix::fs::statvfs(mounted_at).ok()?;
    let kib = |blocks: u64| blocks.saturating_mul(told.f_frsize) / 1024;
    let used = told.f_blocks.saturating_sub(told.f_bfree);
    let usable = used + told.f_bavail;
    (told.f_blocks > 0).then(|| FileSystem {
        mounted_at: mounted_at.to_string_lossy().into_owned(),
        size_kib: kib(told.f_blocks),
        used_percent: (used * 100).div_ceil(usable.max(1)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_read_in_riaks_units() {
        let load = load_of("0.20 1.00 12.5 3/456 11206\n").unwrap();
        assert_eq!(load.averages, [51, 256, 3200]);
        assert_eq!(load.processes, 456);
        assert_eq!(load_of("nonsense"), None);
        let meminfo = "MemTotal:  1000 kB\nMemFree:   100 kB\nMemAvailable: 400 kB\n";
        let memory = memory_of(meminfo).unwrap();
        assert_eq!(memory.total_bytes, 1000 << 10);
        assert_eq!(memory.allocated_bytes, 600 << 10);
        assert_eq!(memory_of("MemTotal: lots"), None);
    }

    #[test]
    fn the_file_systems_of_devices_and_of_the_data_are_told_once() {
        let mounts = "proc /proc proc rw 0 0\noverlay / overlay rw 0 0\n/dev/sda1 /boot ext4 rw 0 0\n\
                      /dev/sda1 /mnt/again ext4 rw 0 0\ntmpfs /my\\040data tmpfs rw 0 0\n\
                      tmpfs /run tmpfs rw 0 0\n";
        let told = mounts_of(mounts, Path::new("/my data/node/data"));
        let told: Vec<&str> = told.iter().filter_map(|it| it.to_str()).collect();
        assert_eq!(told, ["/", "/boot", "/my data"]);
    }

    #[test]
    fn this_machine_says_something() {
        let figures = MachineFigures::read(Path::new("/"));
        let mut values = Map::new();
        figures.put_into(&mut values);
        for name in [
            "cpu_avg1",
            "cpu_avg5",
            "cpu_avg15",
            "cpu_nprocs",
            "mem_total",
        ] {
            assert!(values[name].is_u64(), "{name}");
        }
        assert!(values["mem_total"].as_u64() > values["mem_allocated"].as_u64());
        let disks = values["disk"].as_array().unwrap();
        assert!(disks.iter().any(|disk| disk["id"] == "/"), "{disks:?}");
        assert!(disks.iter().all(|disk| disk["used"].as_u64() <= Some(100)));
    }
}
