//! A replica removes what a round allows, and hides what is from before the watermark.

use kvorum_planted_defects::{PlantedDefect, plant};

use crate::extent::{BatchName, Extent};
use crate::keeper::{Keeper, KeeperStart};
use crate::keeper_event::{KeeperAnswer, KeeperEffect, KeeperEvent};
use crate::kept_because::KeptBecause;
use crate::note::{Mark, Note, Receiving};
use crate::watermark::{Incarnation, RoundName, Watermark};

const OWN: Incarnation = Incarnation(2);
const NOTHING: [KeeperEffect; 0] = [];

fn round(number: u64) -> RoundName {
    RoundName { number, nonce: 70 }
}

fn watermark(number: u64) -> Watermark {
    Watermark {
        round: round(number),
        epoch: 1,
        replicas: vec![Incarnation(1), OWN, Incarnation(3)],
    }
}

fn batch(sequence: u64) -> BatchName {
    BatchName { store: 9, sequence }
}

fn extent(sequence: u64) -> Extent {
    Extent::up_to([batch(sequence)])
}

/// A note with the mark of a round.
fn marked(number: u64, sequence: u64) -> Note {
    Note {
        mark: Some(Mark {
            round: round(number),
            extent: extent(sequence),
            is_confirmed: false,
        }),
        ..Note::default()
    }
}

fn confirmed_note(number: u64, sequence: u64) -> Note {
    let mut note = marked(number, sequence);
    note.mark.as_mut().unwrap().is_confirmed = true;
    note
}

/// With what is hidden; `None` when it was repaired.
fn receiving(number: u64, hidden: Option<u64>) -> Receiving {
    Receiving {
        watermark: round(number),
        hidden: hidden.map(extent),
    }
}

/// A keeper of stores that end with a batch, and its first effects.
fn opened(note: Note, present: Option<u64>, sequence: u64) -> (Keeper, Vec<KeeperEffect>) {
    let mut effects = Vec::new();
    let start = KeeperStart {
        incarnation: OWN,
        extent: extent(sequence),
        note,
        watermark: present.map(watermark),
        joined: 0,
    };
    let keeper = Keeper::open(start, &mut effects);
    (keeper, effects)
}

fn step(keeper: &mut Keeper, event: KeeperEvent) -> Vec<KeeperEffect> {
    let mut effects = Vec::new();
    keeper.step(event, &mut effects);
    effects
}

/// The single answer among the effects of an event.
fn answer(keeper: &mut Keeper, event: KeeperEvent) -> KeeperAnswer {
    let effects = step(keeper, event);
    match effects.last() {
        Some(KeeperEffect::Answer(answer)) => *answer,
        other => panic!("no answer but {other:?}"),
    }
}

fn open_event(number: u64, sequence: u64) -> KeeperEvent {
    KeeperEvent::Open {
        round: round(number),
        extent: extent(sequence),
    }
}

#[test]
fn a_replica_goes_through_a_round_and_may_then_remove_what_is_within_its_mark() {
    let (mut keeper, effects) = opened(marked(3, 50), Some(3), 100);
    assert_eq!(effects, NOTHING);
    let answered = answer(&mut keeper, open_event(4, 80));
    assert_eq!(answered, KeeperAnswer::Opened(Ok(OWN)));
    let noted = step(&mut keeper, KeeperEvent::MakeNote { round: round(4) });
    let expected = [
        KeeperEffect::Sync(extent(80)),
        KeeperEffect::Store(marked(4, 80)),
        KeeperEffect::Answer(KeeperAnswer::Noted(Ok(()))),
    ];
    assert_eq!(noted, expected);
    let confirm = || KeeperEvent::Confirm { round: round(4) };
    let early = answer(&mut keeper, confirm());
    let unknown = Err(KeptBecause::OtherWatermark);
    assert_eq!(early, KeeperAnswer::Confirmed(unknown));
    let reap = || KeeperEvent::Reap { round: round(4) };
    let early = answer(&mut keeper, reap());
    assert_eq!(early, KeeperAnswer::MayReap(unknown));
    assert_eq!(
        step(&mut keeper, KeeperEvent::Learned(watermark(4))),
        NOTHING,
        "it is a source"
    );
    let confirmed = answer(&mut keeper, confirm());
    assert_eq!(confirmed, KeeperAnswer::Confirmed(Ok(())));
    assert!(!keeper.may_reap(batch(1)), "others may not have confirmed");
    let allowed = step(&mut keeper, reap());
    let expected = [
        KeeperEffect::Store(confirmed_note(4, 80)),
        KeeperEffect::Answer(KeeperAnswer::MayReap(Ok(()))),
    ];
    assert_eq!(allowed, expected);
    assert!(keeper.may_reap(batch(80)));
    assert!(!keeper.may_reap(batch(81)));
    let (again, _) = opened(keeper.note().clone(), Some(4), 110);
    assert!(again.may_reap(batch(80)), "a second start goes on");
}

#[test]
fn a_replica_removes_nothing_while_the_next_round_has_its_mark() {
    let (mut keeper, _) = opened(confirmed_note(4, 80), Some(4), 100);
    assert!(keeper.may_reap(batch(80)));
    answer(&mut keeper, open_event(5, 100));
    assert!(keeper.may_reap(batch(80)), "it is opened, not noted");
    answer(&mut keeper, KeeperEvent::MakeNote { round: round(5) });
    assert!(!keeper.may_reap(batch(80)));
}

#[test]
fn a_round_that_came_to_nothing_is_replaced_by_another_with_its_number() {
    let (mut keeper, _) = opened(marked(3, 50), Some(3), 100);
    answer(&mut keeper, open_event(4, 80));
    answer(&mut keeper, KeeperEvent::MakeNote { round: round(4) });
    let other = RoundName {
        number: 4,
        nonce: 71,
    };
    let open = KeeperEvent::Open {
        round: other,
        extent: extent(90),
    };
    assert_eq!(
        answer(&mut keeper, open),
        KeeperAnswer::Opened(Ok(OWN)),
        "the number is the next still"
    );
    let noted = answer(&mut keeper, KeeperEvent::MakeNote { round: other });
    assert_eq!(noted, KeeperAnswer::Noted(Ok(())));
    let mark = keeper.note().mark.as_ref().unwrap();
    assert_eq!((mark.round, &mark.extent), (other, &extent(90)));
}

#[test]
fn a_replica_notes_only_the_round_that_it_opened_last() {
    let (mut keeper, _) = opened(marked(3, 50), Some(3), 100);
    let make_note = |number| KeeperEvent::MakeNote {
        round: round(number),
    };
    let not_noted = KeeperAnswer::Noted(Err(KeptBecause::NotNoted));
    assert_eq!(answer(&mut keeper, make_note(4)), not_noted);
    answer(&mut keeper, open_event(4, 80));
    assert_eq!(answer(&mut keeper, make_note(5)), not_noted);
    let refused = KeeperAnswer::Opened(Err(KeptBecause::OtherWatermark));
    assert_eq!(answer(&mut keeper, open_event(3, 80)), refused);
    assert_eq!(answer(&mut keeper, open_event(5, 80)), refused);
    assert_eq!(answer(&mut keeper, make_note(4)), not_noted);
    assert_eq!(keeper.note(), &marked(3, 50));
}

#[test]
fn a_replica_from_before_the_watermark_hides_what_it_had() {
    let (mut keeper, effects) = opened(marked(3, 50), Some(4), 60);
    let behind = Note {
        receiving: Some(receiving(4, Some(60))),
        ..marked(3, 50)
    };
    let expected = [
        KeeperEffect::MarkIncomplete,
        KeeperEffect::TakeFreshActor,
        KeeperEffect::Store(behind.clone()),
    ];
    assert_eq!(effects, expected);
    assert!(!keeper.shows(batch(60)));
    assert!(keeper.shows(batch(61)), "written since it came back");
    let refused = KeeperAnswer::Opened(Err(KeptBecause::ReplicaIncomplete));
    assert_eq!(answer(&mut keeper, open_event(5, 70)), refused);
    let repaired = Note {
        receiving: Some(receiving(4, None)),
        ..marked(3, 50)
    };
    let effects = step(&mut keeper, KeeperEvent::Repaired);
    let expected = [
        KeeperEffect::RemoveHidden(extent(60)),
        KeeperEffect::Store(repaired),
    ];
    assert_eq!(effects, expected);
    assert_eq!(step(&mut keeper, KeeperEvent::Repaired), NOTHING);
    answer(&mut keeper, open_event(5, 70));
    let noted = step(&mut keeper, KeeperEvent::MakeNote { round: round(5) });
    let expected = [
        KeeperEffect::Sync(extent(70)),
        KeeperEffect::Store(marked(5, 70)),
        KeeperEffect::Answer(KeeperAnswer::Noted(Ok(()))),
    ];
    assert_eq!(noted, expected);
}

#[test]
fn a_second_start_hides_no_more_than_the_first() {
    let behind = Note {
        receiving: Some(receiving(4, Some(60))),
        ..marked(3, 50)
    };
    let (keeper, effects) = opened(behind, Some(4), 95);
    assert_eq!(effects, [KeeperEffect::MarkIncomplete]);
    assert!(!keeper.shows(batch(60)) && keeper.shows(batch(61)));
}

#[test]
fn a_replica_that_was_rolled_back_learns_of_it_from_the_watermark() {
    let (mut keeper, effects) = opened(marked(3, 50), Some(3), 60);
    assert_eq!(effects, NOTHING, "the watermark is not known here yet");
    assert!(keeper.shows(batch(60)));
    let effects = step(&mut keeper, KeeperEvent::Learned(watermark(4)));
    assert_eq!(effects.first(), Some(&KeeperEffect::MarkIncomplete));
    assert!(!keeper.shows(batch(60)) && keeper.shows(batch(61)));
    let confirmed = answer(&mut keeper, KeeperEvent::Confirm { round: round(4) });
    let refused = Err(KeptBecause::NotNoted);
    assert_eq!(confirmed, KeeperAnswer::Confirmed(refused));
}

#[test]
fn a_mark_of_another_attempt_is_none() {
    let mut note = marked(4, 50);
    note.mark.as_mut().unwrap().round.nonce = 71;
    let (keeper, effects) = opened(note, Some(4), 60);
    assert_eq!(effects.first(), Some(&KeeperEffect::MarkIncomplete));
    assert!(!keeper.shows(batch(60)));
}

#[test]
fn a_mark_that_is_ahead_of_the_watermark_is_as_good() {
    let (keeper, effects) = opened(marked(5, 50), Some(4), 60);
    assert_eq!(effects, NOTHING);
    assert!(keeper.shows(batch(60)));
    assert!(!keeper.may_reap(batch(50)));
}

#[test]
fn nothing_is_hidden_before_the_first_watermark() {
    let (keeper, effects) = opened(Note::default(), None, 60);
    assert_eq!(effects, NOTHING);
    assert!(keeper.shows(batch(60)));
    assert!(!keeper.may_reap(batch(60)));
}

#[test]
fn a_replica_that_joins_hides_leftovers_and_shows_what_the_transfer_brings() {
    let (mut keeper, _) = opened(marked(3, 50), Some(3), 60);
    let join = |epoch, sequence| KeeperEvent::Joined {
        epoch,
        extent: extent(sequence),
    };
    let joined = Note {
        joined: 8,
        mark: None,
        receiving: Some(receiving(3, Some(65))),
    };
    let effects = step(&mut keeper, join(8, 65));
    let expected = [
        KeeperEffect::MarkIncomplete,
        KeeperEffect::TakeFreshActor,
        KeeperEffect::Store(joined.clone()),
    ];
    assert_eq!(effects, expected);
    assert!(!keeper.shows(batch(65)) && keeper.shows(batch(66)));
    assert_eq!(step(&mut keeper, join(8, 90)), NOTHING, "it is said again");
    let mut effects = Vec::new();
    let start = KeeperStart {
        incarnation: OWN,
        extent: extent(95),
        note: joined,
        watermark: Some(watermark(3)),
        joined: 8,
    };
    let mut again = Keeper::open(start, &mut effects);
    assert_eq!(effects, [KeeperEffect::MarkIncomplete]);
    assert!(!again.shows(batch(65)) && again.shows(batch(66)));
    step(&mut again, KeeperEvent::Repaired);
    let opened = answer(&mut again, open_event(4, 95));
    assert_eq!(opened, KeeperAnswer::Opened(Ok(OWN)));
}

#[test]
fn a_store_with_leftovers_joins_as_it_is_opened() {
    let mut effects = Vec::new();
    let start = KeeperStart {
        incarnation: OWN,
        extent: extent(60),
        note: marked(4, 50),
        watermark: Some(watermark(4)),
        joined: 8,
    };
    let keeper = Keeper::open(start, &mut effects);
    assert!(!keeper.shows(batch(60)), "the mark is of a former time");
    assert_eq!(keeper.note().joined, 8);
    assert_eq!(effects.first(), Some(&KeeperEffect::MarkIncomplete));
    assert_eq!(effects.len(), 3);
}

#[test]
fn an_accepted_loss_shows_what_was_hidden() {
    let (mut keeper, _) = opened(marked(3, 50), Some(4), 60);
    let effects = step(&mut keeper, KeeperEvent::LossAccepted);
    assert_eq!(effects, [KeeperEffect::Store(keeper.note().clone())]);
    assert!(keeper.shows(batch(60)));
    let (keeper, effects) = opened(keeper.note().clone(), Some(4), 70);
    assert_eq!(effects, NOTHING);
    assert!(keeper.shows(batch(60)));
    let (mut source, _) = opened(marked(4, 50), Some(4), 60);
    assert_eq!(step(&mut source, KeeperEvent::LossAccepted), NOTHING);
}

#[test]
fn another_store_does_not_confirm() {
    let (mut keeper, _) = opened(marked(3, 50), Some(3), 60);
    let mut other = watermark(4);
    other.replicas[1] = Incarnation(20);
    answer(&mut keeper, open_event(4, 60));
    answer(&mut keeper, KeeperEvent::MakeNote { round: round(4) });
    step(&mut keeper, KeeperEvent::Learned(other));
    let confirmed = answer(&mut keeper, KeeperEvent::Confirm { round: round(4) });
    let refused = Err(KeptBecause::OtherReplica);
    assert_eq!(confirmed, KeeperAnswer::Confirmed(refused));
}

#[test]
fn an_older_watermark_changes_nothing() {
    let (mut keeper, _) = opened(marked(3, 50), Some(3), 60);
    let effects = step(&mut keeper, KeeperEvent::Learned(watermark(2)));
    assert_eq!(effects, NOTHING);
    assert!(keeper.shows(batch(60)));
}

#[test]
fn the_planted_defect_hides_nothing() {
    let _planted = plant(PlantedDefect::RestoredReplicaTakenForSource);
    let (keeper, effects) = opened(marked(3, 50), Some(4), 60);
    assert_eq!(effects, NOTHING);
    assert!(keeper.shows(batch(60)));
}
