//! Brings a plan's faults about, and takes them back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kvorum_cluster::MemberStatus;
use kvorum_disk::{ErrorKind, Fault as DiskFault, MemoryDisk, Operation, Rule};
use kvorum_runtime::Link;
use kvorum_test_cluster::machine;

use crate::cluster::{Cluster, MemberChange};
use crate::draw::Draw;
use crate::fault::{Fault, FaultKind};
use crate::machine::Machine;
use crate::messages::Disturbance;
use crate::plan::Control;
use crate::weather::FAIR;

/// Time for which a restarted node is down.
const RESTART_PAUSE: Duration = Duration::from_millis(200);
/// Hints that a node keeps for longer than this are lost while it loses hints.
const HINTS_LOST_EVERY: Duration = Duration::from_millis(200);
/// A node whose disk is sound again starts within this, or something is wrong.
const START_WAIT_MAX: Duration = Duration::from_secs(60);

fn both_ways(one: &[u8], other: &[u8]) -> BTreeSet<(u8, u8)> {
    let pairs = one
        .iter()
        .flat_map(|from| other.iter().map(|to| (*from, *to)));
    let pairs = pairs.filter(|(from, to)| from != to);
    pairs
        .flat_map(|(from, to)| [(from, to), (to, from)])
        .collect()
}

/// One fault while it lasts.
struct Storm<'a> {
    cluster: &'a Arc<Cluster>,
    id: usize,
    fault: &'a Fault,
    draw: Draw,
}

impl Cluster {
    /// Lets a fault begin when it is due, last, and end.
    pub(crate) async fn bring_about(self: Arc<Self>, id: usize) {
        let Some(fault) = self.plan.faults.get(id).cloned() else {
            return;
        };
        self.runtime.sleep(fault.begin).await;
        let mut storm = Storm {
            cluster: &self,
            id,
            fault: &fault,
            draw: Draw::new(fault.seed),
        };
        self.note(&format!("fault {id}: {fault}"));
        if storm.rage().await {
            self.count(fault.kind);
        }
        self.note(&format!("fault {id} is over"));
    }

    /// A fault has hit something.
    pub(crate) fn count(&self, kind: FaultKind) {
        *self.ledger.lock().faults.entry(kind).or_default() += 1;
    }

    /// True if no data would be lost with one machine. A node with two replicas of a key may be the only one
    /// that confirmed a write, and rightly loses it with its data. A partition that moves may have but one
    /// source.
    fn survives_amnesia(&self) -> bool {
        let agreed = self.agreed();
        let ring = agreed.ring();
        let n_val = u16::try_from(self.plan.n_val).unwrap_or(3);
        let moves = agreed.transition().is_some() || ring.growth().is_some();
        let is_settled = !moves && ring.moves().is_empty();
        let is_grown = self.plan.control == Control::StandIn || ring.replicas_max() >= n_val;
        ring.crowded(n_val).is_empty() && is_settled && is_grown
    }

    /// Starts a node unless another fault keeps it down; a failing disk may take several attempts.
    pub(crate) async fn revive(&self, machine: &Machine) {
        let begun = self.runtime.now();
        loop {
            let is_held = {
                let weather = self.weather.lock();
                weather
                    .holds
                    .get(&machine.number)
                    .is_some_and(|it| !it.is_empty())
            };
            if is_held || machine.is_retired() {
                return;
            }
            match machine.start().await {
                Ok(()) => {
                    let recovery = machine.running().map(|node| node.stores.recovery());
                    self.note(&format!("node {} starts: {recovery:?}", machine.number));
                    // Forgotten state shows before others send it.
                    let _agreed = self.agreed();
                    self.check_losses(machine);
                    return;
                }
                Err(error) => {
                    self.note(&format!(
                        "node {} does not start: {error:#}",
                        machine.number
                    ));
                    if self.runtime.now().since(begun) > START_WAIT_MAX {
                        self.accuse(&format!(
                            "node {} does not start: {error:#}",
                            machine.number
                        ));
                        return;
                    }
                }
            }
            self.runtime.sleep(Duration::from_millis(300)).await;
        }
    }
}

impl Storm<'_> {
    /// The whole of the fault; false when there was nothing that it could hit.
    async fn rage(&mut self) -> bool {
        let machines = self.cluster.all_machines();
        let numbers: Vec<u8> = machines.iter().map(|machine| machine.number).collect();
        let Some(victim) = self.draw.one_of(&machines).cloned() else {
            return false;
        };
        self.cluster
            .note(&format!("it hits node {}", victim.number));
        // A node with two replicas of a key may be the only one that confirmed a write, and rightly
        // loses it with its data.
        if self.fault.kind.is_amnesia() && !self.cluster.survives_amnesia() {
            return false;
        }
        match self.fault.kind {
            FaultKind::PartitionHalves
            | FaultKind::IsolateOne
            | FaultKind::OneWay
            | FaultKind::Bridge => self.cut(&numbers, victim.number).await,
            FaultKind::Clog => self.clog(&numbers).await,
            FaultKind::Delay | FaultKind::Jitter | FaultKind::SlowNode => {
                self.delay(numbers, &victim).await;
            }
            FaultKind::ResetConnections | FaultKind::LossyLink => {
                self.break_connections(&numbers, victim.number).await;
            }
            FaultKind::LostMessages | FaultKind::DoubledMessages | FaultKind::OvertakenMessages => {
                return self.disturb_messages(victim.number).await;
            }
            FaultKind::ClockForward => self.jump_clock(&victim, 1),
            FaultKind::ClockBack => self.jump_clock(&victim, -1),
            FaultKind::Crash => self.crash(&[victim]).await,
            FaultKind::CrashAll => self.crash(&machines).await,
            FaultKind::Restart => return self.restart(&victim).await,
            FaultKind::ReadError
            | FaultKind::WriteError
            | FaultKind::SyncError
            | FaultKind::DiskFull => return self.spoil_disk(&victim).await,
            FaultKind::SlowDisk => self.slow_disk(&victim).await,
            FaultKind::Wipe => self.replace_disk(&victim, &MemoryDisk::new()).await,
            FaultKind::Rollback => {
                let Some(copy) = victim.copy_disk() else {
                    return false;
                };
                self.cluster.ledger.lock().is_amnesiac = true;
                self.cluster.runtime.sleep(self.fault.length).await;
                // Something may have begun to move meanwhile.
                if !self.cluster.survives_amnesia() {
                    return false;
                }
                self.replace_disk(&victim, &copy).await;
            }
            FaultKind::RestoredStores => return self.restore_stores(&victim).await,
            FaultKind::LostHints => return self.lose_hints(&victim).await,
            FaultKind::Join | FaultKind::Leave | FaultKind::Replace => {
                self.ask_for_change(&victim);
                // It counts as a hit when it is agreed on.
                return false;
            }
            FaultKind::LateNews => return self.withhold_news(&victim).await,
        }
        true
    }

    async fn cut(&mut self, numbers: &[u8], victim: u8) {
        let mut halves = (Vec::new(), Vec::new());
        for number in numbers {
            match self.draw.chance(50) {
                true => halves.0.push(*number),
                false => halves.1.push(*number),
            }
        }
        let mut cut = match self.fault.kind {
            FaultKind::PartitionHalves => both_ways(&halves.0, &halves.1),
            FaultKind::Bridge => {
                let mut cut = both_ways(&halves.0, &halves.1);
                cut.retain(|(from, to)| *from != victim && *to != victim);
                cut
            }
            _ => both_ways(&[victim], numbers),
        };
        if self.fault.kind == FaultKind::OneWay {
            let is_mute = self.draw.chance(50);
            cut.retain(|(from, to)| {
                if is_mute {
                    *from == victim
                } else {
                    *to == victim
                }
            });
        }
        self.set_cut(Some(cut));
        self.cluster.runtime.sleep(self.fault.length).await;
        self.set_cut(None);
    }

    fn set_cut(&self, cut: Option<BTreeSet<(u8, u8)>>) {
        {
            let mut weather = self.cluster.weather.lock();
            match cut {
                Some(cut) => weather.cuts.insert(self.id, cut),
                None => weather.cuts.remove(&self.id),
            };
        }
        self.cluster.set_links();
    }

    async fn clog(&mut self, numbers: &[u8]) {
        let mut chosen: Vec<u8> = numbers.to_vec();
        chosen.retain(|_| self.draw.chance(60));
        let steps = u32::try_from(2 * chosen.len().max(1)).unwrap_or(2);
        let pause = self.fault.length / steps;
        let mut clogged: Vec<u8> = Vec::new();
        for number in &chosen {
            clogged.push(*number);
            self.set_cut(Some(both_ways(&clogged, numbers)));
            self.cluster.runtime.sleep(pause).await;
        }
        while !clogged.is_empty() {
            let at = self.draw.below(clogged.len() as u64);
            clogged.remove(usize::try_from(at).unwrap_or(0));
            self.set_cut(Some(both_ways(&clogged, numbers)));
            self.cluster.runtime.sleep(pause).await;
        }
        self.set_cut(None);
    }

    async fn delay(&mut self, numbers: Vec<u8>, victim: &Machine) {
        let millis = |draw: &mut Draw, low, high| Duration::from_millis(draw.between(low, high));
        let (numbers, link) = match self.fault.kind {
            FaultKind::Delay => {
                let least = millis(&mut self.draw, 5, 60);
                (
                    numbers,
                    Link {
                        delay_min: least,
                        delay_max: least * 2,
                        is_cut: false,
                    },
                )
            }
            FaultKind::Jitter => {
                let most = millis(&mut self.draw, 100, 900);
                let mut some = numbers;
                some.retain(|_| self.draw.chance(40));
                (
                    some,
                    Link {
                        delay_max: most,
                        ..FAIR
                    },
                )
            }
            _ => {
                let least = millis(&mut self.draw, 50, 400);
                (
                    vec![victim.number],
                    Link {
                        delay_min: least,
                        delay_max: least * 2,
                        is_cut: false,
                    },
                )
            }
        };
        let slow_sync = match self.fault.kind {
            FaultKind::SlowNode => 100_000,
            _ => 0,
        };
        victim.slowness.fetch_add(slow_sync, Ordering::Relaxed);
        self.cluster
            .weather
            .lock()
            .delays
            .insert(self.id, (numbers, link));
        self.cluster.set_links();
        self.cluster.runtime.sleep(self.fault.length).await;
        self.cluster.weather.lock().delays.remove(&self.id);
        self.cluster.set_links();
        victim.slowness.fetch_sub(slow_sync, Ordering::Relaxed);
    }

    async fn break_connections(&mut self, numbers: &[u8], victim: u8) {
        let (runtime, world) = (&self.cluster.runtime, &self.cluster.world);
        let end = runtime.now().plus(self.fault.length);
        loop {
            for other in numbers.iter().filter(|other| **other != victim) {
                if self.fault.kind == FaultKind::ResetConnections || self.draw.chance(60) {
                    world.break_connections(machine(victim), machine(*other));
                }
            }
            let pause = Duration::from_millis(self.draw.between(30, 500));
            if self.fault.kind == FaultKind::ResetConnections || runtime.now().plus(pause) > end {
                return;
            }
            runtime.sleep(pause).await;
        }
    }

    /// True when it hit a message.
    async fn disturb_messages(&mut self, victim: u8) -> bool {
        let percent = match self.fault.kind {
            // Each costs its sender the whole of its patience.
            FaultKind::LostMessages => self.draw.between(1, 8),
            _ => self.draw.between(5, 40),
        };
        let late_max = Duration::from_millis(self.draw.between(20, 1_500));
        let disturbance = Disturbance {
            kind: self.fault.kind,
            to: self.draw.chance(50).then_some(victim),
            percent,
            late_max,
            draw: Draw::new(self.draw.next_u64()),
            lasts: true,
            hits: 0,
        };
        let (messages, runtime) = (&self.cluster.messages, &self.cluster.runtime);
        messages.begin(self.id, disturbance);
        runtime.sleep(self.fault.length).await;
        messages.let_be(self.id);
        runtime.sleep(late_max).await;
        messages.end(self.id) > 0
    }

    fn jump_clock(&mut self, victim: &Machine, sign: i64) {
        // From a moment to a day.
        let most = [500_000, 60_000_000, 86_400_000_000_u64];
        let most = self.draw.one_of(&most).copied().unwrap_or(500_000);
        let micros = i64::try_from(self.draw.between(1_000, most)).unwrap_or(1_000);
        victim.jump_clock(sign * micros);
    }

    fn hold(&self, victim: &Machine) {
        let mut weather = self.cluster.weather.lock();
        weather
            .holds
            .entry(victim.number)
            .or_default()
            .insert(self.id);
    }

    async fn release(&self, victim: &Machine) {
        if let Some(holds) = self.cluster.weather.lock().holds.get_mut(&victim.number) {
            holds.remove(&self.id);
        }
        self.cluster.revive(victim).await;
    }

    async fn crash(&mut self, victims: &[Arc<Machine>]) {
        for victim in victims {
            self.hold(victim);
            victim.crash(self.draw.next_u64());
        }
        self.cluster.runtime.sleep(self.fault.length).await;
        for victim in victims {
            self.release(victim).await;
        }
    }

    async fn restart(&mut self, victim: &Machine) -> bool {
        if victim.running().is_none() {
            return false;
        }
        self.hold(victim);
        victim.stop().await;
        self.cluster.runtime.sleep(RESTART_PAUSE).await;
        self.release(victim).await;
        true
    }

    /// True when it made an operation fail.
    async fn spoil_disk(&mut self, victim: &Machine) -> bool {
        let on = |error, operation| Rule::new(DiskFault::Error(error)).on(operation);
        let rules = match self.fault.kind {
            FaultKind::ReadError => vec![on(ErrorKind::Device, Operation::Read)],
            FaultKind::WriteError => {
                let bytes = usize::try_from(self.draw.below(200)).unwrap_or(0);
                let torn = Rule::new(DiskFault::TornWrite { bytes });
                vec![torn.nth(1), on(ErrorKind::Device, Operation::Write)]
            }
            FaultKind::SyncError => vec![on(ErrorKind::Device, Operation::Sync)],
            _ => vec![
                on(ErrorKind::NoSpace, Operation::Write),
                on(ErrorKind::NoSpace, Operation::Allocate),
            ],
        };
        victim.spoil_disk(self.id, rules);
        self.cluster.runtime.sleep(self.fault.length).await;
        let failed = victim.mend_disk(self.id);
        let needs_restart = matches!(
            self.fault.kind,
            FaultKind::WriteError | FaultKind::SyncError
        );
        if needs_restart {
            // A store or log refuses writes after such an error, so the machine is rebooted.
            self.hold(victim);
            victim.crash(self.draw.next_u64());
            self.cluster.runtime.sleep(RESTART_PAUSE).await;
            self.release(victim).await;
        }
        failed > 0
    }

    async fn slow_disk(&mut self, victim: &Machine) {
        let micros = self.draw.between(10_000, 400_000);
        victim.slowness.fetch_add(micros, Ordering::Relaxed);
        self.cluster.runtime.sleep(self.fault.length).await;
        victim.slowness.fetch_sub(micros, Ordering::Relaxed);
    }

    async fn replace_disk(&mut self, victim: &Machine, copy: &MemoryDisk) {
        self.cluster.ledger.lock().is_amnesiac = true;
        self.hold(victim);
        if let Err(error) = victim.crash_onto(self.draw.next_u64(), copy) {
            self.cluster.accuse(&format!("no copy of a disk: {error}"));
        }
        self.cluster.runtime.sleep(RESTART_PAUSE).await;
        self.release(victim).await;
    }

    /// True when the stores were put back.
    async fn restore_stores(&mut self, victim: &Machine) -> bool {
        let Some(copy) = victim.copy_disk() else {
            return false;
        };
        self.cluster.runtime.sleep(self.fault.length).await;
        // Something may have begun to move meanwhile.
        if victim.running().is_none() || !self.cluster.survives_amnesia() {
            return false;
        }
        self.cluster.ledger.lock().is_amnesiac = true;
        self.hold(victim);
        victim.stop().await;
        if let Err(error) = victim.restore_stores(&copy) {
            self.cluster.accuse(&format!("no copy of a disk: {error}"));
        }
        self.cluster.runtime.sleep(RESTART_PAUSE).await;
        self.release(victim).await;
        true
    }

    /// True when there were hints to lose.
    async fn lose_hints(&mut self, victim: &Machine) -> bool {
        let (cluster, mut lost) = (self.cluster, 0);
        let end = cluster.runtime.now().plus(self.fault.length);
        while cluster.runtime.now() < end {
            let here = victim.running().map_or(0, |node| node.lose_hints());
            if here > 0 {
                cluster.ledger.lock().is_amnesiac = true;
                cluster.note(&format!("node {} loses {here} hints", victim.number));
            }
            lost += here;
            cluster.runtime.sleep(HINTS_LOST_EVERY).await;
        }
        lost > 0
    }

    /// True when there was something to learn.
    async fn withhold_news(&mut self, victim: &Machine) -> bool {
        let Cluster {
            messages, weather, ..
        } = &**self.cluster;
        weather.lock().deaf.insert(self.id, victim.number);
        let news = Disturbance {
            kind: FaultKind::LateNews,
            to: Some(victim.number),
            percent: 100,
            late_max: Duration::ZERO,
            draw: self.draw.clone(),
            lasts: true,
            hits: 0,
        };
        messages.begin(self.id, news);
        self.cluster.runtime.sleep(self.fault.length).await;
        messages.end(self.id);
        weather.lock().deaf.remove(&self.id);
        victim.learned().version() < self.cluster.agreed().version()
    }

    fn ask_for_change(&mut self, victim: &Machine) {
        let state = self.cluster.agreed();
        let is_valid = |member: &kvorum_cluster::Member| member.status == MemberStatus::Valid;
        let members = state.members().values().filter(|it| is_valid(it)).count();
        let enough = usize::try_from(self.cluster.plan.n_val).unwrap_or(3);
        let is_member = state.member(victim.node()).is_some_and(is_valid);
        let change = match self.fault.kind {
            FaultKind::Join => MemberChange::Join,
            FaultKind::Leave if members > enough && is_member => MemberChange::Leave(victim.number),
            FaultKind::Replace if is_member => MemberChange::Replace(victim.number),
            _ => return,
        };
        self.cluster.changes.lock().push_back(change);
    }
}
