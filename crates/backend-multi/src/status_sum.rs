//! The status of a store: the sum over its children, and a line about each.

use kvorum_backend::{LostRange, Status};

use crate::child::Child;

/// Its name in `storage_backend`.
pub(crate) const ENGINE: &str = "multi";

/// The sum of the children's status.
pub(crate) fn sum(children: &[Child]) -> Status {
    let mut all = Status {
        engine: ENGINE,
        ..Status::default()
    };
    let mut lines = Vec::new();
    for child in children {
        let status = child.store.status();
        lines.push(line(child, &status));
        add(&mut all, &child.name, status);
    }
    all.details.push(("backends", lines.join("; ")));
    all
}

fn add(all: &mut Status, name: &str, status: Status) {
    all.keys += status.keys;
    all.live_bytes += status.live_bytes;
    all.garbage_bytes += status.garbage_bytes;
    all.disk_bytes += status.disk_bytes;
    all.files += status.files;
    all.memory_bytes += status.memory_bytes;
    all.pinned_bytes += status.pinned_bytes;
    all.backlog_bytes += status.backlog_bytes;
    all.put_bytes += status.put_bytes;
    all.written_bytes += status.written_bytes;
    all.corrupt_reads += status.corrupt_reads;
    let named = |range: LostRange| LostRange {
        file: format!("{name}/{}", range.file),
        ..range
    };
    all.lost.extend(status.lost.into_iter().map(named));
}

/// A child for operators.
fn line(child: &Child, status: &Status) -> String {
    let mut line = format!(
        "{}: {}, {} keys, {} bytes on disk, {} bytes of memory",
        child.name, status.engine, status.keys, status.disk_bytes, status.memory_bytes
    );
    for (name, value) in &status.details {
        line.push_str(&format!(", {name} {value}"));
    }
    line
}
