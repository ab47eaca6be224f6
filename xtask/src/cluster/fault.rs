//! Faults and their times: a plan that depends only on the seed.

use std::fmt;
use std::time::Duration;

use anyhow::Context;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::cluster::fleet::Fleet;
use crate::cluster::machine::Machine;
use crate::cluster::network::Weather;

/// An event for a machine, or for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mishap {
    /// The server is killed, and started again.
    Kill(usize),
    /// The server is stopped for a while.
    Pause(usize),
    /// The power of one machine fails, and comes back.
    PowerCut(usize),
    /// The power of all machines fails at once.
    PowerCutOfAll,
    /// The wall clock is stepped by this many seconds, and back.
    ClockStep(usize, i64),
    /// There is no room on the disk.
    FullDisk(usize),
    /// Syncs fail, and then the power, so that unsynced data is lost.
    FailingSyncs(usize),
}

/// Weather and a mishap at the same time.
#[derive(Clone, Debug)]
pub(super) struct Step {
    weather: Weather,
    mishap: Mishap,
    /// The time between the starts of the weather and of the mishap.
    before: Duration,
    /// The time from the start of the mishap to the end of both.
    during: Duration,
}

/// The number of kinds of mishaps, and of weather.
const KINDS: usize = 7;

/// Steps for a cluster, with each kind of mishap and of weather once. The order and the pairs
/// differ for each number of nodes.
pub(super) fn plan(seed: u64, nodes: usize) -> Vec<Step> {
    let mut random = StdRng::seed_from_u64(seed.wrapping_add((nodes as u64) << 32));
    let [mut mishaps, mut weathers]: [[usize; KINDS]; 2] = [std::array::from_fn(|kind| kind); 2];
    mishaps.shuffle(&mut random);
    weathers.shuffle(&mut random);
    let pairs = weathers.into_iter().zip(mishaps);
    pairs
        .map(|(weather, mishap)| Step {
            weather: draw_weather(weather, nodes, &mut random),
            mishap: draw_mishap(mishap, nodes, &mut random),
            before: Duration::from_millis(random.random_range(0..700)),
            during: Duration::from_millis(random.random_range(400..2000)),
        })
        .collect()
}

fn draw_mishap(kind: usize, nodes: usize, random: &mut StdRng) -> Mishap {
    let node = random.random_range(0..nodes);
    match kind {
        0 => Mishap::Kill(node),
        1 => Mishap::Pause(node),
        2 => Mishap::PowerCut(node),
        3 => Mishap::ClockStep(node, [-86_400, -40, 40, 86_400][random.random_range(0..4)]),
        4 => Mishap::FullDisk(node),
        5 => Mishap::FailingSyncs(node),
        _ => Mishap::PowerCutOfAll,
    }
}

fn draw_weather(kind: usize, nodes: usize, random: &mut StdRng) -> Weather {
    let node = random.random_range(0..nodes);
    match kind {
        0 => Weather::Loss(random.random_range(5..30)),
        1 => Weather::Apart(vec![node]),
        2 => Weather::Mute(node),
        3 => Weather::Deaf(node),
        4 => Weather::Alone,
        5 => Weather::Fair,
        _ => {
            let mut side: Vec<usize> = (0..nodes).collect();
            side.shuffle(random);
            side.truncate(nodes / 2);
            Weather::Apart(side)
        }
    }
}

impl Step {
    /// Carries out the mishap, from beginning to end.
    pub(super) fn run(&self, fleet: &mut Fleet) -> anyhow::Result<()> {
        fleet.weather(&self.weather)?;
        std::thread::sleep(self.before);
        begin(&self.mishap, fleet)?;
        std::thread::sleep(self.during);
        end(&self.mishap, fleet)?;
        fleet.weather(&Weather::Fair)?;
        fleet
            .machines
            .iter_mut()
            .try_for_each(Machine::require_alive)
    }
}

fn begin(mishap: &Mishap, fleet: &mut Fleet) -> anyhow::Result<()> {
    let machines = &mut fleet.machines;
    if *mishap == Mishap::PowerCutOfAll {
        machines
            .iter()
            .try_for_each(|machine| machine.pause(true))?;
        return machines.iter_mut().try_for_each(Machine::cut_power);
    }
    let machine = machines.get_mut(mishap.node()).context("no such machine")?;
    match mishap {
        Mishap::Kill(_) => machine.kill(),
        Mishap::Pause(_) => machine.pause(true)?,
        Mishap::PowerCut(_) => machine.cut_power()?,
        Mishap::ClockStep(_, ahead_s) => machine.set_clock(*ahead_s)?,
        Mishap::FullDisk(_) => machine.fill_disk()?,
        Mishap::FailingSyncs(_) => machine.fail_syncs(true)?,
        Mishap::PowerCutOfAll => {}
    }
    Ok(())
}

fn end(mishap: &Mishap, fleet: &mut Fleet) -> anyhow::Result<()> {
    if *mishap == Mishap::PowerCutOfAll {
        return fleet.start_all();
    }
    let machines = &mut fleet.machines;
    let machine = machines.get_mut(mishap.node()).context("no such machine")?;
    match mishap {
        Mishap::Kill(_) | Mishap::PowerCut(_) => machine.start(),
        Mishap::Pause(_) => machine.pause(false),
        Mishap::ClockStep(..) => machine.set_clock(0),
        Mishap::FullDisk(_) => machine.make_room(),
        Mishap::FailingSyncs(_) => {
            machine.cut_power()?;
            machine.fail_syncs(false)?;
            machine.start()
        }
        Mishap::PowerCutOfAll => Ok(()),
    }
}

impl Mishap {
    fn node(&self) -> usize {
        match self {
            Mishap::PowerCutOfAll => 0,
            Mishap::Kill(node)
            | Mishap::Pause(node)
            | Mishap::PowerCut(node)
            | Mishap::ClockStep(node, _)
            | Mishap::FullDisk(node)
            | Mishap::FailingSyncs(node) => *node,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, during) = (self.before.as_millis(), self.during.as_millis());
        write!(
            f,
            "{:?}, after {before} ms {:?} for {during} ms",
            self.weather, self.mishap
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(seed: u64) -> Vec<String> {
        plan(seed, 5).iter().map(Step::to_string).collect()
    }

    #[test]
    fn the_seed_alone_decides_the_plan() {
        assert_eq!(text(3), text(3));
        assert_ne!(text(3), text(4));
        assert_eq!(text(3).len(), KINDS);
    }

    #[test]
    fn every_mishap_comes_once() {
        let mut mishaps: Vec<String> = plan(9, 5)
            .into_iter()
            .map(|step| format!("{:?}", step.mishap))
            .map(|text| text.split('(').next().unwrap_or_default().to_owned())
            .collect();
        mishaps.sort_unstable();
        mishaps.dedup();
        assert_eq!(mishaps.len(), KINDS, "{mishaps:?}");
    }
}
