//! The effect of each command, and the text of each refusal.

use kvorum_cluster::{ClusterState, Command, Member, Refusal, TypeStatus, apply};
use kvorum_encoding::{Bucket, BucketType};
use kvorum_properties::{BucketProperties, Quorum};
use kvorum_ring::{Claimant, Ring, claim};

use crate::{
    activate_type, after, create_type, founded, node, overlay, set_bucket, set_typed_bucket, size,
    update_type,
};

fn properties(
    state: &ClusterState,
    bucket_type: &'static str,
    bucket: &'static str,
) -> BucketProperties {
    let found = state.properties(&BucketType::from(bucket_type), &Bucket::from(bucket));
    found.unwrap().as_ref().clone()
}

fn refusal(state: &ClusterState, command: Command) -> String {
    apply(state, command).unwrap_err().to_string()
}

#[test]
fn a_bucket_has_its_own_over_its_types_over_the_defaults() {
    let state = after(
        &founded(),
        [
            Command::SetDefaultProperties(overlay(r#"{"n_val":5,"r":1}"#)),
            create_type("t", r#"{"r":2,"w":2}"#),
            activate_type("t"),
            set_typed_bucket("t", "b", r#"{"w":"all"}"#),
            set_bucket("b", r#"{"r":"all"}"#),
        ],
    )
    .unwrap();
    assert_eq!(state.version(), 6);
    let typed = properties(&state, "t", "b");
    assert_eq!(
        (typed.n_val, typed.r, typed.w),
        (3, Quorum::Number(2), Quorum::All)
    );
    assert!(typed.allow_mult);
    assert_eq!(properties(&state, "t", "other").w, Quorum::Number(2));
    let untyped = properties(&state, "default", "b");
    assert_eq!(
        (untyped.n_val, untyped.r, untyped.allow_mult),
        (5, Quorum::All, false)
    );
    assert_eq!(properties(&state, "", "b"), untyped);
    assert_eq!(properties(&state, "", "other").r, Quorum::Number(1));
}

#[test]
fn quorums_are_honoured_from_every_layer_alike() {
    for name in ["r", "w", "dw", "pr", "pw", "rw", "node_confirms"] {
        let set = format!("{{\"{name}\":2}}");
        let of_bucket = after(&founded(), [set_bucket("b", &set)]).unwrap();
        let of_type = after(&founded(), [create_type("t", &set), activate_type("t")]).unwrap();
        let of_all = after(&founded(), [Command::SetDefaultProperties(overlay(&set))]).unwrap();
        for found in [
            properties(&of_bucket, "default", "b"),
            properties(&of_type, "t", "b"),
            properties(&of_all, "", "b"),
        ] {
            assert_eq!(found.to_json()[name], 2, "{name}");
        }
    }
}

#[test]
fn setting_keeps_what_was_set_before_and_reset_takes_all_back() {
    let state = after(
        &founded(),
        [
            set_bucket("b", r#"{"n_val":1}"#),
            set_bucket("b", r#"{"r":1}"#),
        ],
    )
    .unwrap();
    let set = properties(&state, "default", "b");
    assert_eq!((set.n_val, set.r), (1, Quorum::Number(1)));
    let reset = |bucket_type: &'static str| Command::ResetBucketProperties {
        bucket_type: bucket_type.into(),
        bucket: "b".into(),
    };
    let back = apply(&state, reset("")).unwrap();
    assert_eq!(
        properties(&back, "default", "b"),
        BucketProperties::untyped_defaults()
    );
    assert_eq!(back.bucket_overlays().count(), 0);
    assert_eq!(apply(&back, reset("")).unwrap().version(), back.version());
    assert_eq!(
        apply(&back, reset("unknown")).unwrap().version(),
        back.version()
    );
}

#[test]
fn a_type_is_created_again_until_it_is_active() {
    let created = after(&founded(), [create_type("t", r#"{"n_val":1}"#)]).unwrap();
    let name = BucketType::from("t");
    assert_eq!(created.bucket_types()[&name].status, TypeStatus::Created);
    let unusable = created.properties(&name, &Bucket::from("b")).unwrap_err();
    assert_eq!(unusable.to_string(), "No bucket-type named 't'");
    let state = after(
        &created,
        [create_type("t", r#"{"n_val":2}"#), activate_type("t")],
    )
    .unwrap();
    assert_eq!(properties(&state, "t", "b").n_val, 2);
    assert_eq!(
        apply(&state, create_type("t", "{}")),
        Err(Refusal::TypeAlreadyActive)
    );
    assert_eq!(
        apply(&state, activate_type("t")).unwrap().version(),
        state.version()
    );
}

#[test]
fn refusals_have_riaks_words() {
    let state = after(
        &founded(),
        [
            create_type("new", "{}"),
            create_type("maps", r#"{"datatype":"map"}"#),
            activate_type("maps"),
        ],
    )
    .unwrap();
    for (command, text) in [
        (
            set_typed_bucket("none", "b", "{}"),
            "No bucket-type named 'none'",
        ),
        (
            set_typed_bucket("new", "b", "{}"),
            "No bucket-type named 'new'",
        ),
        (
            update_type("none", "{}"),
            "Invalid bucket properties: not_active",
        ),
        (
            update_type("new", "{}"),
            "Invalid bucket properties: not_active",
        ),
        (
            update_type("default", "{}"),
            "Invalid bucket properties: no_default_update",
        ),
        (
            create_type("default", "{}"),
            "'default' cannot be the name of a bucket type",
        ),
        (
            create_type("any", "{}"),
            "'any' cannot be the name of a bucket type",
        ),
        (
            create_type("", "{}"),
            "'' cannot be the name of a bucket type",
        ),
        (activate_type("none"), "none is not an existing bucket type"),
        (
            set_typed_bucket("maps", "b", r#"{"allow_mult":false}"#),
            "Invalid bucket properties: [{allow_mult,\"Data Type buckets must be allow_mult=true\"}]",
        ),
        (
            set_bucket("", r#"{"n_val":1}"#),
            "Bucket cannot be zero-length",
        ),
    ] {
        assert_eq!(refusal(&state, command.clone()), text, "{command:?}");
    }
}

#[test]
fn wrong_values_are_refused_wherever_they_come_from() {
    let mut wrong = overlay("{}");
    wrong.n_val = Some(0);
    let text = "Invalid bucket properties: [{n_val,not_integer}]";
    let (bucket_type, bucket) = (BucketType::from("t"), Bucket::from("b"));
    let state = after(&founded(), [create_type("t", "{}"), activate_type("t")]).unwrap();
    for command in [
        Command::SetDefaultProperties(wrong.clone()),
        Command::CreateType {
            bucket_type: "new".into(),
            properties: wrong.clone(),
        },
        Command::UpdateType {
            bucket_type: bucket_type.clone(),
            properties: wrong.clone(),
        },
        Command::SetBucketProperties {
            bucket_type,
            bucket,
            properties: wrong,
        },
    ] {
        assert_eq!(refusal(&state, command), text);
    }
}

#[test]
fn a_type_cannot_be_changed_so_that_one_of_its_buckets_contradicts_itself() {
    let state = after(
        &founded(),
        [
            create_type("t", r#"{"dvv_enabled":false}"#),
            activate_type("t"),
            set_typed_bucket("t", "lww", r#"{"last_write_wins":true}"#),
        ],
    )
    .unwrap();
    let text = refusal(&state, update_type("t", r#"{"dvv_enabled":true}"#));
    assert!(
        text.starts_with("Invalid bucket properties: bucket 'lww' has [{dvv_enabled,"),
        "{text}"
    );
    assert_eq!(properties(&state, "t", "lww").n_val, 3);
    let wider = apply(&state, update_type("t", r#"{"n_val":4}"#)).unwrap();
    assert_eq!(properties(&wider, "t", "lww").n_val, 4);
}

#[test]
fn members_keep_distinct_names_and_leave_empty_handed() {
    let state = founded();
    let other = Member::new("riak@10.0.0.2");
    let add = |number, member| Command::AddMember {
        node: node(number),
        member,
    };
    let twice = Member::new("riak@127.0.0.1");
    assert_eq!(
        apply(&state, add(1, other.clone())),
        Err(Refusal::AlreadyMember { node: node(1) })
    );
    let taken = Refusal::NameTaken {
        name: "riak@127.0.0.1".to_owned(),
    };
    assert_eq!(apply(&state, add(2, twice.clone())), Err(taken));
    let mut state = apply(&state, add(2, other)).unwrap();
    assert_eq!(
        state.member_named("riak@10.0.0.2").map(|(node, _)| node),
        Some(node(2))
    );
    let leave = |number| Command::RemoveMember { node: node(number) };
    let owner = Refusal::OwnsPartitions {
        node: node(1),
        partitions: 8,
    };
    assert_eq!(apply(&state, leave(1)), Err(owner));
    let renamed = Command::UpdateMember {
        node: node(2),
        member: Member::new("riak@10.0.0.3"),
    };
    state = apply(&state, renamed).unwrap();
    assert_eq!(state.member(node(2)).unwrap().name, "riak@10.0.0.3");
    state = apply(&state, leave(2)).unwrap();
    assert_eq!(
        apply(&state, leave(2)),
        Err(Refusal::NotMember { node: node(2) })
    );
    assert_eq!(state.members().len(), 1);
}

#[test]
fn a_ring_is_taken_only_with_known_owners_and_rising_epochs() {
    let state = founded();
    let claimants = [1, 2].map(|number| Claimant::new(node(number)));
    let ring = claim(size(8), &claimants, 3, Some(state.ring())).unwrap();
    let stranger = Refusal::NotMember { node: node(2) };
    assert_eq!(apply(&state, Command::SetRing(ring.clone())), Err(stranger));
    let joined = Command::AddMember {
        node: node(2),
        member: Member::new("other"),
    };
    let state = apply(&state, joined).unwrap();
    let stale = claim(size(8), &claimants, 3, None).unwrap();
    assert!(matches!(
        apply(&state, Command::SetRing(stale)),
        Err(Refusal::EpochNotRaised { .. })
    ));
    let larger = Ring::single(size(16), node(1));
    let resized = Refusal::RingSizeChange {
        expected: size(8),
        got: size(16),
    };
    assert_eq!(apply(&state, Command::SetRing(larger)), Err(resized));
    let state = apply(&state, Command::SetRing(ring.clone())).unwrap();
    assert_eq!(**state.ring(), ring);
    let back = Ring::single(size(8), node(1));
    assert!(matches!(
        apply(&state, Command::SetRing(back)),
        Err(Refusal::EpochNotRaised { .. })
    ));
}
