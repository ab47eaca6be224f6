//! A simulation of several machines: each with its own tasks, address and clock, and links between
//! them.
//!
//! A machine's process can be killed: its tasks are dropped, its connections break, and none of its
//! code runs any more. The simulated disk decides which of its writes remain. The wall clock of
//! each machine can jump by itself.

use std::net::IpAddr;
use std::sync::Arc;

use crate::clock::SimulatedClock;
use crate::net::{Link, Links, Network};
use crate::scope::Scope;
use crate::{Executor, Result, Runtime};

/// The machines of a simulation.
#[derive(Clone, Debug)]
pub struct World {
    base: Runtime,
    network: Arc<Network>,
    links: Arc<Links>,
}

/// The process of one machine.
pub struct SimulatedProcess {
    runtime: Runtime,
    scope: Arc<Scope>,
    clock: Arc<SimulatedClock>,
}

impl World {
    /// An empty world, determined by the seed.
    pub fn new(seed: u64) -> Result<(Executor, Self)> {
        let (executor, network, links) = Runtime::simulated_over(seed, |handle| {
            let links = Arc::new(Links::new(handle.clone(), seed));
            (Network::over(links.clone()), links)
        })?;
        let world = Self {
            base: executor.runtime(),
            network,
            links,
        };
        Ok((executor, world))
    }

    /// The runtime of no machine, for the code that runs the simulation.
    pub fn runtime(&self) -> Runtime {
        self.base.clone()
    }

    /// Starts a process on the machine with this address. All processes draw from one sequence of
    /// random numbers, in the order of events.
    pub fn start_process(&self, address: IpAddr) -> SimulatedProcess {
        let scope = Arc::new(Scope::default());
        let (runtime, clock) = self.base.on_machine(address, scope.clone());
        SimulatedProcess {
            runtime,
            scope,
            clock,
        }
    }

    /// Sets the properties of the link from one machine to another; the other direction is another
    /// link.
    pub fn set_link(&self, from: IpAddr, to: IpAddr, link: Link) {
        self.links.set(from, to, link);
    }

    /// The link from one machine to another.
    pub fn link(&self, from: IpAddr, to: IpAddr) -> Link {
        self.links.link(from, to)
    }

    /// Breaks every connection between two machines.
    pub fn break_connections(&self, one: IpAddr, other: IpAddr) {
        self.links.break_connections(one, other);
    }

    /// The addresses with a listener.
    pub fn listeners(&self) -> Vec<std::net::SocketAddr> {
        self.network.listeners()
    }
}

impl SimulatedProcess {
    /// The runtime of the process.
    pub fn runtime(&self) -> Runtime {
        self.runtime.clone()
    }

    /// Ends all its tasks at once. They are gone after the executor's next run.
    pub fn kill(&self) {
        self.scope.kill();
    }

    /// Makes its machine's wall clock jump by microseconds, also backwards.
    pub fn jump_wall_clock(&self, micros: i64) {
        self.clock.jump_wall(micros);
    }
}

impl Drop for SimulatedProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
