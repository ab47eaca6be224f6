//! The library's detector and its requests. No clock, no socket.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use foca::{Config, Foca, Identity, Notification, PeriodicParams, PostcardCodec, Timer};
use kvorum_ring::NodeId;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::hearing::Hearing;
use crate::settings::LivenessSettings;

/// Larger than a datagram, since packets travel over a stream.
const PACKET_BYTES_MAX: usize = 16 * 1024;

/// A generation rises by one when other nodes take the node to be down, then by 16, by 256 and so
/// on. If its last generation was not kept and its clock was set back, a run may begin minutes
/// behind the generation that others have.
const RENEWAL_BITS: u32 = 4;
const RENEWAL_BITS_MAX: u32 = 40;

/// A run of a node.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Presence {
    node: [u8; 16],
    generation: u64,
    /// Number of times that the generation was raised. It is not sent.
    #[serde(skip)]
    renewals: u32,
}

impl PartialEq for Presence {
    fn eq(&self, other: &Self) -> bool {
        (self.node, self.generation) == (other.node, other.generation)
    }
}

impl Eq for Presence {}

impl Presence {
    pub(crate) fn new(node: NodeId, generation: u64) -> Self {
        Self {
            node: *node.as_bytes(),
            generation,
            renewals: 0,
        }
    }

    pub(crate) fn node(&self) -> NodeId {
        NodeId::from_bytes(self.node)
    }
}

impl Identity for Presence {
    type Addr = [u8; 16];

    fn renew(&self) -> Option<Self> {
        let bits = (RENEWAL_BITS.saturating_mul(self.renewals)).min(RENEWAL_BITS_MAX);
        Some(Self {
            generation: self.generation.saturating_add(1 << bits),
            renewals: self.renewals.saturating_add(1),
            ..*self
        })
    }

    fn addr(&self) -> [u8; 16] {
        self.node
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        self.generation > adversary.generation
    }
}

/// The requests of the detector.
#[derive(Default)]
pub(crate) struct Wanted {
    pub(crate) messages: Vec<(NodeId, Bytes)>,
    pub(crate) timers: Vec<(Timer<Presence>, Duration)>,
    /// The nodes to ask for an answer.
    pub(crate) questions: Vec<NodeId>,
    changed: bool,
}

impl foca::Runtime<Presence> for &mut Wanted {
    fn notify(&mut self, _: Notification<'_, Presence>) {
        self.changed = true;
    }

    fn send_to(&mut self, to: Presence, data: &[u8]) {
        self.messages
            .push((to.node(), Bytes::copy_from_slice(data)));
    }

    fn submit_after(&mut self, event: Timer<Presence>, after: Duration) {
        self.timers.push((event, after));
    }
}

/// An event for the detector.
pub(crate) enum Event {
    /// A message arrived.
    Heard(Bytes),
    /// A timer of the detector has expired.
    TimeOut(Timer<Presence>),
    /// These are the members.
    Members(BTreeSet<NodeId>),
    /// Time to announce this node to members that seem to be down.
    Announce,
    /// Time to ask the members for an answer.
    Ask,
    /// A member answered.
    Answered(NodeId),
    /// This node leaves.
    Leave,
}

/// The detector of one node.
pub(crate) struct Detector {
    foca: Foca<Presence, PostcardCodec, ChaCha8Rng, foca::NoCustomBroadcast>,
    this_node: NodeId,
    members: BTreeSet<NodeId>,
    hearing: Hearing,
}

impl Detector {
    pub(crate) fn new(
        node: NodeId,
        generation: u64,
        seed: u64,
        settings: &LivenessSettings,
    ) -> Self {
        let presence = Presence::new(node, generation);
        let random = ChaCha8Rng::seed_from_u64(seed);
        Self {
            foca: Foca::new(presence, config(settings), random, PostcardCodec),
            this_node: node,
            members: BTreeSet::new(),
            hearing: Hearing::new(node, settings.unanswered_max),
        }
    }

    /// Handles an event. An event that the library refuses (a message of a non-member, an outdated
    /// timer) changes nothing.
    pub(crate) fn take(&mut self, event: Event) -> Wanted {
        let mut wanted = Wanted::default();
        let taken = match event {
            Event::Heard(data) => self.foca.handle_data(&data, &mut wanted),
            Event::TimeOut(timer) => self.foca.handle_timer(timer, &mut wanted),
            Event::Members(members) => {
                wanted.changed = self.members != members;
                self.hearing.follow_members(&members);
                self.members = members;
                self.announce(&mut wanted)
            }
            Event::Announce => self.stay_connected(&mut wanted),
            Event::Ask => {
                wanted.questions = self.hearing.ask();
                Ok(())
            }
            Event::Answered(node) => {
                self.hearing.answered(node);
                Ok(())
            }
            Event::Leave => self.foca.leave_cluster(&mut wanted),
        };
        if let Err(error) = taken {
            tracing::debug!(event = "liveness_event_refused", error = %error);
        }
        wanted
    }

    /// After a change of identity, the library does not probe until it receives a message. A node
    /// that is cut off at that moment would count all members as up for ever. An empty update
    /// starts the probing.
    fn stay_connected(&mut self, wanted: &mut Wanted) -> Result<(), foca::Error> {
        self.foca
            .apply_many(std::iter::empty(), false, &mut *wanted)?;
        self.announce(wanted)
    }

    /// Announces this node to members that seem to be down, again and again, since messages may be
    /// lost.
    fn announce(&mut self, wanted: &mut Wanted) -> Result<(), foca::Error> {
        let known = self.known();
        let unknown: Vec<NodeId> = self.members.difference(&known).copied().collect();
        for node in unknown {
            self.foca.announce(Presence::new(node, 0), &mut *wanted)?;
        }
        Ok(())
    }

    /// The members that are up, this node included: up by the library, and not silent to this node.
    pub(crate) fn up(&self) -> BTreeSet<NodeId> {
        let mut up = self.known();
        up.retain(|node| !self.hearing.is_silent(*node));
        up
    }

    /// The members that the library takes to be up, and this node.
    fn known(&self) -> BTreeSet<NodeId> {
        let heard = self.foca.iter_members().map(|member| member.id().node());
        let mut known: BTreeSet<NodeId> =
            heard.filter(|node| self.members.contains(node)).collect();
        known.insert(self.this_node);
        known
    }
}

fn config(settings: &LivenessSettings) -> Config {
    let some = std::num::NonZeroU32::MIN.saturating_add(15);
    Config {
        probe_period: settings.probe_period,
        probe_rtt: settings.probe_period / 3,
        suspect_to_down_after: settings.suspicion,
        max_packet_size: std::num::NonZeroUsize::MIN.saturating_add(PACKET_BYTES_MAX - 1),
        notify_down_members: true,
        periodic_gossip: Some(PeriodicParams {
            frequency: settings.probe_period / 2,
            num_members: std::num::NonZeroUsize::MIN.saturating_add(2),
        }),
        ..Config::new_lan(some)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn node(number: u8) -> NodeId {
        NodeId::from_bytes([number; 16])
    }

    /// Delivers all messages at once; timers are dropped.
    fn settle(detectors: &mut BTreeMap<NodeId, Detector>, mut waiting: Vec<(NodeId, Wanted)>) {
        while let Some((_, wanted)) = waiting.pop() {
            for (to, data) in wanted.messages {
                if let Some(detector) = detectors.get_mut(&to) {
                    waiting.push((to, detector.take(Event::Heard(data))));
                }
            }
        }
    }

    fn detectors(count: u8) -> BTreeMap<NodeId, Detector> {
        let settings = LivenessSettings::default();
        let detector = |number| {
            let seed = u64::from(number);
            (
                node(number),
                Detector::new(node(number), 1, seed, &settings),
            )
        };
        (1..=count).map(detector).collect()
    }

    fn introduce(detectors: &mut BTreeMap<NodeId, Detector>) {
        let members: BTreeSet<NodeId> = detectors.keys().copied().collect();
        let wanted = detectors
            .iter_mut()
            .map(|(node, detector)| (*node, detector.take(Event::Members(members.clone()))))
            .collect();
        settle(detectors, wanted);
    }

    #[test]
    fn members_find_one_another() {
        let mut all = detectors(5);
        introduce(&mut all);
        let members: BTreeSet<NodeId> = all.keys().copied().collect();
        for detector in all.values() {
            assert_eq!(detector.up(), members);
        }
    }

    #[test]
    fn a_stranger_is_never_up() {
        let mut all = detectors(3);
        let members = BTreeSet::from([node(1), node(2)]);
        let wanted = all
            .iter_mut()
            .map(|(node, detector)| (*node, detector.take(Event::Members(members.clone()))))
            .collect();
        settle(&mut all, wanted);
        let wanted = all.get_mut(&node(3)).unwrap().take(Event::Announce);
        settle(&mut all, vec![(node(3), wanted)]);
        assert_eq!(all[&node(1)].up(), members);
    }

    #[test]
    fn who_leaves_is_down_at_once() {
        let mut all = detectors(3);
        introduce(&mut all);
        let wanted = all.get_mut(&node(2)).unwrap().take(Event::Leave);
        settle(&mut all, vec![(node(2), wanted)]);
        assert!(!all[&node(1)].up().contains(&node(2)));
    }

    /// A run whose generation was not kept, and a clock that was then set back by a minute.
    #[test]
    fn who_is_taken_for_its_past_overtakes_it_within_a_few_greetings() {
        let mut all = detectors(3);
        let settings = LivenessSettings::default();
        let later = Detector::new(node(2), 60_000_000, 9, &settings);
        all.insert(node(2), later);
        introduce(&mut all);
        let wanted = all.get_mut(&node(2)).unwrap().take(Event::Leave);
        settle(&mut all, vec![(node(2), wanted)]);
        all.insert(node(2), Detector::new(node(2), 1, 10, &settings));
        introduce(&mut all);
        for _ in 0..10 {
            let wanted = all
                .iter_mut()
                .map(|(node, detector)| (*node, detector.take(Event::Announce)))
                .collect();
            settle(&mut all, wanted);
        }
        let members: BTreeSet<NodeId> = all.keys().copied().collect();
        assert!(all.values().all(|it| it.up() == members));
    }

    #[test]
    fn who_takes_a_new_identity_and_hears_nothing_goes_on_probing() {
        let mut all = detectors(3);
        introduce(&mut all);
        let detector = all.get_mut(&node(1)).unwrap();
        let mut wanted = Wanted::default();
        let renewed = Presence::new(node(1), 2);
        detector.foca.change_identity(renewed, &mut wanted).unwrap();
        assert!(!wanted.timers.iter().any(is_of_probe));
        let wanted = detector.take(Event::Announce);
        assert!(wanted.timers.iter().any(is_of_probe));
        assert_eq!(detector.up().len(), 3);
        // A running probe is not started again.
        let wanted = detector.take(Event::Announce);
        assert!(!wanted.timers.iter().any(is_of_probe));
    }

    #[test]
    fn who_does_not_answer_this_node_is_down_whatever_others_say() {
        let mut all = detectors(3);
        introduce(&mut all);
        let detector = all.get_mut(&node(1)).unwrap();
        for _ in 0..4 {
            assert!(detector.up().contains(&node(2)));
            assert_eq!(detector.take(Event::Ask).questions, [node(2), node(3)]);
            detector.take(Event::Answered(node(3)));
        }
        assert_eq!(detector.up(), BTreeSet::from([node(1), node(3)]));
        // No announcement is needed, since the library counts the member as up.
        assert!(detector.take(Event::Announce).messages.is_empty());
        detector.take(Event::Answered(node(2)));
        assert_eq!(detector.up().len(), 3);
    }

    fn is_of_probe((timer, _): &(Timer<Presence>, Duration)) -> bool {
        matches!(timer, Timer::ProbeRandomMember(_))
    }

    #[test]
    fn any_bytes_are_heard_without_harm() {
        let mut all = detectors(2);
        introduce(&mut all);
        let detector = all.get_mut(&node(1)).unwrap();
        let mut random = 1u64;
        for length in 0..200 {
            let bytes: Vec<u8> = (0..length)
                .map(|_| {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    random.to_be_bytes()[0]
                })
                .collect();
            detector.take(Event::Heard(bytes.into()));
        }
        assert!(detector.up().contains(&node(2)));
    }
}
