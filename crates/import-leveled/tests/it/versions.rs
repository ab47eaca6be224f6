//! Choice among a key's records.

use crate::journal::{Journal, key};
use crate::riak_objects::{Sibling, dotted, object_v1, plain};
use crate::world::World;

fn object(value: &str) -> Vec<u8> {
    object_v1(&[("a", 1)], &[plain(value)])
}

#[test]
fn the_highest_number_counts_whether_its_file_is_active_completed_or_compacted() {
    let world = World::new();
    let keys = ["active", "completed", "compacted"];
    for (winner, file) in [
        ("active", "900_x.pnd"),
        ("completed", "5_x.cdb"),
        ("compacted", "post_compact/0_x.cdb"),
    ] {
        let mut journal = Journal::default();
        for (sequence, name) in (1..).zip(keys) {
            let sequence = if name == winner { 1000 } else { sequence };
            journal.put(sequence, &key("b", name), &object(winner));
        }
        let is_completed = file.ends_with("cdb");
        let bytes = if is_completed {
            journal.completed()
        } else {
            journal.bytes
        };
        world.journal(0, file, &bytes);
    }
    let summary = world.import().unwrap();
    for name in keys {
        assert_eq!(world.values("b", name), [name]);
    }
    assert_eq!((summary.files, summary.counts.records), (3, 9));
    assert!(summary.is_whole());
}

/// An interrupted compaction leaves its inputs beside its outputs, and the manifest is lost.
/// Deleted objects must not come back from either.
#[test]
fn leftovers_of_compaction_bring_nothing_back() {
    let world = World::new();
    let mut before = Journal::default();
    before.put(1, &key("b", "replaced"), &object("first"));
    before.put(2, &key("b", "deleted"), &object("deleted"));
    before.put(3, &key("b", "kept"), &object("kept"));
    let mut after = Journal::default();
    after.put(4, &key("b", "replaced"), &object("second"));
    after.delete(5, &key("b", "deleted"));
    let mut compacted = Journal::default();
    compacted.index_changes(1, &key("b", "replaced"));
    compacted.index_changes(2, &key("b", "deleted"));
    compacted.put(3, &key("b", "kept"), &object("kept"));
    let files = [
        ("0_a.cdb", before.completed()),
        ("4_b.pnd", after.bytes),
        ("post_compact/0_c.cdb", compacted.completed()),
        ("waste/0_d.cdb", before.completed()),
    ];
    // All files, then the files without the inputs of the compaction.
    for from in [0, 1] {
        let world = World::new();
        for (name, bytes) in &files[from..] {
            world.journal(0, name, bytes);
        }
        let summary = world.import().unwrap();
        assert_eq!(world.values("b", "replaced"), ["second"]);
        assert!(world.values("b", "deleted").is_empty());
        assert_eq!(world.values("b", "kept"), ["kept"]);
        assert!(summary.is_whole(), "{summary}");
        let counts = summary.counts;
        assert_eq!((counts.index_changes, counts.keys_deleted), (2, 1));
        let waste = &summary.passed_over[0];
        assert!(waste.path.ends_with("journal_files/waste"), "{waste:?}");
        assert!(summary.first_findings.is_empty());
    }
    // A deletion of an object that compaction has dropped.
    world.journal(0, "post_compact/0_c.cdb", &compacted.completed());
    let mut deletion = Journal::default();
    deletion.delete(5, &key("b", "deleted"));
    deletion.put(4, &key("b", "replaced"), &object("second"));
    world.journal(0, "4_b.cdb", &deletion.completed());
    assert!(world.import().unwrap().is_whole());
    assert!(world.values("b", "deleted").is_empty());
}

#[test]
fn a_version_that_is_known_to_be_replaced_by_a_missing_one_is_named() {
    let world = World::new();
    let mut journal = Journal::default();
    journal.put(1, &key("b", "older"), &object("older"));
    journal.index_changes(2, &key("b", "older"));
    journal.index_changes(3, &key("b", "nothing"));
    world.journal(0, "0_x.cdb", &journal.completed());
    let summary = world.import().unwrap();
    assert_eq!(world.values("b", "older"), ["older"]);
    assert!(world.values("b", "nothing").is_empty());
    assert_eq!(summary.counts.unreadable, 2);
    let names = summary.first_findings.iter();
    let mut names: Vec<_> = names.filter_map(|finding| finding.object.clone()).collect();
    names.sort();
    assert_eq!(names, ["default/b/nothing", "default/b/older"]);
    let mut replica = Journal::default();
    replica.put(8, &key("b", "nothing"), &object("from the other partition"));
    world.journal(1, "0_x.pnd", &replica.bytes);
    let mut world = world;
    world.options.restart = true;
    world.import().unwrap();
    assert_eq!(world.values("b", "nothing"), ["from the other partition"]);
}

#[test]
fn a_key_that_is_deleted_in_one_partition_is_taken_from_another_and_replicas_are_merged() {
    let world = World::new();
    let newer = object_v1(&[("a", 1), ("c", 1)], &[dotted("newer", "c", 1)]);
    let mut first = Journal::default();
    first.put(1, &key("b", "half"), &object("half"));
    first.delete(2, &key("b", "half"));
    first.put(3, &key("b", "merged"), &object("older"));
    let mut second = Journal::default();
    second.put(7, &key("b", "half"), &object("half"));
    second.put(8, &key("b", "merged"), &newer);
    world.journal(0, "0_x.pnd", &first.bytes);
    world.journal(1, "0_x.pnd", &second.bytes);
    let summary = world.import().unwrap();
    assert_eq!(world.values("b", "half"), ["half"]);
    assert_eq!(world.values("b", "merged"), ["newer"]);
    assert_eq!(summary.counts.merged_objects, 1);
}

#[test]
fn what_has_expired_is_left_out_and_uncovers_nothing() {
    let world = World::new();
    let now = world.wall_seconds();
    let mut journal = Journal::default();
    journal.put(1, &key("b", "expired"), &object("older, without a time"));
    journal.put_until(2, &key("b", "expired"), &object("expired"), now - 1);
    journal.put_until(3, &key("b", "this second"), &object("this second"), now);
    journal.put_until(4, &key("b", "later"), &object("later"), now + 1000);
    journal.put_until(5, &key("b", "renewed"), &object("older"), now - 1000);
    journal.put(6, &key("b", "renewed"), &object("renewed"));
    journal.index_changes_until(7, &key("b", "reaped"), now - 1000);
    world.journal(0, "0_x.cdb", &journal.completed());
    let summary = world.import().unwrap();
    assert!(world.values("b", "expired").is_empty());
    assert_eq!(world.values("b", "this second"), ["this second"]);
    assert_eq!(world.values("b", "renewed"), ["renewed"]);
    let later = world.server.object("b", "later");
    let expires_at = later.siblings()[0].metadata.expires_at.unwrap();
    assert_eq!(expires_at.as_micros(), (now + 1001) * 1_000_000);
    let counts = summary.counts;
    assert_eq!((counts.keys, counts.keys_expired), (3, 2));
    assert_eq!(counts.objects_to_expire, 2);
    assert!(summary.is_whole(), "{summary}");
}

#[test]
fn tombstones_of_riaks_are_kept_unless_they_are_to_be_left_out() {
    let mut world = World::new();
    let deleted = Sibling {
        deleted: true,
        ..dotted("", "a", 2)
    };
    let mut journal = Journal::default();
    journal.put(1, &key("b", "gone"), &object_v1(&[("a", 2)], &[deleted]));
    world.journal(0, "0_x.pnd", &journal.bytes);
    assert_eq!(world.import().unwrap().counts.tombstones, 1);
    assert_eq!(world.values("b", "gone"), ["(deleted)"]);
    world.options.leave_out_tombstones = true;
    world.options.restart = true;
    world.server.store.lock().objects.clear();
    assert_eq!(world.import().unwrap().counts.tombstones_left_out, 1);
    assert!(world.values("b", "gone").is_empty());
}
