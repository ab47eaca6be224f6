//! The plan of a run, drawn from its seed before anything runs.

use std::fmt;
use std::time::Duration;

use kvorum_properties::PropertyOverlay;

use crate::draw::Draw;
use crate::fault::{Fault, FaultKind};

/// From a limit that keeps several moves under way for as long as clients run, to one that lets all of them
/// end in that time.
const TRANSFER_RATES: [Option<u64>; 3] = [None, Some(16_000), Some(40_000)];

/// Percentage of seeds that operate on data types.
const DATA_TYPES_PERCENT: u64 = 30;

/// The engine of stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Bitcask with its entries in the node's value log, as the server has it by default, on disks that
    /// can fail.
    Bitcask,
    /// Sorted tables over the node's value log, on disks that can fail.
    Leveldb,
    /// A journal, which the node's value log is, and sorted tables of keys, on disks that can fail.
    Leveled,
    /// Sorted tables on doubling levels over the node's value log, on disks that can fail.
    Hanoidb,
    /// Pages, with the node's value log as their redo log, on disks that can fail.
    Innostore,
    /// Bitcask and leveldb side by side, each with some buckets: the backend of a bucket is drawn again
    /// every few seconds and each time that a store is opened, and earlier writes move there.
    Multi,
    /// Memory: quick, for faults that no disk has a part in.
    Memory,
}

/// The control plane: the source of the cluster's state for nodes, and of moves of partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The harness: it gives each ring to each node, each at its own time, and copies partitions that
    /// move in one piece.
    StandIn,
    /// The nodes themselves, members as the server opens them: an agreed log with elections, staged plans,
    /// transfers page by page.
    Members,
}

/// A run, before it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPlan {
    /// The seed of everything that the nodes draw.
    pub seed: u64,
    /// Nodes at the start, 3 to 9.
    pub nodes: u8,
    /// Partitions.
    pub ring_size: u64,
    /// Replicas of each key.
    pub n_val: u32,
    /// The control plane.
    pub control: Control,
    /// Clients begin when the nodes have joined, not only when partitions have moved and the number of
    /// replicas has grown. For members alone.
    pub is_early: bool,
    /// Another operator stages changes of its own, also between a look at a plan and its commit. For
    /// members alone.
    pub has_second_operator: bool,
    /// Limit on the transfers of a member; `None` for no bound.
    pub transfer_bytes_per_second: Option<u64>,
    /// The engine of stores.
    pub engine: Engine,
    /// Clients that read, write, delete and list.
    pub clients: u8,
    /// Keys that they share.
    pub keys: u16,
    /// The longest pause of a client between two requests.
    pub pause_max: Duration,
    /// The longest value, in bytes.
    pub value_bytes_max: u64,
    /// The longest that a sound disk takes for a sync.
    pub sync_max: Duration,
    /// Time for which clients go on.
    pub length: Duration,
    /// Faults meanwhile, in order of their beginning.
    pub faults: Vec<Fault>,
    /// Replicas elsewhere are asked for heads first.
    pub heads_first: bool,
    /// Percentage of requests that delete; at most 50.
    pub delete_percent: u64,
    /// Percentage of puts by clients that have not read before.
    pub blind_percent: u64,
    /// Percentage of requests whose quorums count primaries alone.
    pub strict_percent: u64,
    /// Concurrent versions stay side by side. Without, each key has one client that writes it, unless it
    /// has rivals.
    pub allow_mult: bool,
    /// Buckets have `last_write_wins`. Only where versions do not stay side by side.
    pub last_write_wins: bool,
    /// Any client writes any key, also without siblings: time decides which of two concurrent writes
    /// stays, in the same way everywhere.
    pub has_rivals: bool,
    /// After all checks, all machines but one are lost for good. For members only.
    pub loses_majority: bool,
    /// Counters and sets are operated on beside all this.
    pub has_data_types: bool,
    /// Nodes compare their replicas: differences at the end have to be mended without a read.
    pub has_exchanges: bool,
    /// Half a minute is between two exchanges that do not follow a find, and no tree is built again for
    /// its age.
    pub has_rare_exchanges: bool,
    /// At the end trees are dropped again and again while replicas are compared.
    pub drops_trees: bool,
    /// Some objects expire while the run goes on.
    pub has_expiry: bool,
    /// Rounds are led behind complete exchanges, and tombstones go. For members alone.
    pub has_reaping: bool,
}

/// Percentage of seeds whose nodes compare replicas.
const EXCHANGES_PERCENT: u64 = 50;
/// Percentage of seeds with objects that expire.
const EXPIRY_PERCENT: u64 = 25;
/// Percentages among the seeds with exchanges.
const RARE_EXCHANGES_PERCENT: u64 = 25;
const DROPPED_TREES_PERCENT: u64 = 25;
const REAPING_PERCENT: u64 = 75;

impl RunPlan {
    /// The plan of a seed.
    pub fn of_seed(seed: u64) -> Self {
        let draw = &mut Draw::new(seed ^ 0x7472_6565);
        let has_data_types = Draw::new(seed ^ 0x6461_7461).chance(DATA_TYPES_PERCENT);
        let has_exchanges = draw.chance(EXCHANGES_PERCENT);
        let has_expiry = draw.chance(EXPIRY_PERCENT);
        let is_rare = draw.chance(RARE_EXCHANGES_PERCENT);
        let drops_trees = draw.chance(DROPPED_TREES_PERCENT);
        let has_reaping = draw.chance(REAPING_PERCENT);
        Self {
            has_data_types,
            has_exchanges,
            has_expiry,
            // The judgement after a find uses the keys of two buckets.
            has_rare_exchanges: has_exchanges && is_rare && !has_data_types && !has_expiry,
            drops_trees: has_exchanges && drops_trees,
            has_reaping: has_exchanges && has_reaping,
            ..Self::drawn(seed, None)
        }
    }

    /// A plan with faults of these kinds alone, on disks: for failures that need them to meet. It has
    /// one fault at most of the kinds that make a machine lose data, however many are asked for.
    pub fn focused(seed: u64, kinds: &[FaultKind]) -> Self {
        Self::drawn(seed, Some(kinds))
    }

    fn drawn(seed: u64, focus: Option<&[FaultKind]>) -> Self {
        let draw = &mut Draw::new(seed ^ 0x6b76_6f72_756d);
        let nodes = [3, 3, 4, 4, 5, 5, 5, 6, 7, 9];
        let nodes = draw.one_of(&nodes).copied().unwrap_or(3);
        let ring_size = if nodes > 5 { 32 } else { 8 << draw.below(3) };
        let engine = match draw.below(100) {
            0..60 => Engine::Bitcask,
            _ if focus.is_some() => Engine::Bitcask,
            60..72 => Engine::Leveldb,
            72..86 => Engine::Leveled,
            86..92 => Engine::Hanoidb,
            92..95 => Engine::Multi,
            95..98 => Engine::Innostore,
            _ => Engine::Memory,
        };
        // Draws of their own, so that earlier draws stay the same.
        let kind = &mut Draw::new(seed ^ 0x6d65_6d62_6572);
        let control = match kind.below(3) {
            0 => Control::Members,
            _ => Control::StandIn,
        };
        let mut plan = Self {
            seed,
            control,
            is_early: control == Control::Members && kind.chance(40),
            has_second_operator: false,
            transfer_bytes_per_second: kind.one_of(&TRANSFER_RATES).copied().flatten(),
            nodes,
            ring_size,
            n_val: if nodes >= 5 && draw.chance(25) { 5 } else { 3 },
            engine,
            clients: u8::try_from(draw.between(4, 10)).unwrap_or(4),
            keys: u16::try_from(draw.between(8, 40)).unwrap_or(8),
            pause_max: Duration::from_millis(draw.between(20, 60)),
            value_bytes_max: draw.one_of(&[32, 256, 3_000]).copied().unwrap_or(32),
            sync_max: Duration::from_millis(*draw.one_of(&[3, 3, 15, 60]).unwrap_or(&3)),
            length: Duration::from_secs(draw.between(20, 30)),
            faults: Vec::new(),
            heads_first: draw.chance(70),
            delete_percent: *draw.one_of(&[5, 10, 10, 25]).unwrap_or(&10),
            blind_percent: *draw.one_of(&[5, 20, 20, 60]).unwrap_or(&20),
            strict_percent: *draw.one_of(&[30, 60, 60, 90]).unwrap_or(&60),
            allow_mult: !draw.chance(8),
            last_write_wins: false,
            has_rivals: false,
            loses_majority: false,
            has_data_types: false,
            has_exchanges: false,
            has_rare_exchanges: false,
            drops_trees: false,
            has_expiry: false,
            has_reaping: false,
        };
        plan.give_writers_keys();
        plan.draw_faults(draw, focus);
        // Data that a machine loses must not be about to move: the machine may be the only source.
        let may_move = control == Control::Members && !plan.is_amnesiac();
        plan.has_second_operator = may_move && kind.chance(30);
        plan
    }

    /// True when each key has one client that writes it, always over its own last read.
    pub(crate) fn has_one_writer_a_key(&self) -> bool {
        !self.allow_mult && !self.has_rivals
    }

    /// The default properties of buckets.
    pub(crate) fn default_properties(&self) -> PropertyOverlay {
        PropertyOverlay {
            allow_mult: Some(self.allow_mult),
            n_val: Some(self.n_val),
            last_write_wins: self.last_write_wins.then_some(true),
            // One excludes the other.
            dvv_enabled: self.last_write_wins.then_some(false),
            ..PropertyOverlay::default()
        }
    }

    /// Without siblings every key has one writer, so that there is a key for each.
    pub(crate) fn give_writers_keys(&mut self) {
        if !self.allow_mult {
            self.keys = self.keys.max(u16::from(self.clients));
        }
    }

    fn draw_faults(&mut self, draw: &mut Draw, focus: Option<&[FaultKind]>) {
        let (has_disk, length) = (self.engine != Engine::Memory, self.length);
        // Data that a machine loses is back only when all is repaired: one such fault a run,
        // and none while partitions move, of which it may be the only source. Where they move often
        // such a fault hardly ever fits, so most plans have one or the other.
        let is_amnesiac = has_disk && focus.is_none() && draw.chance(40);
        let may_meet = Draw::new(self.seed ^ 0x6d65_6574).chance(20);
        let fits = |kind: &FaultKind| {
            let lacks_disk = kind.needs_disk() && !has_disk;
            let is_too_much = is_amnesiac && !may_meet && kind.moves_partitions();
            !lacks_disk && !is_too_much && !kind.is_amnesia()
        };
        let mut kinds: Vec<FaultKind> = FaultKind::ALL.iter().copied().filter(fits).collect();
        match focus {
            Some(focus) => {
                kinds = focus.to_vec();
                kinds.retain(|kind| !kind.is_amnesia());
            }
            // A failure that needs the same fault twice, or two to meet, comes sooner when there are
            // few kinds.
            None if draw.chance(40) => {
                let count = draw.between(2, 5);
                kinds = (0..count)
                    .filter_map(|_| draw.one_of(&kinds).copied())
                    .collect();
            }
            None => {}
        }
        let end = u64::try_from(length.as_millis()).unwrap_or(20_000);
        let one = |draw: &mut Draw, kind| {
            // Some last long enough for nodes to be taken to be down.
            let is_long = draw.chance(30);
            let begin = draw.between(500, if is_long { end / 2 } else { end * 4 / 5 });
            let length = draw.between(100, if is_long { end / 2 } else { end / 5 });
            Fault {
                kind,
                begin: Duration::from_millis(begin),
                length: Duration::from_millis(length),
                seed: draw.next_u64(),
            }
        };
        for _ in 0..draw.between(12, 44) {
            let kind = draw.one_of(&kinds).copied().unwrap_or(FaultKind::Delay);
            self.faults.push(one(draw, kind));
        }
        let mut amnesias = vec![
            FaultKind::Wipe,
            FaultKind::Rollback,
            FaultKind::RestoredStores,
            FaultKind::LostHints,
        ];
        if let Some(focus) = focus {
            amnesias.retain(|kind| focus.contains(kind));
        }
        if let Some(kind) = draw.one_of(&amnesias)
            && (is_amnesiac || focus.is_some())
        {
            self.faults.push(one(draw, *kind));
        }
        self.faults.sort_by_key(|fault| fault.begin);
    }

    /// True when a machine loses confirmed writes.
    pub fn is_amnesiac(&self) -> bool {
        self.faults.iter().any(|fault| fault.kind.is_amnesia())
    }
}

impl fmt::Display for RunPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: {} nodes ({:?}, early {}, second operator {}, {:?} bytes/s), {} partitions, n_val {}, {:?}, {} clients, {} keys, siblings {}, last write wins {}, rivals {}, loses majority {}, data types {}, exchanges {} (rare {}, dropped trees {}, reaping {}), expiry {}, {} s, {} faults",
            self.seed,
            self.nodes,
            self.control,
            self.is_early,
            self.has_second_operator,
            self.transfer_bytes_per_second,
            self.ring_size,
            self.n_val,
            self.engine,
            self.clients,
            self.keys,
            self.allow_mult,
            self.last_write_wins,
            self.has_rivals,
            self.loses_majority,
            self.has_data_types,
            self.has_exchanges,
            self.has_rare_exchanges,
            self.drops_trees,
            self.has_reaping,
            self.has_expiry,
            self.length.as_secs(),
            self.faults.len()
        )?;
        for fault in &self.faults {
            writeln!(f, "  {fault}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_seed_gives_one_plan_and_seeds_give_many() {
        assert_eq!(RunPlan::of_seed(7), RunPlan::of_seed(7));
        assert_ne!(RunPlan::of_seed(7), RunPlan::of_seed(8));
    }

    #[test]
    fn every_kind_of_fault_is_planned_and_one_machine_at_most_forgets() {
        let mut counts: BTreeMap<FaultKind, usize> = BTreeMap::new();
        let mut meeting = 0;
        for seed in 0..300 {
            let plan = RunPlan::of_seed(seed);
            assert!((3..=9).contains(&plan.nodes));
            assert!(plan.faults.is_sorted_by_key(|fault| fault.begin));
            let amnesias = plan.faults.iter().filter(|it| it.kind.is_amnesia()).count();
            let moves = plan.faults.iter().any(|it| it.kind.moves_partitions());
            assert!(amnesias <= 1);
            meeting += usize::from(amnesias == 1 && moves);
            for fault in &plan.faults {
                *counts.entry(fault.kind).or_default() += 1;
                assert!(fault.begin + fault.length <= plan.length);
            }
        }
        assert!(meeting > 5, "{meeting}");
        for kind in FaultKind::ALL {
            assert!(
                counts.get(kind).is_some_and(|count| *count > 10),
                "{kind:?}"
            );
        }
    }
}
