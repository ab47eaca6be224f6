//! The network between the nodes: a namespace for each, one bridge, and rules that drop packets.
//!
//! Everything is in the network namespace of the enclosure and disappears with it. Clients are on
//! the bridge, where the rules for forwarded packets do not apply.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::command;

/// The table and the chain of the rules, emptied.
const NO_RULES: &str = "add table bridge kvorum\n\
    add chain bridge kvorum faults { type filter hook forward priority 0; }\n\
    flush chain bridge kvorum faults\n";

/// The address of a node.
pub(super) fn address(node: usize) -> IpAddr {
    let last = u8::try_from(node + 1).unwrap_or(u8::MAX);
    IpAddr::V4(Ipv4Addr::new(10, 77, 0, last))
}

/// The command that starts a program in the namespace of a node.
pub(super) fn launcher(node: usize) -> Vec<String> {
    vec!["nsenter".into(), format!("--net=/run/netns/node{node}")]
}

/// The lost packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Weather {
    /// No packets.
    Fair,
    /// This percentage of packets between all nodes.
    Loss(u32),
    /// All packets between the nodes of the list and the others, both ways.
    Apart(Vec<usize>),
    /// All packets from the node to the others.
    Mute(usize),
    /// All packets from the others to the node.
    Deaf(usize),
    /// All packets between nodes.
    Alone,
}

/// Creates the bridge; [`lay_node`] creates the namespaces of nodes.
pub(super) fn lay_bridge() -> anyhow::Result<()> {
    fs::create_dir_all("/run/netns").context("creating /run/netns")?;
    run("mount -t tmpfs none /run/netns")?;
    run("ip link set lo up")?;
    run("ip link add bridge0 type bridge")?;
    run("ip address add 10.77.0.254/24 dev bridge0")?;
    run("ip link set bridge0 up")
}

/// Creates a node's namespace and its link to the bridge.
pub(super) fn lay_node(node: usize) -> anyhow::Result<()> {
    let space = format!("node{node}");
    run(&format!("ip netns add {space}"))?;
    run(&format!(
        "ip link add cable{node} type veth peer name eth0 netns {space}"
    ))?;
    run(&format!("ip link set cable{node} master bridge0 up"))?;
    run(&format!(
        "ip -n {space} address add {}/24 dev eth0",
        address(node)
    ))?;
    run(&format!("ip -n {space} link set eth0 up"))?;
    run(&format!("ip -n {space} link set lo up"))
}

/// Drops packets between `nodes` nodes according to this weather, which replaces the last one.
pub(super) fn set(weather: &Weather, nodes: usize) -> anyhow::Result<()> {
    let mut rules = NO_RULES.to_owned();
    for condition in conditions(weather, nodes) {
        rules.push_str(&format!("add rule bridge kvorum faults {condition} drop\n"));
    }
    let mut nft = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .context("starting nft")?;
    if let Some(mut input) = nft.stdin.take() {
        input
            .write_all(rules.as_bytes())
            .context("giving nft its rules")?;
    }
    let status = nft.wait().context("waiting for nft")?;
    ensure!(status.success(), "nft ended with {status} over {rules}");
    Ok(())
}

fn conditions(weather: &Weather, nodes: usize) -> Vec<String> {
    let from_to = |from, to| format!("ip saddr {} ip daddr {}", address(from), address(to));
    match weather {
        Weather::Fair => Vec::new(),
        Weather::Loss(percent) => vec![format!("numgen random mod 100 < {percent}")],
        Weather::Apart(side) => {
            let others = (0..nodes).filter(|it| !side.contains(it));
            let pairs = others.flat_map(|it| side.iter().map(move |&other| (it, other)));
            pairs
                .flat_map(|(one, other)| [from_to(one, other), from_to(other, one)])
                .collect()
        }
        Weather::Mute(node) => vec![format!("ip saddr {}", address(*node))],
        Weather::Deaf(node) => vec![format!("ip daddr {}", address(*node))],
        Weather::Alone => vec!["ip protocol tcp".to_owned(), "ip protocol udp".to_owned()],
    }
}

fn run(line: &str) -> anyhow::Result<()> {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap_or_default());
    command::capture(command.args(words)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sides_are_cut_both_ways_and_nothing_within_them() {
        let rules = conditions(&Weather::Apart(vec![0]), 3);
        assert_eq!(rules.len(), 4);
        assert!(
            rules
                .iter()
                .all(|rule| rule.contains("10.77.0.1 ") || rule.ends_with("10.77.0.1"))
        );
        assert_eq!(conditions(&Weather::Apart(vec![0, 1]), 5).len(), 12);
        assert!(conditions(&Weather::Fair, 5).is_empty());
    }
}
