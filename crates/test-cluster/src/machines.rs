//! Simulated machines by number, from 1: the node on each, its address, and the links between them.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use kvorum_coordinator::Liveness;
use kvorum_peer::{Admission, Directory, Introduction};
use kvorum_ring::NodeId;
use kvorum_runtime::{Link, World};
use parking_lot::Mutex;

/// The port on which nodes listen for other nodes.
const PORT: u16 = 8099;

/// The identity of the node on a machine.
pub fn node_id(number: u8) -> NodeId {
    NodeId::from_bytes([number; 16])
}

/// The machine of a node.
pub fn number_of(node: NodeId) -> u8 {
    node.as_bytes()[0]
}

/// The address of a machine.
pub fn machine(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))
}

/// The address at which the node on a machine listens for the others.
pub fn peer_address(number: u8) -> SocketAddr {
    SocketAddr::new(machine(number), PORT)
}

/// The directory of the node of this number: all are members, each on its machine.
pub struct Everybody(pub u8);

impl Directory for Everybody {
    fn introduction(&self) -> Introduction {
        Introduction {
            cluster: node_id(200),
            cluster_name: "test".into(),
            node: node_id(self.0),
        }
    }

    fn address(&self, node: NodeId) -> Option<SocketAddr> {
        Some(peer_address(number_of(node)))
    }

    fn admit(&self, _: &Introduction) -> Admission {
        Admission::Member
    }
}

/// The nodes that count as down for all others.
#[derive(Default)]
pub struct Down(Mutex<BTreeSet<NodeId>>);

impl Down {
    /// Makes the node count as down or up for all others.
    pub fn set(&self, node: NodeId, is_down: bool) {
        let mut down = self.0.lock();
        match is_down {
            true => down.insert(node),
            false => down.remove(&node),
        };
    }
}

impl Liveness for Down {
    fn is_up(&self, node: NodeId) -> bool {
        !self.0.lock().contains(&node)
    }
}

/// Links machines 1 to `count` with delays of up to two milliseconds.
pub fn link_all(world: &World, count: u8) {
    let delay = Link {
        delay_min: Duration::from_micros(100),
        delay_max: Duration::from_millis(2),
        is_cut: false,
    };
    for from in 1..=count {
        for to in (1..=count).filter(|to| *to != from) {
            world.set_link(machine(from), machine(to), delay);
        }
    }
}

/// Cuts the links between a machine and all others from 1 to `count`, or heals them.
pub fn cut_off(world: &World, number: u8, count: u8, is_cut: bool) {
    let own = machine(number);
    for other in (1..=count).filter(|other| *other != number).map(machine) {
        for (from, to) in [(own, other), (other, own)] {
            let link = world.link(from, to);
            world.set_link(from, to, Link { is_cut, ..link });
        }
    }
}
