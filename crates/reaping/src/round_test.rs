//! A round goes from step to step, asks all replicas in each, and ends at the first negative
//! answer.

use kvorum_planted_defects::{PlantedDefect, plant};

use crate::kept_because::KeptBecause;
use crate::round::{Round, RoundRequest};
use crate::round_event::{Asked, RoundEffect, RoundEvent, RoundOutcome};
use crate::watermark::{Incarnation, RoundName, Watermark};

const REPLICAS: usize = 3;
const MEMBERS: usize = 5;

const REQUEST: RoundRequest = RoundRequest {
    name: RoundName {
        number: 4,
        nonce: 77,
    },
    epoch: 9,
    replicas: REPLICAS,
    members: MEMBERS,
};

fn watermark() -> Watermark {
    Watermark {
        round: REQUEST.name,
        epoch: 9,
        replicas: (0..REPLICAS as u64).map(Incarnation).collect(),
    }
}

/// The answer that lets the round continue.
fn yes(effect: &RoundEffect) -> Option<RoundEvent> {
    Some(match effect {
        RoundEffect::Announce(_) => RoundEvent::Announced { is_agreed: true },
        RoundEffect::AskOpen { replica } => RoundEvent::Opened {
            replica: *replica,
            answer: Ok(Incarnation(*replica as u64)),
        },
        RoundEffect::Compare => RoundEvent::Compared { is_complete: true },
        RoundEffect::AskSettle { member } => RoundEvent::Settled {
            member: *member,
            is_settled: true,
        },
        RoundEffect::AskHints { member } => RoundEvent::Hints {
            member: *member,
            hints: Some(0),
        },
        RoundEffect::AskHintsAgain { member } => RoundEvent::HintsAgain {
            member: *member,
            answer: Ok(()),
        },
        RoundEffect::AskNote { replica } => RoundEvent::Noted {
            replica: *replica,
            answer: Ok(()),
        },
        RoundEffect::Propose(_) => RoundEvent::Agreed { is_agreed: true },
        RoundEffect::AskConfirmHints { member } => RoundEvent::HintsConfirmed {
            member: *member,
            answer: Ok(()),
        },
        RoundEffect::AskConfirm { replica } => RoundEvent::Confirmed {
            replica: *replica,
            answer: Ok(()),
        },
        RoundEffect::AskReap { replica } => RoundEvent::Reaped {
            replica: *replica,
            answer: Ok(10),
        },
        RoundEffect::End(_) => return None,
    })
}

/// The answer that ends the round, and the reason that the round then reports.
fn no(effect: &RoundEffect) -> Option<(RoundEvent, KeptBecause)> {
    let down = Err(KeptBecause::ReplicaDown);
    let event = match yes(effect)? {
        RoundEvent::Announced { .. } => RoundEvent::Announced { is_agreed: false },
        RoundEvent::Opened { replica, .. } => RoundEvent::Opened {
            replica,
            answer: Err(KeptBecause::ReplicaDown),
        },
        RoundEvent::Compared { .. } => RoundEvent::Compared { is_complete: false },
        RoundEvent::Settled { member, .. } => RoundEvent::Settled {
            member,
            is_settled: false,
        },
        RoundEvent::Hints { member, .. } => RoundEvent::Hints {
            member,
            hints: Some(1),
        },
        RoundEvent::HintsAgain { member, .. } => RoundEvent::HintsAgain {
            member,
            answer: down,
        },
        RoundEvent::Noted { replica, .. } => RoundEvent::Noted {
            replica,
            answer: down,
        },
        RoundEvent::Agreed { .. } => RoundEvent::Agreed { is_agreed: false },
        RoundEvent::HintsConfirmed { member, .. } => RoundEvent::HintsConfirmed {
            member,
            answer: down,
        },
        RoundEvent::Confirmed { replica, .. } => RoundEvent::Confirmed {
            replica,
            answer: down,
        },
        RoundEvent::Reaped { .. } | RoundEvent::Stop => return None,
    };
    let reason = match event {
        RoundEvent::Compared { .. } => KeptBecause::NotCompared,
        RoundEvent::Settled { .. } => KeptBecause::RequestsUnderWay,
        RoundEvent::Hints { .. } => KeptBecause::HintsOutstanding,
        RoundEvent::Announced { .. } | RoundEvent::Agreed { .. } => KeptBecause::OtherWatermark,
        _ => KeptBecause::ReplicaDown,
    };
    Some((event, reason))
}

/// Answers each question with yes, except the one with this number; returns all effects.
fn run(refused: Option<usize>, answer: Option<RoundEvent>) -> Vec<RoundEffect> {
    let mut effects = Vec::new();
    let mut round = Round::start(REQUEST, &mut effects);
    let mut done = 0;
    while let Some(effect) = effects.get(done).cloned() {
        let event = match refused == Some(done) {
            true => answer,
            false => yes(&effect),
        };
        done += 1;
        if let Some(event) = event {
            round.step(event, &mut effects);
        }
    }
    effects
}

fn outcome(effects: &[RoundEffect]) -> &RoundOutcome {
    match effects.last() {
        Some(RoundEffect::End(outcome)) => outcome,
        other => panic!("the round has not ended: {other:?}"),
    }
}

/// The receiver of a question.
fn asked_by(effect: &RoundEffect) -> Option<Asked> {
    match *effect {
        RoundEffect::AskOpen { replica }
        | RoundEffect::AskNote { replica }
        | RoundEffect::AskConfirm { replica }
        | RoundEffect::AskReap { replica } => Some(Asked::Replica(replica)),
        RoundEffect::AskHints { member }
        | RoundEffect::AskSettle { member }
        | RoundEffect::AskHintsAgain { member }
        | RoundEffect::AskConfirmHints { member } => Some(Asked::Member(member)),
        _ => None,
    }
}

#[test]
fn all_replicas_are_asked_in_each_step_and_in_this_order() {
    let effects = run(None, None);
    let mut expected = vec![RoundEffect::Announce(REQUEST.name)];
    expected.extend((0..REPLICAS).map(|replica| RoundEffect::AskOpen { replica }));
    expected.push(RoundEffect::Compare);
    expected.extend((0..MEMBERS).map(|member| RoundEffect::AskHints { member }));
    expected.extend((0..MEMBERS).map(|member| RoundEffect::AskSettle { member }));
    expected.extend((0..MEMBERS).map(|member| RoundEffect::AskHintsAgain { member }));
    expected.extend((0..REPLICAS).map(|replica| RoundEffect::AskNote { replica }));
    expected.push(RoundEffect::Propose(watermark()));
    expected.extend((0..MEMBERS).map(|member| RoundEffect::AskConfirmHints { member }));
    expected.extend((0..REPLICAS).map(|replica| RoundEffect::AskConfirm { replica }));
    expected.extend((0..REPLICAS).map(|replica| RoundEffect::AskReap { replica }));
    expected.push(RoundEffect::End(RoundOutcome {
        kept: None,
        kept_by: None,
        raised: Some(watermark()),
        reaped: 30,
    }));
    assert_eq!(effects, expected);
}

#[test]
fn a_single_no_ends_the_round_wherever_it_comes() {
    let all = run(None, None);
    for (at, effect) in all.iter().enumerate() {
        let Some((event, reason)) = no(effect) else {
            continue;
        };
        let effects = run(Some(at), Some(event));
        let outcome = outcome(&effects);
        assert_eq!(outcome.kept, Some(reason), "{effect:?}");
        assert_eq!(outcome.kept_by, asked_by(effect), "{effect:?}");
        assert_eq!(outcome.reaped, 0, "{effect:?}");
        let is_raised = matches!(
            effect,
            RoundEffect::AskConfirmHints { .. } | RoundEffect::AskConfirm { .. }
        );
        assert_eq!(outcome.raised.is_some(), is_raised, "{effect:?}");
        let asks = |it: &RoundEffect| matches!(it, RoundEffect::AskReap { .. });
        assert!(!effects.iter().any(asks), "{effect:?}");
    }
}

#[test]
fn a_stop_ends_the_round_wherever_it_comes() {
    let all = run(None, None);
    for at in 0..all.len() - 1 {
        let effects = run(Some(at), Some(RoundEvent::Stop));
        assert_eq!(
            outcome(&effects).kept,
            Some(KeptBecause::Stopped),
            "at {at}"
        );
        assert_eq!(outcome(&effects).kept_by, None, "at {at}");
        let ends = effects
            .iter()
            .filter(|it| matches!(it, RoundEffect::End(_)));
        assert_eq!(ends.count(), 1, "at {at}");
    }
}

#[test]
fn a_round_waits_for_each_answer() {
    let all = run(None, None);
    let (_, before_last) = all.split_last().unwrap();
    for (at, awaited) in before_last.iter().enumerate() {
        let effects = run(Some(at), None);
        let is_over = effects.iter().any(|it| matches!(it, RoundEffect::End(_)));
        assert!(!is_over, "it went on without an answer to {awaited:?}");
    }
}

#[test]
fn hints_that_are_not_known_are_hints() {
    let all = run(None, None);
    let at = all
        .iter()
        .position(|it| matches!(it, RoundEffect::AskHints { .. }))
        .unwrap();
    let event = RoundEvent::Hints {
        member: 0,
        hints: None,
    };
    let effects = run(Some(at), Some(event));
    assert_eq!(outcome(&effects).kept, Some(KeptBecause::HintsUnknown));
}

#[test]
fn a_replica_that_fails_to_remove_leaves_the_others_alone() {
    let all = run(None, None);
    let event = RoundEvent::Reaped {
        replica: 0,
        answer: Err(KeptBecause::ReplicaDown),
    };
    let at = all
        .iter()
        .position(|it| *it == RoundEffect::AskReap { replica: 0 });
    let effects = run(at, Some(event));
    let outcome = outcome(&effects);
    assert_eq!(outcome.kept, Some(KeptBecause::ReplicaDown));
    assert_eq!(outcome.kept_by, Some(Asked::Replica(0)));
    assert_eq!(outcome.reaped, 20);
    assert_eq!(outcome.raised, Some(watermark()));
}

#[test]
fn answers_that_are_not_waited_for_change_nothing() {
    let mut effects = Vec::new();
    let mut round = Round::start(REQUEST, &mut effects);
    let before = effects.clone();
    for event in [
        RoundEvent::Compared { is_complete: true },
        RoundEvent::Agreed { is_agreed: true },
        RoundEvent::Reaped {
            replica: 0,
            answer: Ok(5),
        },
        RoundEvent::Opened {
            replica: 17,
            answer: Ok(Incarnation(17)),
        },
    ] {
        round.step(event, &mut effects);
        assert_eq!(effects, before, "{event:?}");
    }
    round.step(RoundEvent::Stop, &mut effects);
    round.step(RoundEvent::Stop, &mut effects);
    assert_eq!(effects.len(), before.len() + 1);
    assert_eq!(outcome(&effects).raised, None);
}

#[test]
fn the_planted_defects_leave_steps_out() {
    let is_settle = |it: &RoundEffect| matches!(it, RoundEffect::AskSettle { .. });
    let is_confirm = |it: &RoundEffect| {
        matches!(
            it,
            RoundEffect::AskConfirmHints { .. } | RoundEffect::AskConfirm { .. }
        )
    };
    {
        let _planted = plant(PlantedDefect::OldRequestsNotAwaited);
        assert!(!run(None, None).iter().any(is_settle));
    }
    {
        let _planted = plant(PlantedDefect::ReapedBeforeConfirmed);
        assert!(!run(None, None).iter().any(is_confirm));
    }
    let _planted = plant(PlantedDefect::TombstoneReapedBesideHint);
    let all = run(None, None);
    let at = all
        .iter()
        .position(|it| *it == RoundEffect::AskHints { member: 2 });
    let event = RoundEvent::Hints {
        member: 2,
        hints: Some(1),
    };
    assert_eq!(outcome(&run(at, Some(event))).kept, None);
}
