//! Moves between the backends of a node, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use kvorum_backend::MoveStatus;
use kvorum_maintenance::{bytes_text, counted};
use kvorum_member::{MoveView, StoreMoves};
use serde_json::{Value, json};

use super::place::Place;

/// The moves of the nodes that answered, by their names, and the names of the others.
pub(super) struct AllMoves {
    pub(super) nodes: BTreeMap<String, Vec<StoreMoves>>,
    pub(super) down: Vec<String>,
}

impl AllMoves {
    fn stores(&self) -> impl Iterator<Item = (&str, &StoreMoves)> {
        let nodes = self.nodes.iter();
        nodes.flat_map(|(name, stores)| stores.iter().map(move |it| (&name[..], it)))
    }

    /// All moves.
    pub(super) fn statuses(&self) -> impl Iterator<Item = MoveStatus> {
        let views = self.stores().flat_map(|(_, store)| &store.moves);
        views.map(MoveView::status)
    }

    /// True while some node still determines which data has to move.
    pub(super) fn is_looking(&self) -> bool {
        self.stores().any(|(_, store)| store.is_looking)
    }
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

    /// Partitions whose moves are under way.
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

/// The name of a scope.
pub(super) fn scope_text(scope: &[u8]) -> String {
    Place::of_scope(scope).map_or_else(|| "everything".to_owned(), |it| it.to_string())
}

pub(super) fn text(all: &AllMoves) -> String {
    let mut text = String::from("Moves between backends\n");
    // Writing to a String cannot fail.
    for ((scope, source, target), sum) in sums(all) {
        let back = match sum.is_taken_back {
            true => ", being taken back",
            false => "",
        };
        let what = scope_text(&scope);
        let _ = writeln!(text, "{what}, {source} to {target}{back}: {}", sum.text());
    }
    for (node, store) in all.stores() {
        let place = format!("partition {} of '{node}'", store.partition);
        if let Some(name) = &store.pinned {
            let lacks = match store.lacks_pinned {
                true => {
                    ", a backend that this node does not have: the properties count until it is declared"
                }
                false => "",
            };
            let _ = writeln!(text, "{place} is pinned to {name}{lacks}");
        }
        let moves = store.moves.iter().map(MoveView::status);
        for status in moves.filter(MoveStatus::has_failed) {
            let _ = writeln!(text, "{place}: {}", why_failed(&status));
        }
    }
    let looking = all.stores().filter(|(_, it)| it.is_looking).count();
    if looking > 0 {
        let partitions = counted(looking, "partition");
        let _ = writeln!(text, "the data to move is being looked for in {partitions}");
    }
    if all.stores().all(|(_, it)| it.moves.is_empty()) && looking == 0 {
        text.push_str("nothing moves, and nothing waits\n");
    }
    if !all.down.is_empty() {
        let _ = writeln!(text, "these nodes did not answer: {}", all.down.join(", "));
    }
    text
}

fn sums(all: &AllMoves) -> BTreeMap<(Vec<u8>, String, String), Sum> {
    let mut sums: BTreeMap<_, Sum> = BTreeMap::new();
    for status in all.statuses() {
        let name = (
            status.scope.to_vec(),
            status.source.clone(),
            status.target.clone(),
        );
        sums.entry(name).or_default().add(&status);
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
            "{what} was given up since the copies in {} still differed; both exist and are read: \
             look for damage with `kvorum verify`; the move begins again at the next start of the \
             node",
            status.target
        ),
    }
}

pub(super) fn json(all: &AllMoves) -> Value {
    let sums = sums(all).into_iter().map(|((scope, source, target), sum)| {
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
    let partitions = all.stores().map(|(node, store)| {
        let moves = store.moves.iter().map(|it| one_json(&it.status()));
        let moves: Vec<Value> = moves.collect();
        json!({
            "node": node,
            "partition": store.partition,
            "looking": store.is_looking,
            "pinned": store.pinned,
            "lacks_pinned": store.lacks_pinned,
            "moves": moves,
        })
    });
    json!({
        "moves": sums.collect::<Vec<_>>(),
        "partitions": partitions.collect::<Vec<_>>(),
        "unreachable": all.down,
    })
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
    use super::*;

    fn view(phase: &str, done_permille: u16) -> MoveView {
        let value = json!({
            "source": "bc",
            "target": "ldb",
            "scope": b"tables\0\x01",
            "phase": phase,
            "is_taken_back": false,
            "bytes_estimate": 2_048,
            "bytes_copied": 1_024,
            "keys_copied": 10,
            "keys_verified": 0,
            "keys_removed": 0,
            "done_permille": done_permille,
            "seconds_left": (phase == "copy").then_some(12),
        });
        serde_json::from_value(value).unwrap()
    }

    fn store(partition: u16, moves: Vec<MoveView>) -> StoreMoves {
        StoreMoves {
            partition,
            moves,
            is_looking: false,
            pinned: None,
            lacks_pinned: false,
        }
    }

    fn nodes(nodes: &[(&str, Vec<StoreMoves>)]) -> AllMoves {
        let nodes = nodes
            .iter()
            .map(|(name, it)| ((*name).to_owned(), it.clone()));
        AllMoves {
            nodes: nodes.collect(),
            down: vec!["c@h".to_owned()],
        }
    }

    #[test]
    fn partitions_of_all_nodes_are_summed_and_what_failed_says_what_to_do() {
        let first = vec![
            store(0, vec![view("moved", 1_000)]),
            store(1, vec![view("copy", 500)]),
        ];
        let all = nodes(&[
            ("a@h", first),
            ("b@h", vec![store(2, vec![view("no_room", 0)])]),
        ]);
        let text = text(&all);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1],
            "type tables, bc to ldb: 3 partitions: 1 done, 1 under way, 1 given up; 50.0 % done, 3.0 KB copied \
             of about 6.0 KB, about 12 s left for those under way"
        );
        let failed = "partition 2 of 'b@h': type tables waits in bc for free space";
        assert!(lines[2].starts_with(failed), "{text}");
        assert_eq!(lines[3], "these nodes did not answer: c@h");
        let data = json(&all);
        assert_eq!(data["moves"][0]["done"], 1);
        assert_eq!(data["partitions"][1]["moves"][0]["phase"], "copy");
        assert_eq!(data["partitions"][2]["node"], "b@h");
    }

    #[test]
    fn a_pin_to_a_backend_that_a_node_lacks_is_reported() {
        let pinned = StoreMoves {
            pinned: Some("ldb".to_owned()),
            lacks_pinned: true,
            ..store(3, Vec::new())
        };
        let mut all = nodes(&[]);
        all.nodes.insert("a@h".to_owned(), vec![pinned]);
        let text = text(&all);
        let reported =
            "partition 3 of 'a@h' is pinned to ldb, a backend that this node does not have";
        assert!(text.contains(reported), "{text}");
        assert_eq!(json(&all)["partitions"][0]["lacks_pinned"], true);
    }

    #[test]
    fn a_cluster_without_moves_says_so() {
        let text = text(&nodes(&[("a@h", vec![store(0, Vec::new())])]));
        assert!(text.contains("nothing moves"), "{text}");
    }
}
