//! Moves between the backends of a node, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use kvorum_backend::MoveStatus;
use kvorum_maintenance::{bytes_text, counted};
use serde_json::{Value, json};

use super::place::Place;

/// The moves of one partition's store.
pub(super) struct StoreMoves {
    pub(super) partition: u16,
    pub(super) moves: Vec<MoveStatus>,
    /// What has to move is not known yet.
    pub(super) is_looking: bool,
    pub(super) pinned: Option<String>,
}

/// Moves of one kind over all partitions.
#[derive(Default)]
struct Sum {
    partitions: u64,
    ended: u64,
    waiting: u64,
    failed: u64,
    keys_copied: u64,
    bytes_copied: u64,
    bytes_estimate: u64,
    done_permille: u64,
    seconds_left: Option<u64>,
    is_taken_back: bool,
}

impl Sum {
    fn add(&mut self, status: &MoveStatus) {
        self.partitions += 1;
        self.failed += u64::from(status.has_failed());
        self.ended += u64::from(status.has_ended() && !status.has_failed());
        self.waiting += u64::from(status.phase == MoveStatus::PHASES[0]);
        self.keys_copied += status.keys_copied;
        self.bytes_copied += status.bytes_copied;
        self.bytes_estimate += status.bytes_estimate;
        self.done_permille += u64::from(status.done_permille);
        self.seconds_left = self.seconds_left.max(status.seconds_left);
        self.is_taken_back |= status.is_taken_back;
    }

    /// Partitions that are under way.
    fn moving(&self) -> u64 {
        self.partitions - self.ended - self.waiting - self.failed
    }

    fn text(&self) -> String {
        let parts = [
            (self.ended, "done"),
            (self.moving(), "under way"),
            (self.waiting, "waiting"),
            (self.failed, "given up"),
        ];
        let parts = parts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> = parts
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        let mut text = format!(
            "{}: {}; {}.{} % done, {} copied",
            counted(self.partitions, "partition"),
            parts.join(", "),
            self.done_permille / self.partitions.max(1) / 10,
            self.done_permille / self.partitions.max(1) % 10,
            bytes_text(self.bytes_copied),
        );
        if self.bytes_estimate > 0 {
            let _infallible = write!(text, " of about {}", bytes_text(self.bytes_estimate));
        }
        if let Some(seconds) = self.seconds_left {
            let _infallible = write!(text, ", about {seconds} s left for those under way");
        }
        text
    }
}

/// The name of what moves.
pub(super) fn scope_text(scope: &[u8]) -> String {
    Place::of_scope(scope).map_or_else(|| "everything".to_owned(), |it| it.to_string())
}

pub(super) fn text(node: &str, stores: &[StoreMoves]) -> String {
    let mut text = format!("Moves between backends on '{node}'\n");
    // Writing to a String cannot fail.
    for ((scope, source, target), sum) in sums(stores) {
        let back = match sum.is_taken_back {
            true => ", being taken back",
            false => "",
        };
        let what = scope_text(&scope);
        let _ = writeln!(text, "{what}, {source} to {target}{back}: {}", sum.text());
    }
    for store in stores {
        if let Some(name) = &store.pinned {
            let _ = writeln!(text, "partition {} is pinned to {name}", store.partition);
        }
        for status in store.moves.iter().filter(|it| it.has_failed()) {
            let _ = writeln!(
                text,
                "partition {}: {}",
                store.partition,
                why_failed(status)
            );
        }
    }
    let looking = stores.iter().filter(|it| it.is_looking).count();
    if looking > 0 {
        let partitions = counted(looking, "partition");
        let _ = writeln!(text, "what has to move is being looked for in {partitions}");
    }
    let is_idle = stores.iter().all(|it| it.moves.is_empty());
    if is_idle && looking == 0 {
        text.push_str("nothing moves, and nothing waits\n");
    }
    text
}

fn sums(stores: &[StoreMoves]) -> BTreeMap<(Vec<u8>, String, String), Sum> {
    let mut sums: BTreeMap<_, Sum> = BTreeMap::new();
    for status in stores.iter().flat_map(|it| &it.moves) {
        let name = (
            status.scope.to_vec(),
            status.source.clone(),
            status.target.clone(),
        );
        sums.entry(name).or_default().add(status);
    }
    sums
}

fn why_failed(status: &MoveStatus) -> String {
    let what = scope_text(&status.scope);
    match status.phase == MoveStatus::PHASES[7] {
        true => format!(
            "{what} waits in {} for free space on the device of {}: free some, and it goes on",
            status.source, status.target
        ),
        false => format!(
            "{what} was given up since the copies in {} went on to differ; both are there and are read: look \
             for damage with `kvorum verify`, and order the move again",
            status.target
        ),
    }
}

pub(super) fn json(stores: &[StoreMoves]) -> Value {
    let sums = sums(stores)
        .into_iter()
        .map(|((scope, source, target), sum)| {
            json!({
                "scope": scope_text(&scope),
                "from": source,
                "to": target,
                "taken_back": sum.is_taken_back,
                "partitions": sum.partitions,
                "done": sum.ended,
                "under_way": sum.moving(),
                "waiting": sum.waiting,
                "given_up": sum.failed,
                "done_permille": sum.done_permille / sum.partitions.max(1),
                "keys_copied": sum.keys_copied,
                "bytes_copied": sum.bytes_copied,
                "bytes_estimate": sum.bytes_estimate,
                "seconds_left": sum.seconds_left,
            })
        });
    let partitions = stores.iter().map(|store| {
        let moves: Vec<Value> = store.moves.iter().map(one_json).collect();
        json!({
            "partition": store.partition,
            "looking": store.is_looking,
            "pinned": store.pinned,
            "moves": moves,
        })
    });
    json!({"moves": sums.collect::<Vec<_>>(), "partitions": partitions.collect::<Vec<_>>()})
}

fn one_json(status: &MoveStatus) -> Value {
    json!({
        "scope": scope_text(&status.scope),
        "from": status.source,
        "to": status.target,
        "phase": status.phase,
        "taken_back": status.is_taken_back,
        "done_permille": status.done_permille,
        "bytes_estimate": status.bytes_estimate,
        "bytes_copied": status.bytes_copied,
        "keys_copied": status.keys_copied,
        "keys_verified": status.keys_verified,
        "keys_removed": status.keys_removed,
        "seconds_left": status.seconds_left,
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn status(phase: &'static str, done_permille: u16) -> MoveStatus {
        MoveStatus {
            source: "bc".to_owned(),
            target: "ldb".to_owned(),
            scope: Bytes::from_static(b"tables\0\x01"),
            phase,
            is_taken_back: false,
            bytes_estimate: 2_048,
            bytes_copied: 1_024,
            keys_copied: 10,
            keys_verified: 0,
            keys_removed: 0,
            done_permille,
            seconds_left: (phase == "copy").then_some(12),
        }
    }

    fn store(partition: u16, moves: Vec<MoveStatus>) -> StoreMoves {
        StoreMoves {
            partition,
            moves,
            is_looking: false,
            pinned: None,
        }
    }

    #[test]
    fn partitions_are_summed_and_what_failed_says_what_to_do() {
        let stores = [
            store(0, vec![status("moved", 1_000)]),
            store(1, vec![status("copy", 500)]),
            store(2, vec![status("no_room", 0)]),
        ];
        let text = text("a@h", &stores);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1],
            "type tables, bc to ldb: 3 partitions: 1 done, 1 under way, 1 given up; 50.0 % done, 3.0 KB copied \
             of about 6.0 KB, about 12 s left for those under way"
        );
        assert!(lines[2].contains("free some"), "{text}");
        let data = json(&stores);
        assert_eq!(data["moves"][0]["done"], 1);
        assert_eq!(data["partitions"][1]["moves"][0]["phase"], "copy");
    }

    #[test]
    fn a_node_without_moves_says_so() {
        let text = text("a@h", &[store(0, Vec::new())]);
        assert!(text.contains("nothing moves"), "{text}");
    }
}
