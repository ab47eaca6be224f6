//! The output about members and the ring, line by line.

use kvorum_cluster::{Command, MoveStep};

use super::super::example_cluster::{
    commit, done, founded, join, marked_as_down, node, settled, stage,
};
use super::*;

fn seen<'a>(state: &'a ClusterState, unreachable: &[u8]) -> Seen<'a> {
    Seen {
        state,
        leader: Some(node(1)),
        unreachable: unreachable.iter().copied().map(node).collect(),
        is_known: true,
    }
}

/// Three nodes: one is marked as down, and one will leave.
fn three() -> ClusterState {
    let state = settled(commit(&join(&join(&founded(), 2), 3)));
    let state = stage(&marked_as_down(&state, 2), 3, StagedChange::Leave);
    let rack = StagedChange::Location(Some("rack 1".to_owned()));
    stage(&state, 1, rack)
}

fn with_step(state: &ClusterState, partition: Partition, step: MoveStep) -> ClusterState {
    let at = state.ring().epoch(partition);
    done(
        state,
        Command::Move {
            partition,
            at,
            step,
        },
    )
}

/// A node that has handed over one partition, and hands over another.
fn moving() -> ClusterState {
    let state = commit(&join(&founded(), 2));
    let (first, _) = state.next_moves(1)[0];
    let steps = [MoveStep::Begin, MoveStep::Close, MoveStep::Settle];
    let step = |state, step| with_step(&state, first, step);
    let state = steps.into_iter().fold(state, step);
    let (second, _) = state.next_moves(1)[0];
    with_step(&state, second, MoveStep::Begin)
}

#[test]
fn members_have_riaks_columns() {
    assert_eq!(
        seen(&three(), &[2]).members_text(Names::Quoted),
        "\
================================= Membership ==================================
Status     Ring    Pending    Node
-------------------------------------------------------------------------------
down       37.5%      --      'b@10.0.0.2'
valid      37.5%      --      'a@10.0.0.1'
(leaving)  25.0%      --      'c@10.0.0.3'
-------------------------------------------------------------------------------
Valid:2 / Leaving:0 / Exiting:0 / Joining:0 / Down:1
"
    );
    assert_eq!(
        seen(&moving(), &[]).members_text(Names::Quoted),
        "\
================================= Membership ==================================
Status     Ring    Pending    Node
-------------------------------------------------------------------------------
valid      87.5%     50.0%    'a@10.0.0.1'
valid      12.5%     50.0%    'b@10.0.0.2'
-------------------------------------------------------------------------------
Valid:2 / Leaving:0 / Exiting:0 / Joining:0 / Down:0
"
    );
    let json = seen(&three(), &[2]).members_json();
    assert_eq!(json[0]["status"], "down");
    assert_eq!(json[2]["staged"], "leave");
}

#[test]
fn the_cluster_status_marks_the_claimant_and_what_is_unexpected() {
    // The node marked as down is reachable, and the claimant is not.
    assert_eq!(
        seen(&three(), &[1]).status_text(),
        "\
---- Cluster Status ----
Ring ready: false
Settled:    true

node                         status   avail   ring pending  location
    b@10.0.0.2               down     up!     37.5      --  --
(C) a@10.0.0.1               valid    down!   37.5      --  --
    c@10.0.0.3               valid    up      25.0      --  --

Key: (C) = Claimant; availability marked with '!' is unexpected
"
    );
    assert_eq!(
        seen(&moving(), &[2]).status_text(),
        "\
---- Cluster Status ----
Ring ready: false
Settled:    false

node                         status   avail   ring pending  location
(C) a@10.0.0.1               valid    up      87.5    50.0  --
    b@10.0.0.2               valid    down!   12.5    50.0  --

Key: (C) = Claimant; availability marked with '!' is unexpected
"
    );
    let json = seen(&moving(), &[2]).status_json();
    assert_eq!(json["ring_ready"], false);
    assert_eq!(json["settled"], false);
    assert_eq!(json["nodes"][1]["up"], false);
}

#[test]
fn the_ring_status_has_what_moves_by_owner() {
    let vnodes = "8 open, 0 opening, 0 failed\n";
    assert_eq!(
        seen(&moving(), &[2]).ring_text(vnodes),
        "\
================================== Claimant ===================================
Claimant:  'a@10.0.0.1'
Status:     up
Ring Ready: false
Settled:    false

============================== Ownership Handoff ==============================
partition  phase     owner                                 next owner
-------------------------------------------------------------------------------
        2  waiting   a@10.0.0.1                            b@10.0.0.2
        4  filling   a@10.0.0.1                            b@10.0.0.2
        6  waiting   a@10.0.0.1                            b@10.0.0.2

============================= Vnodes of This Node =============================
8 open, 0 opening, 0 failed

============================== Unreachable Nodes ==============================
The following nodes are unreachable: ['b@10.0.0.2']
"
    );
    assert_eq!(
        seen(&three(), &[]).ring_text(vnodes),
        "\
================================== Claimant ===================================
Claimant:  'a@10.0.0.1'
Status:     up
Ring Ready: true
Settled:    true

============================== Ownership Handoff ==============================
No pending changes.

============================= Vnodes of This Node =============================
8 open, 0 opening, 0 failed

============================== Unreachable Nodes ==============================
All nodes are up and reachable
"
    );
    let json = seen(&moving(), &[2]).ring_json([node(1)], &Value::Null);
    assert_eq!(json["pending"][1]["phase"], "filling");
    assert_eq!(json["voters"], json!(["a@10.0.0.1"]));
}

#[test]
fn the_ring_status_shows_replicas_and_members_that_wait_to_be_removed() {
    let lines = |state: &ClusterState| seen(state, &[]).changes_text();
    let founded = founded();
    let ring = (**settled(commit(&join(&founded, 2))).ring()).clone();
    let two = settled(commit(&join(&founded, 2)));
    let state = done(&two, Command::SetRing(ring.with_replicas_max(1)));
    let step = kvorum_cluster::GrowthStep::Begin(2);
    let growing = done(&state, Command::Grow { from: 1, step });
    assert_eq!(lines(&growing), "Replicas become 2 (Filling)\n");
    let left = settled(commit(&stage(&two, 2, StagedChange::Leave)));
    assert_eq!(
        lines(&left),
        "'b@10.0.0.2' has handed over its partitions, and is removed when it is up and keeps no \
         hinted objects any more (handoff summary)\n"
    );
}

#[test]
fn partitions_stand_under_riaks_header() {
    let state = moving();
    let mut rows: Vec<_> = [(7, "open"), (0, "opening"), (3, "open")]
        .map(|(number, word)| {
            let partition = state.ring().size().partition(number).unwrap();
            PartitionRow::new(&state, node(1), partition, word)
        })
        .into();
    assert_eq!(
        partitions_text("a@10.0.0.1", &mut rows),
        "\
Partitions owned by 'a@10.0.0.1':
type       partition state
-------------------------------------------------------------------------------
primary            3 open
primary            7 open
secondary          0 opening
"
    );
    let json = partitions_json(&rows);
    assert_eq!(json[2]["type"], "secondary");
    assert_eq!(json[2]["state"], "opening");
}

/// The lines are those of a Riak node, recorded while it gave half of its partitions away.
#[test]
fn under_riaks_names_the_ring_status_is_riaks() {
    let text = seen(&moving(), &[]).ring_riak_text();
    assert!(
        text.starts_with(
            "\
================================== Claimant ===================================
Claimant:  'a@10.0.0.1'
Status:     up
Ring Ready: true

============================== Ownership Handoff ==============================
Owner:      a@10.0.0.1
Next Owner: b@10.0.0.2

Index: 365375409332725729550921208179070754913983135744
  Waiting on: [riak_kv_vnode]

"
        ),
        "{text}"
    );
    let end = "\
-------------------------------------------------------------------------------

============================== Unreachable Nodes ==============================
All nodes are up and reachable

";
    assert!(text.ends_with(end), "{text}");
    let text = seen(&moving(), &[2]).ring_riak_text();
    for line in [
        "Ring Ready: false",
        "!!! b@10.0.0.2 is DOWN !!!",
        "The following nodes are unreachable: ['b@10.0.0.2']",
        "WARNING: The cluster state will not converge until all nodes",
    ] {
        assert!(text.lines().any(|it| it == line), "{line}: {text}");
    }
    assert!(!text.contains("Waiting on"), "{text}");
}

#[test]
fn under_riaks_names_members_and_the_cluster_status_are_riaks() {
    let text = seen(&moving(), &[]).members_text(Names::Bare);
    assert!(
        text.contains("\nvalid      87.5%     50.0%    a@10.0.0.1\n"),
        "{text}"
    );
    assert_eq!(
        seen(&moving(), &[2]).status_riak_text(),
        "\
---- Cluster Status ----
Ring ready: false

+----------------+------+-------+-----+-------+
|      node      |status| avail |ring |pending|
+----------------+------+-------+-----+-------+
| (C) a@10.0.0.1 |valid |  up   | 87.5|  50.0 |
|     b@10.0.0.2 |valid | down! | 12.5|  50.0 |
+----------------+------+-------+-----+-------+

Key: (C) = Claimant; availability marked with '!' is unexpected
"
    );
}

/// Regression: `ring-status` reported that the ring was not ready, while `ringready` printed TRUE.
#[test]
fn ringready_and_ring_status_agree() {
    for (state, unreachable) in [
        (moving(), &[][..]),
        (moving(), &[2]),
        (three(), &[2]),
        (three(), &[3]),
    ] {
        let seen = seen(&state, unreachable);
        let is_ready = seen.ringready_text().starts_with("TRUE");
        let line = format!("Ring Ready: {is_ready}\n");
        assert!(seen.ring_text("").contains(&line), "{unreachable:?}");
        assert!(seen.ring_riak_text().contains(&line), "{unreachable:?}");
    }
    let text = seen(&moving(), &[2]).ringready_text();
    assert_eq!(
        text,
        "FALSE ['b@10.0.0.2'] down.  All nodes need to be up to check."
    );
    let text = seen(&moving(), &[]).ringready_text();
    assert_eq!(
        text,
        "TRUE All nodes agree on the ring ['a@10.0.0.1','b@10.0.0.2']"
    );
}
