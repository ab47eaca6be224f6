//! Large sets on the engines that keep them: the bytes that an addition writes, and sets after a crash.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{Backend, Durability, Durable, Reading, StepBudget};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_backend_leveldb::{Leveldb, LeveldbSettings, Shared};
use kvorum_backend_leveled::LeveledSettings;
use kvorum_data_types::{Kind, Operation as SetOperation, SetChange, Value};
use kvorum_disk::{CrashOptions, Disk, MemoryDisk};
use kvorum_object::{Limits, ObjectTag};
use kvorum_ring::Epoch;
use kvorum_runtime::SeededRandomness;
use kvorum_value_log::{Tenant, ValueLog, ValueLogSettings};
use kvorum_vnode::{
    DataTypeUpdate, Detail, Handled, LeaseTable, Operation, ReplicaReply, ReplicaRequest, Vnode,
    VnodeSettings, value_of_type,
};

use crate::{NOW, partition, storage_key};

const EPOCH: Epoch = Epoch::new(3);
/// The most steps of upkeep that are done at once.
const STEPS_MAX: usize = 1000;
const ENGINES: [Engine; 3] = [Engine::Bitcask, Engine::Leveldb, Engine::Leveled];

#[derive(Clone, Copy, Debug)]
enum Engine {
    Bitcask,
    Leveldb,
    Leveled,
}

/// A vnode over a store with its entries in a value log.
struct Run {
    disk: MemoryDisk,
    log: ValueLog,
    store: Arc<dyn Backend>,
    vnode: Vnode,
}

fn opened(
    engine: Engine,
    disk: &Arc<dyn Disk>,
    log: &ValueLog,
) -> (Arc<dyn Backend>, Arc<dyn Tenant>) {
    let (directory, draw) = (Path::new("store"), Arc::new(|| 9));
    let shared = Shared::new(1 << 20, 1 << 20);
    match engine {
        Engine::Bitcask => {
            let settings = BitcaskSettings::default();
            let store = Bitcask::open(disk.clone(), directory, settings, draw, Some(log.clone()));
            let store = Arc::new(store.unwrap());
            (store.clone(), store)
        }
        Engine::Leveldb => {
            let (settings, log) = (LeveldbSettings::default(), Some(log.clone()));
            let store = Leveldb::open(disk.clone(), directory, &settings, shared, draw, log);
            let store = store.unwrap();
            let tenant = store.tenant();
            (Arc::new(store), tenant)
        }
        Engine::Leveled => {
            let (settings, log) = (LeveledSettings::default(), log.clone());
            let disk = disk.clone();
            let store = kvorum_backend_leveled::open(disk, directory, &settings, shared, draw, log);
            let store = store.unwrap();
            let tenant = store.tenant();
            (Arc::new(store), tenant)
        }
    }
}

fn member(number: u32) -> Bytes {
    format!("member-{number:08}").into()
}

impl Run {
    fn open(engine: Engine, disk: &MemoryDisk) -> Self {
        let seam: Arc<dyn Disk> = Arc::new(disk.clone());
        let log_settings = ValueLogSettings {
            segment_bytes: 1 << 20,
            garbage_percent_max: 50,
        };
        let log = ValueLog::open(seam.clone(), Path::new("log"), 7, log_settings);
        let log = log.unwrap().0;
        let (store, tenant) = opened(engine, &seam, &log);
        log.admit(&[tenant]).unwrap();
        let randomness = Arc::new(SeededRandomness::new(1));
        let leases = LeaseTable::open(seam, Path::new("data"), randomness);
        let leases = Arc::new(leases.unwrap().0);
        let settings = VnodeSettings {
            limits: Limits::default(),
        };
        let vnode = Vnode::new(partition(), EPOCH, store.clone(), leases.clone(), settings);
        leases.renew().unwrap();
        Self {
            disk: disk.clone(),
            log,
            store,
            vnode,
        }
    }

    fn handle(&self, operation: Operation) -> ReplicaReply {
        let request = ReplicaRequest {
            partition: partition(),
            epoch: EPOCH,
            operation,
        };
        match self.vnode.handle(&request, NOW, Reading::MayBlock) {
            Handled::Done(reply) => reply,
            Handled::WouldBlock => panic!("it would block"),
        }
    }

    fn change(&self, changes: Vec<SetChange>) -> Durable {
        let reply = self.handle(Operation::Apply {
            key: storage_key("set"),
            update: Arc::new(DataTypeUpdate {
                operation: SetOperation::Set(changes),
                context: None,
                precision: 14,
                tag: ObjectTag::default(),
            }),
            durability: Durability::Grouped,
        });
        match reply {
            ReplicaReply::Stored { durable, .. } | ReplicaReply::Updated { durable, .. } => durable,
            other => panic!("{other:?}"),
        }
    }

    fn add(&self, numbers: impl Iterator<Item = u32>) -> Durable {
        self.change(numbers.map(|it| SetChange::Add(member(it))).collect())
    }

    fn members(&self) -> usize {
        let (key, detail) = (storage_key("set"), Detail::Whole);
        match self.handle(Operation::Get { key, detail }) {
            ReplicaReply::Found(object) => match value_of_type(&object, Kind::Set, 14).value() {
                Value::Set(members) => members.len(),
                other => panic!("{other:?}"),
            },
            ReplicaReply::NotFound => 0,
            other => panic!("{other:?}"),
        }
    }

    /// Does all upkeep of store and log that is due.
    fn upkeep(&self) {
        let budget = StepBudget { bytes: 1 << 20 };
        for _ in 0..STEPS_MAX {
            if self.log.is_upkeep_due() {
                self.log.upkeep_step(budget).unwrap();
            }
            match self.store.maintenance_due(NOW).first() {
                Some(task) => _ = self.store.maintenance_step(task, budget, NOW).unwrap(),
                None => return,
            }
        }
    }

    /// Bytes written to the log and to the files of the store.
    fn written_bytes(&self) -> u64 {
        self.log.appended_bytes() + self.store.status().written_bytes
    }
}

fn empty_disk() -> MemoryDisk {
    let disk = MemoryDisk::new();
    disk.create_directory(Path::new("data")).unwrap();
    disk.sync_directory(Path::new("")).unwrap();
    disk
}

/// Bytes that an addition writes, the mean of 1,000.
fn bytes_of_an_addition(engine: Engine, members: u32) -> u64 {
    let run = Run::open(engine, &empty_disk());
    run.add(0..members);
    run.store.sync().unwrap();
    run.upkeep();
    let before = run.written_bytes();
    for number in members..members + 1000 {
        run.add(std::iter::once(number));
        if number.is_multiple_of(100) {
            run.store.sync().unwrap();
            run.upkeep();
        }
    }
    run.store.sync().unwrap();
    run.store.close().unwrap();
    (run.written_bytes() - before) / 1000
}

#[test]
fn an_addition_to_100_000_members_writes_at_most_four_times_what_one_to_1000_does() {
    for engine in ENGINES {
        let few = bytes_of_an_addition(engine, 1000);
        let many = bytes_of_an_addition(engine, 100_000);
        let what = format!("{engine:?}: {few} bytes at 1,000 members, {many} at 100,000");
        assert!(few > 500, "{what}");
        assert!(many <= 4 * few, "{what}");
    }
}

/// A crash at any operation of the disk leaves a set that can be read, with all that was durable.
#[test]
fn after_a_crash_a_set_is_whole() {
    for engine in ENGINES {
        let disk = empty_disk();
        let run = Run::open(engine, &disk);
        wait(run.add(0..400));
        let mut images = Vec::new();
        for number in 400..440 {
            let durable = run.add(std::iter::once(number));
            if number.is_multiple_of(8) {
                images.push((400, run.disk.crash_image(CrashOptions::everything())));
            }
            wait(durable);
            let acknowledged = number as usize + 1;
            for options in [
                CrashOptions::nothing_unsynced(),
                CrashOptions::drawn(u64::from(number)),
            ] {
                images.push((acknowledged, run.disk.crash_image(options)));
            }
        }
        for (acknowledged, image) in images {
            let run = Run::open(engine, &image);
            let members = run.members();
            assert!(
                members >= acknowledged,
                "{engine:?}: {members}, {acknowledged}"
            );
            wait(run.add(1000..1010));
            assert_eq!(run.members(), members + 10, "{engine:?}");
        }
    }
}

/// The power is cut in the middle of additions: each of them is there whole or not at all.
#[test]
fn a_cut_in_the_middle_of_an_addition_leaves_the_set_of_before_or_after() {
    for engine in ENGINES {
        let mut cuts = 0;
        for operations in 0..24 {
            let disk = empty_disk();
            let run = Run::open(engine, &disk);
            wait(run.add(0..400));
            disk.cut_after(disk.operations() + operations);
            let key = storage_key("set");
            let update = Arc::new(DataTypeUpdate {
                operation: SetOperation::Set(
                    (400..440).map(|it| SetChange::Add(member(it))).collect(),
                ),
                context: None,
                precision: 14,
                tag: ObjectTag::default(),
            });
            let durability = Durability::Grouped;
            let reply = run.handle(Operation::Apply {
                key,
                update,
                durability,
            });
            if let ReplicaReply::Updated {
                durable: Durable::After(ticket),
                ..
            } = reply
            {
                let _cut = ticket.wait();
            }
            cuts += usize::from(disk.is_cut());
            let image = disk.crash_image(CrashOptions::drawn(operations));
            let members = Run::open(engine, &image).members();
            assert!(
                [400, 440].contains(&members),
                "{engine:?}, cut at {operations}: {members}"
            );
        }
        assert!(cuts > 0, "{engine:?}");
    }
}

fn wait(durable: Durable) {
    if let Durable::After(ticket) = durable {
        ticket.wait().unwrap();
    }
}
