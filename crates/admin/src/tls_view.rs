//! `kvorum admin tls status`: the encryption of the present connections.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use kvorum_cluster::AgreedState as _;
use kvorum_member::{Encryption, Member};
use kvorum_ring::NodeId;
use kvorum_runtime::WallTime;
use kvorum_tls::{DAY_SECONDS, Material, day_of};
use serde_json::{Value, json};

use crate::request::AdminReply;

/// Connections with one node.
#[derive(Default)]
struct Counts {
    encrypted: usize,
    plain: usize,
}

/// The state of encryption on this node.
pub(crate) fn show(member: &Member, now: WallTime) -> AdminReply {
    let (word, tls) = match member.peers().encryption() {
        Encryption::Off => ("off", None),
        Encryption::Optional(tls) => ("optional", Some(tls)),
        Encryption::Required(tls) => ("on", Some(tls)),
    };
    let mut text = format!("cluster.tls: {word}\n");
    let mut certificate = Value::Null;
    if let Some(tls) = tls {
        let material = tls.material();
        let left = material.own().not_after.since(now).as_secs() / DAY_SECONDS;
        certificate = certificate_data(&material, left);
        let (names, last) = (material.own().names(), day_of(material.own().not_after));
        let _infallible = writeln!(
            text,
            "certificate: {names}, number {}, until {last} ({left} days)",
            material.own().serial
        );
        for authority in material.authorities() {
            let last = day_of(authority.not_after);
            let _infallible = writeln!(
                text,
                "accepts: authority {}, until {last}",
                authority.serial
            );
        }
    }
    let state = member.state().current();
    let name = |node: NodeId| {
        let known = state.member(node).map(|it| it.name.clone());
        known.unwrap_or_else(|| node.to_string())
    };
    let mut rows = Vec::new();
    for (node, counts) in counted(member) {
        let (name, Counts { encrypted, plain }) = (name(node), counts);
        let _infallible = writeln!(
            text,
            "'{name}': {encrypted} encrypted, {plain} in the clear"
        );
        rows.push(json!({"node": name, "encrypted": encrypted, "plain": plain}));
    }
    let data = json!({"mode": word, "certificate": certificate, "connections": rows});
    AdminReply::ok(text, data)
}

fn certificate_data(material: &Material, days_left: u64) -> Value {
    let own = material.own();
    let names = own.identities.iter().map(|it| it.node.clone());
    json!({
        "nodes": names.collect::<Vec<_>>(),
        "number": own.serial,
        "valid_until": day_of(own.not_after),
        "days_left": days_left,
    })
}

fn counted(member: &Member) -> BTreeMap<NodeId, Counts> {
    let mut counted: BTreeMap<NodeId, Counts> = BTreeMap::new();
    for connected in member.peers().connections() {
        let counts = counted.entry(connected.node).or_default();
        if connected.is_encrypted {
            counts.encrypted += 1;
        } else {
            counts.plain += 1;
        }
    }
    counted
}
