//! `backend migrate`, `backend status`, `backend cancel`: data moves between the backends of a node while it serves.
//!
//! A property names the backend of a type or a bucket, and each store moves the data that is
//! elsewhere. So an order checks the room for the copies on this node, and then changes the
//! property on all nodes. The other nodes check their own room before they copy. A partition is
//! moved by a pin of its store. The pin follows the partition to another owner, and cannot be
//! changed meanwhile.

mod moves_view;
mod place;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use kvorum_backend::{MoveEstimate, Moves, Timestamp};
use kvorum_cluster::ProposeError;
use kvorum_coordinator::Coordinator;
use kvorum_maintenance::{bytes_text, counted};
use kvorum_member::VnodeTable;
use kvorum_ring::Partition;
use kvorum_vnode::Vnode;
use serde_json::json;

use crate::bucket_type_view;
use crate::cluster::{ClusterAdmin, no_partition, partition_named};
use crate::move_scope::MoveScope;
use crate::request::{AdminReply, Replied};

use self::moves_view::AllMoves;
use self::place::{Place, Places};

/// The verbs, at one moment.
pub(crate) struct BackendMoves<'a> {
    pub(crate) cluster: &'a ClusterAdmin,
    pub(crate) coordinator: &'a Coordinator,
    pub(crate) vnodes: &'a VnodeTable,
    pub(crate) now: Timestamp,
}

/// The bytes that an order would copy on this node, and the room for them.
#[derive(Default)]
struct Room {
    estimate: MoveEstimate,
    partitions: u64,
}

impl Room {
    fn add(&mut self, its: MoveEstimate) {
        let all = &mut self.estimate;
        all.keys += its.keys;
        all.bytes += its.bytes;
        all.needed_bytes = all.needed_bytes.saturating_add(its.needed_bytes);
        // The stores of a node share their device. A store in memory reports unlimited room.
        all.available_bytes = match self.partitions {
            0 => its.available_bytes,
            _ => all.available_bytes.min(its.available_bytes),
        };
        self.partitions += 1;
    }

    fn fits(&self) -> bool {
        self.estimate.needed_bytes <= self.estimate.available_bytes
    }

    fn is_in_memory(&self) -> bool {
        self.estimate.available_bytes == u64::MAX
    }

    fn text(&self) -> String {
        let MoveEstimate {
            keys,
            bytes,
            needed_bytes,
            available_bytes,
        } = self.estimate;
        let what = format!(
            "{} ({}) in {} of this node",
            counted(keys, "key"),
            bytes_text(bytes),
            counted(self.partitions, "partition"),
        );
        if self.is_in_memory() {
            return format!("{what}; in memory, which is lost at a stop of the node");
        }
        format!(
            "{what}; {} of free space needed, {} there",
            bytes_text(needed_bytes),
            bytes_text(available_bytes)
        )
    }
}

impl BackendMoves<'_> {
    pub(crate) fn migrate(&self, scope: &MoveScope, target: &str, is_dry_run: bool) -> Replied {
        self.check_has_several()?;
        if let MoveScope::Partition(which) = scope {
            return self.migrate_partition(which, target, is_dry_run);
        }
        let state = self.coordinator.state();
        let places = Places::of(scope, &state).map_err(AdminReply::refused)?;
        let mut room = Room::default();
        for vnode in self.vnodes.all() {
            room.add(self.estimate_of(&vnode, &places.moved, target)?);
        }
        let names: Vec<String> = places.moved.iter().map(Place::to_string).collect();
        let what = names.join(", ");
        if is_dry_run || !room.fits() {
            return without_order(&what, target, &room, is_dry_run);
        }
        for (at, place) in places.moved.iter().enumerate() {
            let command = place.command(&self.coordinator.state(), target);
            let moved = self.coordinator.move_to_backend(command);
            moved.map_err(|error| not_agreed(&error, &names[..at], &names[at..]))?;
        }
        let mut text = format!("{what} moves to {target} on all nodes: {}", room.text());
        if !places.kept.is_empty() {
            let kept: Vec<String> = places.kept.iter().map(Place::to_string).collect();
            // Writing to a String cannot fail.
            let _ = write!(text, "\nkeeps a backend of its own: {}", kept.join(", "));
        }
        if *scope == MoveScope::All {
            let _ = write!(
                text,
                "\nset multi_backend.default = {target} in the configuration of all nodes: it \
                 applies to types that are created later"
            );
        }
        text.push_str("\n`kvorum admin backend status` shows the progress");
        Ok(ordered(text, &what, target, &room))
    }

    fn migrate_partition(&self, which: &str, target: &str, is_dry_run: bool) -> Replied {
        let vnode = self.vnode_named(which)?;
        self.check_stays(vnode.partition())?;
        let mut room = Room::default();
        let store = vnode.store_for_upkeep();
        let moves = store.moves().ok_or_else(has_one)?;
        let its = moves.estimate(b"", target, self.now);
        room.add(its.map_err(|error| AdminReply::refused(error.to_string()))?);
        let what = format!("partition {}", vnode.partition().number());
        if is_dry_run || !room.fits() {
            return without_order(&what, target, &room, is_dry_run);
        }
        let pinned = moves.pin(Some(target));
        pinned.map_err(|error| AdminReply::refused(error.to_string()))?;
        let text = format!(
            "{what} moves to {target} on this node, and stays there whatever the properties are, also on a later \
             owner, until `kvorum admin backend cancel --partition {}`: {}",
            vnode.partition().number(),
            room.text()
        );
        Ok(ordered(text, &what, target, &room))
    }

    pub(crate) fn status(&self) -> Replied {
        self.check_has_several()?;
        let all = self.all();
        let text = moves_view::text(&all);
        Ok(AdminReply::ok(text.trim_end(), moves_view::json(&all)))
    }

    pub(crate) fn cancel(&self, partition: Option<&str>) -> Replied {
        self.check_has_several()?;
        match partition {
            Some(which) => self.cancel_partition(which),
            None => self.cancel_all(),
        }
    }

    fn cancel_partition(&self, which: &str) -> Replied {
        let vnode = self.vnode_named(which)?;
        self.check_stays(vnode.partition())?;
        let number = vnode.partition().number();
        if !self.unpin(&vnode)? {
            return Err(AdminReply::refused(format!(
                "partition {number} was not moved by itself: `kvorum admin backend cancel` undoes \
                 the moves of types and buckets"
            )));
        }
        let text = format!("partition {number} follows the properties again, and moves back");
        Ok(AdminReply::ok(
            text,
            json!({"taken_back": [format!("partition {number}")]}),
        ))
    }

    /// Sets each place back to the backend that it is leaving on any node, and removes this node's
    /// pins.
    fn cancel_all(&self) -> Replied {
        let mut taken_back = Vec::new();
        let all = self.all();
        let sources = Self::sources(&all);
        for (place, sources) in &sources {
            let [source] = &sources.iter().collect::<Vec<_>>()[..] else {
                let names: Vec<&str> = sources.iter().map(String::as_str).collect();
                return Err(AdminReply::refused(format!(
                    "{place} comes from several backends ({}): name one backend for all of it \
                     with `kvorum admin backend migrate`",
                    names.join(", ")
                )));
            };
            let command = place.command(&self.coordinator.state(), source);
            let moved = self.coordinator.move_to_backend(command);
            moved.map_err(|error| not_agreed(&error, &taken_back, &[place.to_string()]))?;
            taken_back.push(place.to_string());
        }
        let mut kept = String::new();
        for vnode in self
            .vnodes
            .all()
            .iter()
            .filter(|it| is_moving_as_a_whole(it))
        {
            if let Err(stays) = self.check_stays(vnode.partition()) {
                kept.push('\n');
                kept.push_str(&stays.text);
            } else if self.unpin(vnode)? {
                taken_back.push(format!("partition {}", vnode.partition().number()));
            }
        }
        if taken_back.is_empty() && !kept.is_empty() {
            return Err(AdminReply::refused(kept.trim_start()));
        }
        if taken_back.is_empty() {
            let why = match all.is_looking() {
                true => {
                    "the data to move is still being looked for: ask again when `backend status` \
                     shows it"
                }
                false => "no move is under way; `kvorum admin backend migrate` moves data back",
            };
            return Err(AdminReply::refused(why));
        }
        let text = format!(
            "goes back to where it came from: {}{kept}",
            taken_back.join(", ")
        );
        Ok(AdminReply::ok(text, json!({ "taken_back": taken_back })))
    }

    /// The places that are leaving backends, with these backends.
    fn sources(all: &AllMoves) -> BTreeMap<Place, BTreeSet<String>> {
        let mut sources: BTreeMap<Place, BTreeSet<String>> = BTreeMap::new();
        for status in all.statuses() {
            let is_open = !status.has_ended() || status.has_failed();
            let is_moving = is_open && !status.is_taken_back;
            if let Some(place) = Place::of_scope(&status.scope)
                && is_moving
            {
                sources.entry(place).or_default().insert(status.source);
            }
        }
        sources
    }

    fn all(&self) -> AllMoves {
        let (nodes, down) = self.cluster.backend_moves();
        AllMoves { nodes, down }
    }

    /// Removes a vnode's pin; true if it had one.
    fn unpin(&self, vnode: &Vnode) -> Result<bool, AdminReply> {
        let store = vnode.store_for_upkeep();
        let moves = store.moves().ok_or_else(has_one)?;
        if moves.pinned().is_none() {
            return Ok(false);
        }
        let taken_back = moves.pin(None);
        taken_back.map_err(|error| AdminReply::refused(error.to_string()))?;
        Ok(true)
    }

    fn estimate_of(
        &self,
        vnode: &Vnode,
        places: &[Place],
        target: &str,
    ) -> Result<MoveEstimate, AdminReply> {
        let store = vnode.store_for_upkeep();
        let moves = store.moves().ok_or_else(has_one)?;
        let mut room = Room::default();
        for place in places {
            let its = moves.estimate(&place.scope(), target, self.now);
            room.add(its.map_err(|error| AdminReply::refused(error.to_string()))?);
        }
        Ok(room.estimate)
    }

    fn vnode_named(&self, which: &str) -> Result<Arc<Vnode>, AdminReply> {
        let size = self.coordinator.state().ring().size();
        let partition = partition_named(size, which).ok_or_else(|| no_partition(which))?;
        let vnode = self.vnodes.numbered(partition.number());
        vnode.ok_or_else(|| {
            AdminReply::refused(format!(
                "this node has no open store of partition {which}: `kvorum admin cluster partition id={}` names \
                 the node that owns it",
                partition.number()
            ))
        })
    }

    /// Refuses an order for a partition that changes its owner: the new owner has taken over the pin.
    fn check_stays(&self, partition: Partition) -> Result<(), AdminReply> {
        let state = self.coordinator.state();
        let Some(moving) = state.ring().moves().get(&partition) else {
            return Ok(());
        };
        let receiver = state.member(moving.to);
        let name = receiver.map_or_else(|| moving.to.to_string(), |it| it.name.clone());
        Err(AdminReply::refused(format!(
            "partition {} is on its way to {name}: order it there when `kvorum admin transfers` shows that it \
             has moved",
            partition.number()
        )))
    }

    fn check_has_several(&self) -> Result<(), AdminReply> {
        let vnodes = self.vnodes.all();
        if vnodes.is_empty() {
            return Err(AdminReply::refused(
                "this node has no open store of a partition",
            ));
        }
        let has_moves = vnodes
            .iter()
            .any(|it| it.store_for_upkeep().moves().is_some());
        has_moves.then_some(()).ok_or_else(has_one)
    }
}

fn is_moving_as_a_whole(vnode: &Vnode) -> bool {
    let moves = vnode.store_for_upkeep().moves().map(Moves::moves);
    let mut moves = moves.into_iter().flatten();
    moves.any(|it| it.scope.is_empty() && (!it.has_ended() || it.has_failed()))
}

fn has_one() -> AdminReply {
    AdminReply::refused(
        "this node has one backend: data moves between the backends of storage_backend = multi \
         (see docs/migrating-between-backends.md)",
    )
}

/// The answer of a dry run, and the refusal of an order without room.
fn without_order(what: &str, target: &str, room: &Room, is_dry_run: bool) -> Replied {
    let room_text = room.text();
    let text = match (room.fits(), is_dry_run) {
        (true, _) => format!("{what} would move to {target}: {room_text}; nothing was changed"),
        (false, _) => format!(
            "there is too little room to move {what} to {target}: {room_text}; free some, or move less at a \
             time (--bucket, --type, --partition); nothing was changed"
        ),
    };
    let reply = AdminReply {
        is_ok: room.fits(),
        ..ordered(text, what, target, room)
    };
    Ok(reply)
}

fn ordered(text: String, what: &str, target: &str, room: &Room) -> AdminReply {
    let estimate = &room.estimate;
    let available = (!room.is_in_memory()).then_some(estimate.available_bytes);
    let data = json!({
        "scope": what,
        "to": target,
        "partitions": room.partitions,
        "keys": estimate.keys,
        "bytes": estimate.bytes,
        "needed_bytes": estimate.needed_bytes,
        "available_bytes": available,
        "fits": room.fits(),
    });
    AdminReply::ok(text, data)
}

fn not_agreed(error: &ProposeError, done: &[String], left: &[String]) -> AdminReply {
    let reply = match error {
        ProposeError::Refused(refusal) => bucket_type_view::refused(refusal),
        error => AdminReply::refused(error.in_full()),
    };
    if done.is_empty() {
        return reply;
    }
    AdminReply::refused(format!(
        "{}\nagreed before that: {}; not yet: {}. Order it again",
        reply.text,
        done.join(", "),
        left.join(", ")
    ))
}
