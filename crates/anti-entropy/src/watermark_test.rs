//! Tombstones stay unless every single condition holds, and receivers give nothing that was let go of.

use kvorum_planted_defects::{PlantedDefect, plant};

use crate::receiver::{AtSources, Fate, ReplicaClaim, Standing, fate_of, standings_of};
use crate::watermark::{
    Completed, DeleteMode, Incarnation, KeptBecause, LocalMark, PresentFacts, StoredTombstone,
    Verdict, judge_tombstone,
};

const REPLICAS: [Incarnation; 3] = [Incarnation(1), Incarnation(2), Incarnation(3)];

struct Case {
    tombstone: StoredTombstone,
    mark: Option<LocalMark>,
    completed: Option<Completed>,
    present: PresentFacts<'static>,
    mode: DeleteMode,
}

fn case() -> Case {
    Case {
        tombstone: StoredTombstone {
            store: 9,
            sequence: 100,
            age_micros: 1000,
        },
        mark: Some(LocalMark {
            number: 4,
            store: 9,
            sequence: 100,
        }),
        completed: Some(Completed {
            number: 4,
            epoch: 7,
            replicas: REPLICAS.to_vec(),
        }),
        present: PresentFacts {
            epoch: 7,
            replicas: &REPLICAS,
            are_all_up: true,
            hints: Some(0),
            request_micros_max: 500,
        },
        mode: DeleteMode::Immediate,
    }
}

fn judged(change: impl FnOnce(&mut Case)) -> Verdict {
    let mut case = case();
    change(&mut case);
    judge_tombstone(
        &case.tombstone,
        case.mark.as_ref(),
        case.completed.as_ref(),
        &case.present,
        case.mode,
    )
}

fn kept(change: impl FnOnce(&mut Case)) -> KeptBecause {
    match judged(change) {
        Verdict::Keep(reason) => reason,
        Verdict::Go => panic!("it went"),
    }
}

#[test]
fn a_tombstone_goes_when_all_hold_it_and_nothing_older_can_come() {
    assert_eq!(judged(|_| {}), Verdict::Go);
    assert_eq!(judged(|it| it.mode = DeleteMode::After(1000)), Verdict::Go);
    assert_eq!(judged(|it| it.tombstone.sequence = 1), Verdict::Go);
}

#[test]
fn each_condition_keeps_it_alone() {
    use KeptBecause as Because;
    assert_eq!(kept(|it| it.mode = DeleteMode::Keep), Because::DeleteMode);
    assert_eq!(
        kept(|it| it.mode = DeleteMode::After(1001)),
        Because::DeleteMode
    );
    assert_eq!(
        kept(|it| it.tombstone.age_micros = 500),
        Because::RequestsUnderWay
    );
    assert_eq!(kept(|it| it.tombstone.sequence = 101), Because::NotCompared);
    assert_eq!(kept(|it| it.tombstone.store = 8), Because::NotCompared);
    assert_eq!(kept(|it| it.mark = None), Because::NotCompared);
    assert_eq!(kept(|it| it.completed = None), Because::NotCompared);
    let newer = |it: &mut Case| it.mark.as_mut().unwrap().number = 5;
    assert_eq!(kept(newer), Because::NotCompared, "not agreed on yet");
    assert_eq!(kept(|it| it.present.epoch = 8), Because::OtherEpoch);
    const REPLACED: [Incarnation; 3] = [Incarnation(1), Incarnation(2), Incarnation(9)];
    assert_eq!(
        kept(|it| it.present.replicas = &REPLACED),
        Because::OtherReplicas
    );
    assert_eq!(
        kept(|it| it.present.replicas = &REPLICAS[..2]),
        Because::OtherReplicas
    );
    assert_eq!(
        kept(|it| it.present.are_all_up = false),
        Because::ReplicaDown
    );
    assert_eq!(
        kept(|it| it.present.hints = Some(1)),
        Because::HintsOutstanding
    );
    assert_eq!(kept(|it| it.present.hints = None), Because::HintsUnknown);
}

#[test]
fn the_planted_defect_lets_it_go_beside_a_hint() {
    let _planted = plant(PlantedDefect::TombstoneReapedBesideHint);
    assert_eq!(judged(|it| it.present.hints = Some(1)), Verdict::Go);
}

fn claim(number: Option<u64>) -> ReplicaClaim {
    let mark = number.map(|number| LocalMark {
        number,
        store: 9,
        sequence: 50,
    });
    ReplicaClaim {
        mark,
        back_since_sequence: 60,
    }
}

const RECEIVER: Standing = Standing::Receiver {
    back_since_sequence: 60,
};

fn standings(numbers: [Option<u64>; 3], completed: Option<&Completed>) -> Vec<Standing> {
    standings_of(&numbers.map(|it| Some(claim(it))), completed)
}

#[test]
fn a_replica_from_before_the_last_complete_exchange_receives() {
    use Standing::Source;
    let completed = case().completed;
    let completed = completed.as_ref();
    let restored = [Some(4), Some(3), None];
    assert_eq!(standings(restored, completed), [Source, RECEIVER, RECEIVER]);
    assert_eq!(standings([Some(4); 3], completed), [Source; 3]);
    assert_eq!(
        standings([None; 3], None),
        [Source; 3],
        "nothing was let go of"
    );
    let _planted = plant(PlantedDefect::RestoredReplicaTakenForSource);
    assert_eq!(standings(restored, completed), [Source; 3]);
}

#[test]
fn a_cluster_restored_as_a_whole_has_sources() {
    use Standing::Source;
    let completed = case().completed;
    let completed = completed.as_ref();
    assert_eq!(
        standings([Some(2), Some(3), Some(3)], completed),
        [RECEIVER, Source, Source]
    );
    assert_eq!(standings([None; 3], completed), [Source; 3]);
    let two_heard = [Some(claim(Some(3))), Some(claim(None)), None];
    let standings = standings_of(&two_heard, completed);
    assert!(
        !standings.contains(&Source),
        "the third may be one: {standings:?}"
    );
}

#[test]
fn a_receiver_gives_only_what_it_wrote_since_it_came_back() {
    use AtSources::{Absent, Held, Unknown};
    assert_eq!(fate_of(RECEIVER, 60, Absent), Fate::Dropped);
    assert_eq!(fate_of(RECEIVER, 60, Held), Fate::Replaced);
    assert_eq!(fate_of(RECEIVER, 60, Unknown), Fate::Withheld);
    for at_sources in [Absent, Held, Unknown] {
        assert_eq!(fate_of(RECEIVER, 61, at_sources), Fate::Merged);
        assert_eq!(fate_of(Standing::Source, 1, at_sources), Fate::Merged);
    }
}
