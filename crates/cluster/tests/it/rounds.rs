//! Rounds as agreed state: their epoch, the lists that may have one, and the keys whose tombstones stay.

use kvorum_cluster::{
    ClusterState, Command, GrowthStep, Member, MoveStep, Refusal, RoundRefusal, StagedChange, apply,
};
use kvorum_encoding::{Bucket, BucketType};
use kvorum_reaping::{Incarnation, ListName, Refused, RoundName, Watermark};

use crate::membership::{carry_out, cluster, commit, done, stage, step};
use crate::{
    activate_type, after, create_type, founded, node, overlay, set_bucket, set_typed_bucket,
    update_type,
};

const LIST: ListName = ListName {
    partition: 3,
    n_val: 3,
};

fn round(number: u64, nonce: u64) -> RoundName {
    RoundName { number, nonce }
}

fn announce(round: RoundName) -> Command {
    Command::AnnounceRound { list: LIST, round }
}

fn raise(round: RoundName, epoch: u64) -> Command {
    let replicas = [1, 2, 3].map(Incarnation).to_vec();
    Command::RaiseWatermark {
        list: LIST,
        watermark: Watermark {
            round,
            epoch,
            replicas,
        },
    }
}

fn refusal(state: &ClusterState, command: Command) -> RoundRefusal {
    let refused = match apply(state, command) {
        Err(Refusal::Round(refusal)) => Some(refusal),
        _ => None,
    };
    refused.unwrap()
}

fn epoch(state: &ClusterState) -> u64 {
    state.rounds_epoch().unwrap()
}

/// The state as another member reads it from a snapshot.
fn reread(state: &ClusterState) -> ClusterState {
    ClusterState::from_json(&state.to_json().unwrap()).unwrap()
}

fn keeps(state: &ClusterState, bucket_type: &'static str, bucket: &'static str) -> bool {
    state.may_have_old_copies(&BucketType::from(bucket_type), &Bucket::from(bucket))
}

#[test]
fn a_round_that_was_announced_raises_the_watermark() {
    let state = cluster(3);
    assert_eq!(state.watermark(LIST), None);
    let announced = done(&state, announce(round(1, 7)));
    assert_eq!(epoch(&announced), epoch(&state));
    assert_eq!(reread(&announced), announced);
    let raised = done(&announced, raise(round(1, 7), epoch(&state)));
    assert_eq!(reread(&raised), raised);
    assert_eq!(raised.watermark(LIST).unwrap().round, round(1, 7));
    let lists: Vec<ListName> = raised.rounds().map(|it| it.0).collect();
    assert_eq!(lists, [LIST]);
    let late = refusal(&raised, raise(round(1, 7), epoch(&state)));
    let expected = Refused::OtherRound {
        got: round(1, 7),
        expected: None,
    };
    assert_eq!(late, RoundRefusal::Refused(expected));
    let again = refusal(&raised, announce(round(1, 8)));
    let expected = Refused::OtherNumber {
        got: 1,
        expected: 2,
    };
    assert_eq!(again, RoundRefusal::Refused(expected));
}

#[test]
fn what_moves_members_or_keys_ends_the_rounds_of_all_lists() {
    let state = done(&cluster(3), announce(round(1, 7)));
    let leaves = commit(&done(&state, stage(3, StagedChange::Leave)));
    let (moving, _) = leaves.next_moves(1)[0];
    let node = node(9);
    let member = Member::new("riak@10.0.0.9");
    let changed = [
        step(&leaves, moving, MoveStep::Begin),
        done(&state, Command::AddMember { node, member }),
        done(&state, set_bucket("b", r#"{"n_val":2}"#)),
        done(
            &state,
            set_bucket(
                "b",
                r#"{"chash_keyfun":{"mod":"riak_core_util","fun":"chash_bucketonly_keyfun"}}"#,
            ),
        ),
    ];
    for state_after in &changed {
        assert_ne!(epoch(state_after), epoch(&state));
    }
}

#[test]
fn other_changes_leave_rounds_alone() {
    let state = done(&cluster(3), announce(round(1, 7)));
    let same = after(
        &state,
        [
            set_bucket("b", r#"{"allow_mult":true}"#),
            Command::NameCluster("other".into()),
            Command::ClearStaged,
        ],
    )
    .unwrap();
    assert_eq!(epoch(&same), epoch(&state));
    let raised = done(&same, raise(round(1, 7), epoch(&state)));
    let moved = done(&same, set_bucket("b", r#"{"n_val":2}"#));
    assert!(raised.watermark(LIST).is_some());
    let late = refusal(&moved, raise(round(1, 7), epoch(&state)));
    let expected = Refused::OtherEpoch {
        got: epoch(&state),
        expected: epoch(&moved),
    };
    assert_eq!(late, RoundRefusal::Refused(expected));
}

#[test]
fn lists_that_are_none_or_move_have_no_rounds() {
    let alone = founded();
    assert_eq!(
        refusal(&alone, announce(round(1, 1))),
        RoundRefusal::NoReplicas
    );
    let state = cluster(3);
    for list in [
        ListName { n_val: 5, ..LIST },
        ListName {
            partition: 8,
            ..LIST
        },
    ] {
        let round = round(1, 1);
        let refused = refusal(&state, Command::AnnounceRound { list, round });
        assert_eq!(refused, RoundRefusal::NoSuchList(list));
    }
    let leaves = commit(&done(&state, stage(3, StagedChange::Leave)));
    let (moving, _) = leaves.next_moves(1)[0];
    let begun = step(&leaves, moving, MoveStep::Begin);
    let of = |partition: u16| Command::AnnounceRound {
        list: ListName { partition, ..LIST },
        round: round(1, 1),
    };
    assert_eq!(refusal(&begun, of(moving.number())), RoundRefusal::InMotion);
    let grows = GrowthStep::Begin(2);
    let growing = done(
        &state,
        Command::Grow {
            from: 3,
            step: grows,
        },
    );
    assert_eq!(refusal(&growing, of(3)), RoundRefusal::InMotion);
}

#[test]
fn a_list_that_a_vnode_has_left_has_no_more_rounds() {
    let state = cluster(3);
    let command = announce(round(1, 1));
    assert!(apply(&state, command.clone()).is_ok());
    let leaves = commit(&done(&state, stage(3, StagedChange::Leave)));
    let fewer = carry_out(leaves, 8, |_| {});
    assert_eq!(fewer.ring().replicas_max(), 2);
    let owner = state.ring().size().partition(3).unwrap();
    let expected = RoundRefusal::OldCopies(owner);
    assert_eq!(refusal(&fewer, command.clone()), expected);
    assert_eq!(refusal(&reread(&fewer), command), expected);
}

#[test]
fn a_vnode_that_comes_to_a_list_is_noted_with_the_epoch() {
    let alone = founded();
    let owner = alone.ring().size().partition(3).unwrap();
    let next = alone.ring().size().partition(4).unwrap();
    assert_eq!(alone.joined_lists(owner, owner), 0);
    let state = cluster(3);
    assert_eq!(state.joined_lists(owner, owner), 0, "it was always there");
    let joined = state.joined_lists(owner, next);
    assert!(joined > 1 && joined <= epoch(&state), "{joined}");
    assert_eq!(reread(&state).joined_lists(owner, next), joined);
}

#[test]
fn moves_alone_leave_no_old_copies() {
    let state = carry_out(cluster(4), 8, |_| {});
    let owners = state.ring().size().partitions();
    let may = |number: u16| {
        let list = ListName {
            partition: number,
            ..LIST
        };
        state.may_announce(list).is_ok()
    };
    let with_rounds = owners.filter(|it| may(it.number())).count();
    assert!(with_rounds > 0, "no list of four nodes has rounds");
}

#[test]
fn keys_with_fewer_replicas_or_another_hash_keep_their_tombstones() {
    let state = cluster(3);
    assert!(!keeps(&state, "default", "b"));
    let fewer = done(&state, set_bucket("b", r#"{"n_val":2}"#));
    assert!(keeps(&fewer, "default", "b") && keeps(&fewer, "", "b"));
    assert!(!keeps(&fewer, "default", "other"));
    let again = done(&fewer, set_bucket("b", r#"{"n_val":3}"#));
    assert!(keeps(&reread(&again), "default", "b"));
    let hashed = set_bucket(
        "b",
        r#"{"chash_keyfun":{"mod":"riak_core_util","fun":"chash_bucketonly_keyfun"}}"#,
    );
    assert!(keeps(&done(&state, hashed), "default", "b"));
    let more = done(&state, set_bucket("b", r#"{"n_val":4}"#));
    assert!(!keeps(&more, "default", "b"));
}

#[test]
fn a_type_with_fewer_replicas_keeps_those_of_its_buckets() {
    let typed = [
        create_type("t", r#"{"n_val":3}"#),
        activate_type("t"),
        set_typed_bucket("t", "own", r#"{"n_val":3}"#),
        update_type("t", r#"{"n_val":1}"#),
    ];
    let state = after(&cluster(3), typed).unwrap();
    assert!(keeps(&state, "t", "any") && !keeps(&state, "default", "any"));
    let defaults = Command::SetDefaultProperties(overlay(r#"{"n_val":2}"#));
    assert!(keeps(&done(&cluster(3), defaults), "default", "any"));
}

/// An n_val of three needs no more than one vnode where there is one node.
#[test]
fn a_node_alone_leaves_no_copies_when_its_n_val_falls() {
    let defaults = Command::SetDefaultProperties(overlay(r#"{"n_val":1}"#));
    assert!(!keeps(&done(&founded(), defaults), "default", "any"));
}

#[test]
fn a_cluster_of_an_earlier_version_keeps_its_tombstones() {
    let mut json: serde_json::Value = serde_json::from_str(&cluster(3).to_json().unwrap()).unwrap();
    assert!(json.as_object_mut().unwrap().remove("rounds").is_some());
    let state = ClusterState::from_json(&json.to_string()).unwrap();
    assert_eq!(state.rounds_epoch(), None);
    assert!(keeps(&state, "default", "b"));
    let changed = done(&state, set_bucket("b", r#"{"n_val":2}"#));
    for state in [state, changed] {
        let refused = refusal(&state, announce(round(1, 1)));
        assert_eq!(refused, RoundRefusal::NotFollowed);
    }
}
