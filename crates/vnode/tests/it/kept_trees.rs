//! Trees outlast their run, unless their store has changed.

use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{Backend, FoldClock, Lease, Reading};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_disk::{CrashOptions, Disk, MemoryDisk, read_file, replace_file};
use kvorum_object::{Clock, Limits};
use kvorum_planted_defects::{PlantedDefect, plant};
use kvorum_ring::Epoch;
use kvorum_runtime::SeededRandomness;
use kvorum_value_log::{Tenant, ValueLog, ValueLogSettings};
use kvorum_vnode::{
    BuildStep, Condition, Handled, LeaseTable, ReplicaReply, ReplicaRequest, TreeAnswer, TreeFiles,
    TreeQuestion, TreeRequest, Vnode, VnodeSettings,
};

use crate::trees::{OneTree, tree};
use crate::{NOW, content, coordinate, partition};

/// The file of the partition.
const FILE: &str = "data/hash_trees/2";
const FILE_BYTES_MAX: u64 = 1 << 20;
const PLACEMENTS: u32 = 5;
const EPOCH: Epoch = Epoch::new(3);

/// A vnode over a bitcask with its entries in a value log.
struct Run {
    disk: MemoryDisk,
    files: TreeFiles,
    vnode: Vnode,
}

fn empty_disk() -> MemoryDisk {
    let disk = MemoryDisk::new();
    disk.create_directory(Path::new("data")).unwrap();
    disk.sync_directory(Path::new("")).unwrap();
    disk
}

impl Run {
    fn open(disk: &MemoryDisk) -> Self {
        let seam: Arc<dyn Disk> = Arc::new(disk.clone());
        let log_settings = ValueLogSettings {
            segment_bytes: 64 << 10,
            garbage_percent_max: 50,
        };
        let log = ValueLog::open(seam.clone(), Path::new("log"), 7, log_settings);
        let log = log.unwrap().0;
        let (settings, draw) = (BitcaskSettings::default(), Arc::new(|| 9));
        let shared = Some(log.clone());
        let store = Bitcask::open(seam.clone(), Path::new("store"), settings, draw, shared);
        let store = Arc::new(store.unwrap());
        let tenant: Arc<dyn Tenant> = store.clone();
        log.admit(&[tenant]).unwrap();
        let files = TreeFiles::new(seam.clone(), Path::new("data"));
        let sifted = files.sift(partition(), store.identity(), store.durable());
        sifted.unwrap();
        let randomness = Arc::new(SeededRandomness::new(1));
        let leases = LeaseTable::open(seam, Path::new("data"), randomness);
        let leases = Arc::new(leases.unwrap().0);
        let settings = VnodeSettings {
            limits: Limits::default(),
        };
        let vnode = Vnode::new(partition(), EPOCH, store, leases.clone(), settings);
        leases.renew().unwrap();
        Self {
            disk: disk.clone(),
            files,
            vnode: vnode.with_trees(Arc::new(OneTree)),
        }
    }

    fn put(&self, key: &str, value: &str) {
        let request = ReplicaRequest {
            partition: partition(),
            epoch: EPOCH,
            operation: coordinate(key, content(value), &Clock::new(), Condition::Always),
        };
        let handled = self.vnode.handle(&request, NOW, Reading::MayBlock);
        let is_stored = matches!(handled, Handled::Done(ReplicaReply::Stored { .. }));
        assert!(is_stored, "{key}");
    }

    fn put_many(&self) {
        for number in 0..20 {
            self.put(&format!("k{number}"), "v");
        }
    }

    /// Takes the trees from their file, and adds what they lack.
    fn take(&self) -> BuildStep {
        let taken = self.vnode.take_kept_trees(&self.files, PLACEMENTS, NOW);
        if taken == BuildStep::Going {
            self.build();
        }
        taken
    }

    fn build(&self) {
        let clock = FoldClock::stopped_at(NOW);
        let step = || self.vnode.build_trees(&clock, Lease::Unlimited, 3);
        while step().unwrap() == BuildStep::Going {}
    }

    /// Begins as a node does.
    fn begin(&self) -> BuildStep {
        let taken = self.take();
        self.build();
        taken
    }

    fn root(&self) -> Vec<u32> {
        let request = TreeRequest {
            partition: partition(),
            epoch: EPOCH,
            tree: tree(),
            question: TreeQuestion::Root,
        };
        let clock = FoldClock::stopped_at(NOW);
        let answer = self
            .vnode
            .answer_about_trees(&request, &clock, Lease::Unlimited);
        match answer.unwrap() {
            TreeAnswer::Root {
                root,
                is_building: false,
                ..
            } => root,
            other => panic!("{other:?}"),
        }
    }

    /// True when the trees are those that a fold over the store builds.
    fn is_right(&self) -> bool {
        let root = self.root();
        self.vnode.drop_trees();
        self.build();
        root == self.root()
    }

    fn were_kept(&self) -> bool {
        let status = self.vnode.trees_status().unwrap();
        status.were_kept && status.builds == 0
    }

    fn stop(self) -> MemoryDisk {
        self.vnode.store_for_upkeep().close().unwrap();
        assert!(self.vnode.seal_trees(&self.files).unwrap());
        self.disk
    }

    /// The disk as a power cut would leave it now.
    fn cut(&self) -> MemoryDisk {
        self.disk.crash_image(CrashOptions::nothing_unsynced())
    }
}

/// A disk on which a run was stopped cleanly.
fn stopped() -> MemoryDisk {
    let run = Run::open(&empty_disk());
    run.put_many();
    assert_eq!(run.begin(), BuildStep::Idle);
    run.stop()
}

#[test]
fn a_clean_stop_keeps_them_without_a_fold() {
    let run = Run::open(&stopped());
    assert_eq!(run.begin(), BuildStep::Built);
    assert!(run.were_kept());
    run.put("k3", "other");
    let run = Run::open(&run.stop());
    assert_eq!(run.begin(), BuildStep::Built);
    assert!(run.is_right());
}

#[test]
fn writes_before_they_are_taken_are_added() {
    let run = Run::open(&stopped());
    run.put("k3", "other");
    run.put("new", "v");
    assert_eq!(run.begin(), BuildStep::Going);
    assert!(run.were_kept() && run.is_right());
}

#[test]
fn after_a_crash_they_are_caught_up_from_the_log() {
    let run = Run::open(&empty_disk());
    run.put_many();
    run.begin();
    assert!(run.vnode.has_trees_to_keep());
    assert!(run.vnode.keep_trees(&run.files).unwrap());
    assert!(!run.vnode.has_trees_to_keep());
    run.put("k3", "other");
    run.put("new", "v");
    run.vnode.sync().unwrap();
    run.put("lost", "v");
    let run = Run::open(&run.cut());
    assert_eq!(run.begin(), BuildStep::Going);
    assert!(run.were_kept() && run.is_right());
}

#[test]
fn a_crash_after_the_store_has_written_out_what_they_lack_costs_a_rebuild() {
    let run = Run::open(&empty_disk());
    run.put_many();
    run.begin();
    assert!(run.vnode.keep_trees(&run.files).unwrap());
    run.put("new", "v");
    // The checkpoint has the batch, so the log does not replay it.
    run.vnode.store_for_upkeep().close().unwrap();
    let run = Run::open(&run.cut());
    assert_eq!(run.begin(), BuildStep::Idle);
    assert!(!run.were_kept() && run.is_right());
}

#[test]
fn r31_damage_to_kept_trees_costs_a_rebuild_and_nothing_else() {
    let disk = stopped();
    let good = read_file(&disk, Path::new(FILE), FILE_BYTES_MAX).unwrap();
    for at in [0, 30, 62, good.len() - 1] {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        let disk = disk.crash_image(CrashOptions::everything());
        replace_file(&disk, Path::new(FILE), &bytes).unwrap();
        let run = Run::open(&disk);
        assert_eq!(run.begin(), BuildStep::Idle, "byte {at}");
        assert!(disk.info(Path::new(FILE)).unwrap().is_none(), "byte {at}");
        assert!(run.is_right(), "byte {at}");
    }
}

#[test]
fn other_properties_of_buckets_cost_a_rebuild() {
    let run = Run::open(&stopped());
    let taken = run.vnode.take_kept_trees(&run.files, PLACEMENTS + 1, NOW);
    assert_eq!(taken, BuildStep::Idle);
}

#[test]
fn trees_of_an_incomplete_vnode_are_not_kept_and_not_taken() {
    let run = Run::open(&stopped());
    run.vnode.mark_incomplete();
    assert_eq!(run.take(), BuildStep::Idle);
    run.build();
    assert!(!run.vnode.keep_trees(&run.files).unwrap());
}

/// Restores an earlier copy of the store, keeps the trees, and returns true if they match the store.
fn are_right_after_a_rollback() -> bool {
    let disk = stopped();
    let earlier = disk.crash_image(CrashOptions::everything());
    let run = Run::open(&disk);
    run.begin();
    run.put("k3", "other");
    let later = run.stop();
    let trees = read_file(&later, Path::new(FILE), FILE_BYTES_MAX).unwrap();
    replace_file(&earlier, Path::new(FILE), &trees).unwrap();
    let run = Run::open(&earlier);
    run.begin();
    run.is_right()
}

#[test]
fn trees_that_are_kept_across_a_rollback_are_found() {
    assert!(are_right_after_a_rollback());
    let _planted = plant(PlantedDefect::TreeKeptAcrossRollback);
    assert!(!are_right_after_a_rollback());
}

/// A store that was rolled back reaches the sequence of the trees again, with other contents.
#[test]
fn trees_do_not_come_back_when_a_store_that_was_rolled_back_goes_on() {
    let disk = stopped();
    let earlier = disk.crash_image(CrashOptions::everything());
    let run = Run::open(&disk);
    run.begin();
    run.put("k3", "other");
    let later = run.stop();
    let trees = read_file(&later, Path::new(FILE), FILE_BYTES_MAX).unwrap();
    replace_file(&earlier, Path::new(FILE), &trees).unwrap();
    // This run has no time to build trees.
    let run = Run::open(&earlier);
    run.put("k4", "another");
    run.vnode.sync().unwrap();
    let run = Run::open(&run.cut());
    assert_eq!(run.begin(), BuildStep::Idle);
    assert!(run.is_right());
}
