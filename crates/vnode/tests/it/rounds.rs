//! A vnode's part in rounds: marks that last, stores that were put back, and tombstones that go.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::{ErrorKind, FoldClock, Lease, Reading};
use kvorum_disk::MemoryDisk;
use kvorum_encoding::StorageKey;
use kvorum_object::{Clock, Limits};
use kvorum_reaping::{
    DeleteMode, Incarnation, KeptBecause, ListName, NotesFileError, RoundName, Watermark,
};
use kvorum_ring::Epoch;
use kvorum_vnode::{AgreedList, BuildStep, NoteFiles, ReplicaFailure, Vnode, VnodeSettings};

use crate::trees::OneTree;
use crate::trick_backend::TrickBackend;
use crate::{Bench, NOW, content, coordinate, partition, values};

const LIST: ListName = ListName {
    partition: 2,
    n_val: 3,
};

fn round(number: u64) -> RoundName {
    RoundName { number, nonce: 70 }
}

fn watermark(number: u64, incarnation: u64) -> Watermark {
    Watermark {
        round: round(number),
        epoch: 5,
        replicas: vec![Incarnation(incarnation), Incarnation(900)],
    }
}

fn agreed(watermark: Option<Watermark>) -> AgreedList {
    AgreedList {
        list: LIST,
        watermark,
        joined: 0,
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A vnode over a store, as a node opens it.
fn opened(mut bench: Bench, mode: DeleteMode, lists: Vec<AgreedList>, now: Duration) -> Bench {
    let files = Arc::new(NoteFiles::new(
        Arc::new(bench.disk.clone()),
        Path::new("data"),
    ));
    let vnode = bench.vnode.with_trees(Arc::new(OneTree));
    bench.vnode = vnode.with_rounds(files, mode, lists, now).unwrap();
    build(&bench);
    bench
}

fn build(bench: &Bench) {
    let clock = FoldClock::stopped_at(NOW);
    while bench
        .vnode
        .build_trees(&clock, Lease::Unlimited, 100)
        .unwrap()
        == BuildStep::Going
    {}
}

fn new(mode: DeleteMode) -> Bench {
    opened(Bench::new(), mode, vec![agreed(None)], seconds(0))
}

/// The same store is opened again, or another one on the same disk.
fn again(bench: Bench, backend: Arc<TrickBackend>, lists: Vec<AgreedList>) -> Bench {
    let Bench {
        vnode,
        disk,
        leases,
        ..
    } = bench;
    drop(vnode);
    let settings = VnodeSettings {
        limits: Limits::default(),
    };
    let (epoch, backend_then) = (Epoch::new(3), backend.clone());
    let vnode = Vnode::new(partition(), epoch, backend_then, leases.clone(), settings);
    let bench = Bench {
        vnode,
        backend,
        disk,
        leases,
        reading: Reading::MayBlock,
    };
    opened(bench, DeleteMode::Immediate, lists, seconds(0))
}

/// A round as far as a replica sees it, until tombstones may go.
fn go_through(bench: &Bench, number: u64) {
    let vnode = &bench.vnode;
    let incarnation = vnode.open_round(LIST, round(number), seconds(9)).unwrap();
    vnode.note_round(LIST, round(number)).unwrap();
    let raised = watermark(number, incarnation.0);
    vnode.follow_list(agreed(Some(raised))).unwrap();
    vnode.confirm_round(LIST, round(number)).unwrap();
    vnode.allow_reaping(LIST, round(number)).unwrap();
}

fn reap(bench: &Bench) -> u64 {
    let clock = FoldClock::stopped_at(NOW);
    let list_of = |_: &StorageKey| Some(LIST);
    bench
        .vnode
        .reap_all(Epoch::new(3), &clock, &list_of)
        .unwrap()
}

fn put_and_delete(bench: &Bench, key: &str) {
    bench.put(key, "value", &Clock::new());
    bench.delete(key);
}

#[test]
fn tombstones_of_a_round_go_and_later_ones_stay() {
    let bench = new(DeleteMode::Immediate);
    bench.put("live", "value", &Clock::new());
    put_and_delete(&bench, "a");
    assert_eq!(reap(&bench), 0, "no round went through");
    bench.vnode.open_round(LIST, round(1), seconds(1)).unwrap();
    put_and_delete(&bench, "b");
    bench.vnode.note_round(LIST, round(1)).unwrap();
    assert_eq!(reap(&bench), 0, "the round is not agreed");
    let incarnation = bench.vnode.store_id().0;
    let raised = agreed(Some(watermark(1, incarnation)));
    bench.vnode.follow_list(raised).unwrap();
    bench.vnode.confirm_round(LIST, round(1)).unwrap();
    assert_eq!(reap(&bench), 0, "others have not confirmed it");
    bench.vnode.allow_reaping(LIST, round(1)).unwrap();
    assert_eq!(reap(&bench), 1);
    assert_eq!(bench.get("a"), None);
    assert!(bench.get("b").unwrap().is_tombstone());
    assert_eq!(values(&bench.get("live").unwrap()), ["value"]);
    assert_eq!(bench.vnode.tombstones_waiting(), Some(1));
    go_through(&bench, 2);
    assert_eq!(reap(&bench), 1);
    assert_eq!(bench.vnode.tombstones_waiting(), Some(0));
}

#[test]
fn a_mark_outlasts_the_run_of_its_store() {
    let bench = new(DeleteMode::Immediate);
    put_and_delete(&bench, "a");
    go_through(&bench, 1);
    let (backend, incarnation) = (bench.backend.clone(), bench.vnode.store_id().0);
    let bench = again(
        bench,
        backend,
        vec![agreed(Some(watermark(1, incarnation)))],
    );
    assert!(bench.vnode.is_complete() && !bench.vnode.hides_anything());
    assert_eq!(reap(&bench), 1);
}

#[test]
fn a_store_without_the_mark_of_a_watermark_hides_what_it_has() {
    let bench = Bench::new();
    bench.put("a", "old", &Clock::new());
    let incarnation = bench.vnode.store_id().0;
    let lists = vec![agreed(Some(watermark(4, incarnation)))];
    let bench = opened(bench, DeleteMode::Immediate, lists, seconds(0));
    assert_eq!(bench.try_get("a"), Err(ReplicaFailure::Incomplete));
    let opening = bench.vnode.open_round(LIST, round(5), seconds(9));
    assert_eq!(opening, Err(KeptBecause::ReplicaIncomplete));
    let generation = bench.vnode.hidden_generation();
    bench.vnode.remove_all_hidden(generation).unwrap();
    bench.vnode.mark_complete();
    assert_eq!(bench.get("a"), None);
    // It is current from then on, in the next run too.
    bench.put("b", "new", &Clock::new());
    let (backend, lists) = (
        bench.backend.clone(),
        vec![agreed(Some(watermark(4, incarnation)))],
    );
    let bench = again(bench, backend, lists);
    assert!(bench.vnode.is_complete());
    assert_eq!(values(&bench.get("b").unwrap()), ["new"]);
}

/// The notes lie beside the store: an older copy of it alone may be put back.
#[test]
fn notes_do_not_count_for_an_older_copy_of_the_store() {
    let bench = new(DeleteMode::Immediate);
    put_and_delete(&bench, "a");
    put_and_delete(&bench, "b");
    go_through(&bench, 1);
    let older = Arc::new(TrickBackend::new(1));
    let mut before = Bench::new();
    before.reading = Reading::MayBlock;
    before.backend = older.clone();
    let incarnation = bench.vnode.store_id().0;
    let settings = VnodeSettings {
        limits: Limits::default(),
    };
    let (epoch, leases) = (Epoch::new(3), before.leases.clone());
    before.vnode = Vnode::new(partition(), epoch, older.clone(), leases, settings);
    before.put("a", "an older value", &Clock::new());
    assert_eq!(before.vnode.store_id(), bench.vnode.store_id());
    let bench = again(bench, older, vec![agreed(Some(watermark(1, incarnation)))]);
    assert!(bench.vnode.hides_anything());
    assert_eq!(bench.try_get("a"), Err(ReplicaFailure::Incomplete));
}

#[test]
fn what_is_hidden_stays_hidden_over_a_restart() {
    let bench = Bench::new();
    bench.put("a", "old", &Clock::new());
    let lists = || vec![agreed(Some(watermark(4, 1)))];
    let bench = opened(bench, DeleteMode::Immediate, lists(), seconds(0));
    bench.put("b", "new", &Clock::new());
    let backend = bench.backend.clone();
    let bench = again(bench, backend, lists());
    assert!(!bench.vnode.is_complete());
    let generation = bench.vnode.hidden_generation();
    bench.vnode.remove_all_hidden(generation).unwrap();
    bench.vnode.mark_complete();
    assert_eq!(bench.get("a"), None);
    assert_eq!(values(&bench.get("b").unwrap()), ["new"]);
}

#[test]
fn a_repair_that_began_before_more_was_hidden_does_not_count() {
    let bench = new(DeleteMode::Immediate);
    bench.put("a", "old", &Clock::new());
    let generation = bench.vnode.hidden_generation();
    let incarnation = bench.vnode.store_id().0;
    let missed = agreed(Some(watermark(1, incarnation)));
    bench.vnode.follow_list(missed).unwrap();
    assert!(!bench.vnode.is_complete());
    let removed = bench.vnode.remove_all_hidden(generation);
    assert_eq!(removed, Err(ReplicaFailure::Incomplete));
}

#[test]
fn a_vnode_that_comes_to_a_list_has_nothing_of_it_to_hide() {
    let bench = new(DeleteMode::Immediate);
    bench.put("of another list", "value", &Clock::new());
    let joined = AgreedList {
        joined: 7,
        ..agreed(Some(watermark(3, 900)))
    };
    bench.vnode.follow_list(joined.clone()).unwrap();
    assert!(bench.vnode.is_complete() && !bench.vnode.hides_anything());
    let backend = bench.backend.clone();
    let bench = again(bench, backend, vec![joined]);
    assert!(bench.vnode.is_complete());
    go_through(&bench, 4);
}

#[test]
fn what_is_accepted_as_lost_elsewhere_is_shown_again() {
    let bench = Bench::new();
    bench.put("a", "last copy", &Clock::new());
    let lists = vec![agreed(Some(watermark(4, 1)))];
    let bench = opened(bench, DeleteMode::Immediate, lists, seconds(0));
    bench.vnode.accept_hidden().unwrap();
    bench.vnode.mark_complete();
    assert_eq!(values(&bench.get("a").unwrap()), ["last copy"]);
}

#[test]
fn a_round_is_not_opened_by_a_vnode_that_cannot_vouch_for_its_trees() {
    let open = |bench: &Bench| bench.vnode.open_round(LIST, round(1), seconds(9));
    let keeping = new(DeleteMode::Keep);
    assert_eq!(open(&keeping), Err(KeptBecause::DeleteMode));
    let bench = new(DeleteMode::Immediate);
    bench.vnode.drop_trees();
    assert_eq!(open(&bench), Err(KeptBecause::TreesInDoubt));
    build(&bench);
    assert!(open(&bench).is_ok());
    let kept = bench.vnode.keep_tombstones();
    assert_eq!(open(&bench), Err(KeptBecause::RequestsUnderWay));
    drop(kept);
    bench.backend.refuse_puts(Some(ErrorKind::Full));
    let condition = kvorum_vnode::Condition::Always;
    bench.done(coordinate("a", content("v"), &Clock::new(), condition));
    bench.backend.refuse_puts(None);
    assert_eq!(open(&bench), Err(KeptBecause::TreesInDoubt));
    bench.vnode.drop_trees();
    build(&bench);
    assert!(open(&bench).is_ok());
}

#[test]
fn tombstones_younger_than_delete_mode_says_stay() {
    let bench = new(DeleteMode::After(3_000_000));
    let open = |number, at| {
        bench
            .vnode
            .open_round(LIST, round(number), seconds(at))
            .unwrap()
    };
    let finish = |number: u64, incarnation: Incarnation| {
        bench.vnode.note_round(LIST, round(number)).unwrap();
        let raised = agreed(Some(watermark(number, incarnation.0)));
        bench.vnode.follow_list(raised).unwrap();
        bench.vnode.allow_reaping(LIST, round(number)).unwrap();
    };
    put_and_delete(&bench, "a");
    let incarnation = open(1, 10);
    finish(1, incarnation);
    assert_eq!(reap(&bench), 0, "it is not known to be three seconds old");
    put_and_delete(&bench, "b");
    open(2, 13);
    finish(2, incarnation);
    assert_eq!(
        reap(&bench),
        1,
        "the first one was there three seconds before"
    );
    open(3, 17);
    finish(3, incarnation);
    assert_eq!(reap(&bench), 1);
}

#[test]
fn notes_that_cannot_be_read_are_none() {
    let bench = new(DeleteMode::Immediate);
    put_and_delete(&bench, "a");
    go_through(&bench, 1);
    let path = Path::new("data/round_notes/2");
    damage(&bench.disk, path);
    let (backend, incarnation) = (bench.backend.clone(), bench.vnode.store_id().0);
    let bench = again(
        bench,
        backend,
        vec![agreed(Some(watermark(1, incarnation)))],
    );
    assert!(bench.vnode.hides_anything());
}

fn damage(disk: &MemoryDisk, path: &Path) {
    let mut bytes = kvorum_disk::read_file(disk, path, 1 << 20).unwrap();
    bytes[30] ^= 1;
    let refused = kvorum_reaping::decode_notes(&bytes);
    assert!(matches!(refused, Err(NotesFileError::Checksum { .. })));
    kvorum_disk::replace_file(disk, path, &bytes).unwrap();
}
