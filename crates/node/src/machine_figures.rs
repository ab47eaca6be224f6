//! Figures of the machine, in the form of Riak's statistics and of OpenMetrics.
//!
//! Riak asked Erlang's monitor of the operating system, and collectors expect its units: loads in parts
//! of 256, memory in bytes, and of each file system the size in KiB and the part in use in percent.
//! Figures that the system does not give are absent.

use std::path::{Path, PathBuf};

use kvorum_stats::{MetricKind, MetricsText};
use serde_json::{Map, Value, json};

/// The reported number for a load of one.
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
    /// The number of processes and threads.
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
    fn numbers(&self) -> Vec<(&'static str, u64)> {
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

    /// Adds the figures as metrics, in the units of OpenMetrics.
    pub(crate) fn metrics_into(&self, text: &mut MetricsText) {
        if let Some(load) = &self.load {
            let help = "Load of the machine, an average of one minute";
            text.gauge("machine_load1", help, load.average(0));
            let help = "Load of the machine, an average of five minutes";
            text.gauge("machine_load5", help, load.average(1));
            let help = "Load of the machine, an average of 15 minutes";
            text.gauge("machine_load15", help, load.average(2));
            let help = "Processes and threads of the machine";
            text.gauge("machine_threads", help, load.processes);
        }
        if let Some(memory) = &self.memory {
            let help = "Memory of the machine";
            text.gauge("machine_memory_bytes", help, memory.total_bytes);
            let help = "Memory of the machine that is in use";
            text.gauge("machine_memory_used_bytes", help, memory.allocated_bytes);
        }
        let file_systems = &self.file_systems;
        let labels: Vec<_> = file_systems
            .iter()
            .map(|it| [("id", it.mounted_at.as_str())])
            .collect();
        let with_labels = || labels.iter().zip(file_systems);
        let sizes = with_labels().map(|(id, it)| (&id[..], it.size_kib * 1024));
        let help = "Size of a file system";
        text.family(MetricKind::Gauge, "disk_size_bytes", help, sizes);
        let used = with_labels().map(|(id, it)| (&id[..], it.used_percent as f64 / 100.0));
        let help = "Part of a file system that is in use, from 0 to 1";
        text.family(MetricKind::Gauge, "disk_used_ratio", help, used);
    }
}

impl Load {
    /// An average as the system gives it.
    fn average(&self, place: usize) -> f64 {
        self.averages[place] as f64 / LOAD_UNIT
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

/// The file systems on devices, of the root, and of the data directory, each once.
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

/// Spaces and the like are escaped in octal, as `\040`.
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
    let statistics = rustix::fs::statvfs(mounted_at).ok()?;
    let kib = |blocks: u64| blocks.saturating_mul(statistics.f_frsize) / 1024;
    let used = statistics.f_blocks.saturating_sub(statistics.f_bfree);
    let usable = used + statistics.f_bavail;
    (statistics.f_blocks > 0).then(|| FileSystem {
        mounted_at: mounted_at.to_string_lossy().into_owned(),
        size_kib: kib(statistics.f_blocks),
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
    fn the_file_systems_of_devices_and_of_the_data_are_listed_once() {
        let mounts = "proc /proc proc rw 0 0\noverlay / overlay rw 0 0\n/dev/sda1 /boot ext4 rw 0 0\n\
                      /dev/sda1 /mnt/again ext4 rw 0 0\ntmpfs /my\\040data tmpfs rw 0 0\n\
                      tmpfs /run tmpfs rw 0 0\n";
        let found = mounts_of(mounts, Path::new("/my data/node/data"));
        let found: Vec<&str> = found.iter().filter_map(|it| it.to_str()).collect();
        assert_eq!(found, ["/", "/boot", "/my data"]);
    }

    #[test]
    fn metrics_are_in_base_units() {
        let figures = MachineFigures {
            load: load_of("0.25 1.00 12.5 3/456 11206"),
            memory: memory_of("MemTotal: 1000 kB\nMemAvailable: 400 kB\n"),
            file_systems: vec![FileSystem {
                mounted_at: "/data".to_owned(),
                size_kib: 3,
                used_percent: 41,
            }],
        };
        let mut text = MetricsText::new();
        figures.metrics_into(&mut text);
        let text = text.finish();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "kvorum_machine_load1 0.25",
            "kvorum_machine_load5 1",
            "kvorum_machine_load15 12.5",
            "kvorum_machine_threads 456",
            "kvorum_machine_memory_bytes 1024000",
            "kvorum_machine_memory_used_bytes 614400",
            "kvorum_disk_size_bytes{id=\"/data\"} 3072",
            "kvorum_disk_used_ratio{id=\"/data\"} 0.41",
        ];
        assert_eq!(samples, expected);
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
