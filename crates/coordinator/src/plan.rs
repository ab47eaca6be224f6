//! Planning: from a request and the agreed state to replicas and numbers.

use kvorum_cluster::ClusterState;
use kvorum_encoding::{Address, StorageKey};
use kvorum_object::{ObjectTag, Resolution};
use kvorum_planted_defects::is_planted;
use kvorum_properties::{BucketProperties, KeyFunction, Quorum, SyncOnWrite};
use kvorum_ring::{
    KeyHash, NodeId, Position, PreferenceList, Replica, Role, WriteReplica, position,
};
use smallvec::SmallVec;

use crate::error::RequestError;
use crate::quorum::{Offered, ReadQuorum, WriteQuorum, WriteQuorums};
use crate::request::{GetOptions, NAME_BYTES_MAX, PutOptions};

/// The replicas of a request, and its properties.
pub(crate) struct Plan {
    pub(crate) key: StorageKey,
    pub(crate) properties: PlanProperties,
    pub(crate) replicas: PreferenceList,
    /// The bucket's n_val, or the request's smaller one.
    pub(crate) n_val: u32,
    /// Number of replicas that the committed ring gives this bucket.
    pub(crate) effective_n: u32,
    /// The two lists of a write during a move.
    pub(crate) joint: Option<Box<Joint>>,
}

/// The two lists of a write during a move.
pub(crate) struct Joint {
    /// The replicas of both, in the order of the plan's.
    pub(crate) replicas: SmallVec<[WriteReplica; 3]>,
    n_old: u32,
    n_new: u32,
}

/// The key of a plan and its parameters.
pub(crate) struct Target<'a> {
    pub(crate) key: StorageKey,
    pub(crate) place: Position,
    pub(crate) properties: &'a BucketProperties,
    pub(crate) n_val: u32,
}

/// The purpose of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    Write,
}

/// The properties of the bucket that a request needs. Copied, since all cores would contend for the
/// reference count of a shared handle.
#[derive(Clone, Copy)]
pub(crate) struct PlanProperties {
    n_val: u32,
    r: Quorum,
    pr: Quorum,
    w: Quorum,
    dw: Quorum,
    pw: Quorum,
    node_confirms: Quorum,
    basic_quorum: bool,
    notfound_ok: bool,
    pub(crate) sync_on_write: SyncOnWrite,
    pub(crate) is_write_once: bool,
    pub(crate) expiry_secs: Option<u32>,
    pub(crate) has_validators: bool,
    resolution: Resolution,
    tag: ObjectTag,
}

/// The kind of a bucket's objects. Nearly all buckets choose none.
pub(crate) fn tag_of(properties: &BucketProperties) -> ObjectTag {
    let chosen = properties.object_tag.as_deref();
    chosen.map_or_else(ObjectTag::default, ObjectTag::chosen)
}

impl From<&BucketProperties> for PlanProperties {
    fn from(properties: &BucketProperties) -> Self {
        Self {
            n_val: properties.n_val,
            r: properties.r,
            pr: properties.pr,
            w: properties.w,
            dw: properties.dw,
            pw: properties.pw,
            node_confirms: properties.node_confirms,
            basic_quorum: properties.basic_quorum,
            notfound_ok: properties.notfound_ok,
            sync_on_write: properties.sync_on_write,
            is_write_once: properties.is_write_once(),
            expiry_secs: properties.expiry_secs(),
            has_validators: properties.validators().next().is_some(),
            resolution: Resolution::keeping_siblings(properties.keeps_siblings()),
            tag: tag_of(properties),
        }
    }
}

impl Plan {
    pub(crate) fn new(
        state: &ClusterState,
        address: &Address,
        requested_n: Option<u32>,
        colocated: bool,
        sloppy_quorum: bool,
        purpose: Purpose,
        is_up: impl Fn(NodeId) -> bool,
    ) -> Result<Self, RequestError> {
        let names = [address.bucket_type.as_bytes(), address.bucket.as_bytes()];
        for name in names.into_iter().chain([address.key.as_bytes()]) {
            let bytes = name.len();
            if bytes > NAME_BYTES_MAX {
                return Err(RequestError::KeyTooLarge { bytes });
            }
        }
        let properties = state
            .properties(&address.bucket_type, &address.bucket)
            .map_err(|_| RequestError::UnknownBucketType)?;
        let n_val = match requested_n {
            Some(n) if n > properties.n_val || n == 0 => {
                let n_val = properties.n_val as usize;
                let requested = n as usize;
                return Err(RequestError::RequestNAboveBucketN { requested, n_val });
            }
            Some(n) => n,
            None => properties.n_val,
        };
        let hash = key_hash(&properties.chash_keyfun);
        let place = position(&address.bucket_type, &address.bucket, &address.key, hash);
        let target = Target {
            key: StorageKey::from_address(address),
            place,
            properties,
            n_val,
        };
        Ok(Self::at(
            state,
            target,
            colocated,
            sloppy_quorum,
            purpose,
            is_up,
        ))
    }

    /// The plan for a key at a place of the ring.
    pub(crate) fn at(
        state: &ClusterState,
        target: Target<'_>,
        colocated: bool,
        sloppy_quorum: bool,
        purpose: Purpose,
        is_up: impl Fn(NodeId) -> bool,
    ) -> Self {
        let Target {
            key,
            place,
            properties,
            n_val,
        } = target;
        let ring = state.ring();
        let is_settled = ring.moves().is_empty() && ring.growth().is_none();
        let mut joint = None;
        let replicas = if is_settled || purpose == Purpose::Read {
            let mut replicas = ring.preference_list(place, n_val, colocated, is_up);
            if is_planted!(FillingCountedAsComplete) {
                for replica in &mut replicas {
                    let moving = ring.moves().get(&replica.partition);
                    replica.node = moving.map_or(replica.node, |moving| moving.to);
                }
            }
            if !sloppy_quorum {
                replicas.retain(|replica| replica.role == Role::Primary);
            }
            replicas
        } else {
            let mut list = ring.write_list(place, n_val, colocated, is_up);
            if !sloppy_quorum {
                list.replicas.retain(|it| it.replica.role == Role::Primary);
            }
            let replicas = list.replicas.iter().map(|it| it.replica).collect();
            joint = Some(Box::new(Joint {
                replicas: list.replicas,
                n_old: u32::from(list.n_old),
                n_new: u32::from(list.n_new),
            }));
            replicas
        };
        let effective_n = u32::from(state.ring().effective_n(n_val, colocated));
        Self {
            key,
            properties: PlanProperties::from(properties),
            replicas,
            n_val,
            effective_n,
            joint,
        }
    }

    /// The replicas with the lists that they are in; in a settled ring both lists are the same.
    pub(crate) fn write_replicas(&self) -> impl Iterator<Item = WriteReplica> + '_ {
        self.replicas
            .iter()
            .enumerate()
            .map(|(slot, replica)| match &self.joint {
                Some(joint) => joint.replicas[slot],
                None => WriteReplica {
                    replica: *replica,
                    in_old: true,
                    in_new: true,
                },
            })
    }

    /// True when the list has every replica of the bucket: all where the ring puts them, and no
    /// fewer than the bucket requires.
    pub(crate) fn is_complete(&self) -> bool {
        self.joint.is_none()
            && self.n_val == self.properties.n_val
            && self.replicas.len() == self.effective_n as usize
            && self
                .replicas
                .iter()
                .all(|replica| replica.role == Role::Primary)
    }

    pub(crate) fn resolution(&self) -> Resolution {
        self.properties.resolution
    }

    pub(crate) fn tag(&self) -> ObjectTag {
        self.properties.tag
    }

    pub(crate) fn read_quorum(&self, options: &GetOptions) -> Result<ReadQuorum, RequestError> {
        let (properties, n) = (&self.properties, self.effective_n);
        let r = self.number(options.r, properties.r, n)?.max(1);
        let pr = self.number(options.pr, properties.pr, n)?;
        let node_confirms = self.unbounded(options.node_confirms, properties.node_confirms)?;
        let quorum = ReadQuorum {
            n: self.replicas.len(),
            r,
            pr,
            node_confirms,
            basic_quorum: options.basic_quorum.unwrap_or(properties.basic_quorum),
            notfound_ok: options.notfound_ok.unwrap_or(properties.notfound_ok),
        };
        quorum.check(offered(self.replicas.iter()))?;
        Ok(quorum)
    }

    pub(crate) fn write_quorums(&self, options: &PutOptions) -> Result<WriteQuorums, RequestError> {
        let Some(joint) = &self.joint else {
            let old = self.write_quorum(options, self.effective_n, self.replicas.iter())?;
            return Ok(WriteQuorums { old, new: None });
        };
        let in_old = joint.replicas.iter().filter(|it| it.in_old);
        let in_new = joint.replicas.iter().filter(|it| it.in_new);
        let old = self.write_quorum(options, joint.n_old, in_old.map(|it| &it.replica))?;
        let new = self.write_quorum(options, joint.n_new, in_new.map(|it| &it.replica))?;
        Ok(WriteQuorums {
            old,
            new: Some(new),
        })
    }

    fn write_quorum<'a>(
        &self,
        options: &PutOptions,
        n: u32,
        replicas: impl Iterator<Item = &'a Replica>,
    ) -> Result<WriteQuorum, RequestError> {
        let properties = &self.properties;
        let offered = offered(replicas);
        let quorum = WriteQuorum {
            n: offered.replicas,
            w: self.number(options.w, properties.w, n)?,
            dw: self.number(options.dw, properties.dw, n)?.max(1),
            pw: self.number(options.pw, properties.pw, n)?,
            node_confirms: self.unbounded(options.node_confirms, properties.node_confirms)?,
        };
        if offered.replicas == 0 && !self.replicas.is_empty() {
            // There are primaries, but none in one of the two lists.
            let (wanted, got) = (quorum.pw, 0);
            return Err(match wanted {
                0 => RequestError::InsufficientVnodes {
                    wanted: quorum.w.max(quorum.dw),
                    got,
                },
                _ => RequestError::PrimaryWritesUnsatisfied { wanted, got },
            });
        }
        quorum.check(offered)?;
        Ok(quorum)
    }

    /// A quorum value as a number of replicas: words by the effective n, numbers bounded by it.
    fn number(
        &self,
        asked: Option<Quorum>,
        default: Quorum,
        effective_n: u32,
    ) -> Result<usize, RequestError> {
        let quorum = self.permitted(asked, default)?;
        Ok(quorum.resolve(effective_n).min(effective_n) as usize)
    }

    /// `node_confirms`: never bounded by the size of the cluster.
    fn unbounded(&self, asked: Option<Quorum>, default: Quorum) -> Result<usize, RequestError> {
        let quorum = self.permitted(asked, default)?;
        Ok(quorum.resolve(self.n_val) as usize)
    }

    /// The effective value, if n_val permits it. The request's n_val bounds a quorum of the request, the
    /// bucket's n_val a quorum of the bucket: a request with a smaller n_val does not violate the latter.
    fn permitted(&self, asked: Option<Quorum>, default: Quorum) -> Result<Quorum, RequestError> {
        let (quorum, n_val) = match asked {
            Some(quorum) => (quorum, self.n_val),
            None => (default, self.properties.n_val),
        };
        if quorum.resolve(n_val) > n_val {
            let n_val = n_val as usize;
            return Err(RequestError::QuorumAboveN { n_val });
        }
        Ok(quorum)
    }
}

fn offered<'a>(replicas: impl Iterator<Item = &'a Replica>) -> Offered {
    let mut nodes = SmallVec::<[NodeId; 3]>::new();
    let mut offered = Offered {
        replicas: 0,
        primaries: 0,
        nodes: 0,
    };
    for replica in replicas {
        offered.replicas += 1;
        let is_primary = replica.role == Role::Primary || is_planted!(SloppyQuorumCountedForPw);
        offered.primaries += usize::from(is_primary);
        if !nodes.contains(&replica.node) {
            nodes.push(replica.node);
        }
    }
    offered.nodes = nodes.len();
    offered
}

/// The part of an address that decides its place on the ring.
pub(crate) fn key_hash(function: &KeyFunction) -> KeyHash {
    match function {
        KeyFunction::BucketOnly => KeyHash::BucketOnly,
        KeyFunction::Standard => KeyHash::Standard,
    }
}
