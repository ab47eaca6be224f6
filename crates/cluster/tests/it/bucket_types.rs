//! The removal of bucket types, and the reset of their properties.

use kvorum_cluster::{ClusterState, Command, Member, Refusal, TypeStatus, apply};
use kvorum_encoding::{Bucket, BucketType};
use kvorum_ring::Partition;

use crate::{
    activate_type, after, create_type, founded, node, overlay, set_typed_bucket, update_type,
};

fn named(name: &'static str) -> BucketType {
    BucketType::from(name)
}

fn begin(name: &'static str) -> Command {
    Command::BeginTypeRemoval {
        bucket_type: named(name),
    }
}

fn finish(name: &'static str, since: u64) -> Command {
    Command::FinishTypeRemoval {
        bucket_type: named(name),
        since,
    }
}

fn reset(name: &'static str, property: Option<&str>) -> Command {
    Command::ResetType {
        bucket_type: named(name),
        property: property.map(str::to_owned),
    }
}

fn with_maps() -> ClusterState {
    let commands = [
        create_type("maps", r#"{"n_val":5}"#),
        activate_type("maps"),
        set_typed_bucket("maps", "b", r#"{"r":1}"#),
    ];
    after(&founded(), commands).unwrap()
}

fn status(state: &ClusterState, name: &'static str) -> Option<TypeStatus> {
    let entry = state.bucket_types().get(&named(name));
    entry.map(|entry| entry.status)
}

fn epochs(state: &ClusterState) -> Vec<u64> {
    let partitions = state.ring().partitions();
    partitions.map(|(.., epoch)| epoch.get()).collect()
}

fn add_member() -> Command {
    Command::AddMember {
        node: node(2),
        member: Member::new("riak@10.0.0.2"),
    }
}

#[test]
fn a_type_that_goes_is_hidden_and_what_was_planned_before_is_refused() {
    let before = with_maps();
    let state = apply(&before, begin("maps")).unwrap();
    let since = state.version();
    assert_eq!(status(&state, "maps"), Some(TypeStatus::Leaving { since }));
    assert!(state.is_leaving(&named("maps")));
    let unknown = state.properties(&named("maps"), &Bucket::from("b"));
    assert_eq!(
        unknown.unwrap_err().to_string(),
        "No bucket-type named 'maps'"
    );
    let raised: Vec<u64> = epochs(&before).into_iter().map(|it| it + 1).collect();
    assert_eq!(epochs(&state), raised);
    // Stored data stays where it is until the type is gone.
    let stored = state.stored_properties(&named("maps"), &Bucket::from("b"));
    assert_eq!(stored.unwrap().n_val, 5);
    assert_eq!(state.n_val_max(), 5);
    assert_eq!(apply(&state, begin("maps")).unwrap(), state);

    let gone = apply(&state, finish("maps", since)).unwrap();
    assert_eq!(status(&gone, "maps"), None);
    assert_eq!(gone.bucket_overlays().count(), 0);
    assert!(gone.removed_types().contains(&named("maps")));
    assert_eq!(gone.n_val_max(), 3);
    let again = after(&gone, [create_type("maps", "{}"), activate_type("maps")]).unwrap();
    let properties = again.properties(&named("maps"), &Bucket::from("b"));
    assert_eq!(properties.unwrap().n_val, 3);
}

#[test]
fn a_type_that_goes_is_not_changed_and_is_taken_back_by_its_activation() {
    let state = apply(&with_maps(), begin("maps")).unwrap();
    let since = state.version();
    let leaving = Refusal::TypeLeaving {
        bucket_type: named("maps"),
    };
    assert_eq!(apply(&state, create_type("maps", "{}")), Err(leaving));
    for command in [
        update_type("maps", r#"{"r":1}"#),
        reset("maps", None),
        set_typed_bucket("maps", "b", r#"{"r":2}"#),
    ] {
        assert!(apply(&state, command.clone()).is_err(), "{command:?}");
    }
    let back = apply(&state, activate_type("maps")).unwrap();
    assert_eq!(status(&back, "maps"), Some(TypeStatus::Active));
    let properties = back.properties(&named("maps"), &Bucket::from("b"));
    assert_eq!(properties.unwrap().n_val, 5);
    let overtaken = Refusal::RemovalOvertaken {
        bucket_type: named("maps"),
    };
    assert_eq!(apply(&back, finish("maps", since)), Err(overtaken.clone()));
    // Begun again, it is another removal: the answers to the first do not count.
    let begun_again = apply(&back, begin("maps")).unwrap();
    assert_eq!(apply(&begun_again, finish("maps", since)), Err(overtaken));
}

#[test]
fn a_change_of_members_or_of_the_ring_takes_removals_back() {
    let state = apply(&with_maps(), begin("maps")).unwrap();
    let joined = apply(&state, add_member()).unwrap();
    assert_eq!(status(&joined, "maps"), Some(TypeStatus::Active));
    let state = apply(&joined, begin("maps")).unwrap();
    let mut ring = state.ring().with_epochs_raised();
    ring = ring.with_replicas_max(2);
    let changed = apply(&state, Command::SetRing(ring)).unwrap();
    assert_eq!(status(&changed, "maps"), Some(TypeStatus::Active));
    // The beginning of another removal moves nothing.
    let commands = [create_type("sets", "{}"), activate_type("sets")];
    let state = after(&state, commands).unwrap();
    let both = apply(&state, begin("sets")).unwrap();
    assert!(both.is_leaving(&named("maps")) && both.is_leaving(&named("sets")));
}

#[test]
fn a_type_that_was_never_active_goes_at_once_and_the_default_one_stays() {
    let created = apply(&founded(), create_type("new", "{}")).unwrap();
    let gone = apply(&created, begin("new")).unwrap();
    assert_eq!(status(&gone, "new"), None);
    assert_eq!(epochs(&gone), epochs(&created));
    let refused = |command| apply(&gone, command).unwrap_err().to_string();
    assert_eq!(refused(begin("new")), "new is not an existing bucket type");
    assert_eq!(
        refused(begin("default")),
        "the default type cannot be removed"
    );
}

#[test]
fn no_removal_begins_while_partitions_move() {
    let joining = Member {
        status: kvorum_cluster::MemberStatus::Joining,
        ..Member::new("riak@10.0.0.2")
    };
    let join = Command::AddMember {
        node: node(2),
        member: joining,
    };
    let state = apply(&with_maps(), join).unwrap();
    let id = state.plan().unwrap().id;
    let state = apply(&state, Command::CommitPlan { id }).unwrap();
    assert!(state.transition().is_some());
    assert_eq!(apply(&state, begin("maps")), Err(Refusal::RingMoves));
    let moving: Vec<Partition> = state.ring().moves().keys().copied().collect();
    assert!(moving.is_empty(), "what is committed counts too");
}

#[test]
fn a_type_survives_its_removal_in_writing() {
    let leaving = apply(&with_maps(), begin("maps")).unwrap();
    let gone = apply(&leaving, finish("maps", leaving.version())).unwrap();
    for state in [with_maps(), leaving, gone] {
        let json = state.to_json().unwrap();
        assert_eq!(ClusterState::from_json(&json).unwrap(), state);
    }
    // An earlier version reads text that it could have written itself.
    let plain = with_maps().to_json().unwrap();
    assert!(!plain.contains("leaving_since") && !plain.contains("removed_types"));
}

#[test]
fn a_reset_takes_back_all_or_one_and_keeps_what_a_type_is() {
    let sets = r#"{"datatype":"set","n_val":5,"r":1,"w":2}"#;
    let state = after(
        &founded(),
        [create_type("sets", sets), activate_type("sets")],
    )
    .unwrap();
    let properties = |state: &ClusterState| {
        let entry = state.bucket_types()[&named("sets")].clone();
        entry.properties
    };
    let one = apply(&state, reset("sets", Some("r"))).unwrap();
    let without_r = overlay(r#"{"datatype":"set","n_val":5,"w":2}"#);
    assert_eq!(properties(&one), without_r);
    let all = apply(&state, reset("sets", None)).unwrap();
    assert_eq!(properties(&all), overlay(r#"{"datatype":"set"}"#));
    assert_eq!(apply(&all, reset("sets", None)).unwrap(), all);
    for (command, text) in [
        (reset("none", None), "Invalid bucket properties: not_active"),
        (
            reset("default", None),
            "Invalid bucket properties: no_default_update",
        ),
        (
            reset("sets", Some("colour")),
            "Invalid bucket properties: [{colour,unknown_property}]",
        ),
    ] {
        assert_eq!(apply(&state, command).unwrap_err().to_string(), text);
    }
    assert!(apply(&state, reset("sets", Some("datatype"))).is_err());
}

#[test]
fn a_reset_that_would_contradict_is_refused() {
    let newest = r#"{"dvv_enabled":false,"last_write_wins":true}"#;
    let state = after(&founded(), [create_type("t", newest), activate_type("t")]).unwrap();
    // Typed buckets have dots by default, which excludes `last_write_wins`.
    assert!(apply(&state, reset("t", Some("dvv_enabled"))).is_err());
    assert!(apply(&state, reset("t", Some("last_write_wins"))).is_ok());
    assert!(apply(&state, reset("t", None)).is_ok());
}
