//! The durable lease of dots: which counters each vnode of this node may use without asking.
//!
//! A dot is (actor, counter), the counter being one number for the whole vnode. Issuing the same dot
//! twice loses writes without a trace (the family of failures known as kv679), so a vnode issues only
//! counters that lie below a bound which is already on disk. After a restart it goes on at the bound;
//! the counters between are never used, which costs nothing with 64 bits.
//!
//! One table serves all vnodes of a node: a renewal is one small file replaced, whatever the number of
//! vnodes. Each lease names the [`StoreId`] it was made for. A store that was wiped, erased or rebuilt
//! has another identity and gets a fresh actor; a store put back to an older copy keeps its identity,
//! and its counters still go on above everything that was ever issued, since the bound is not kept
//! with the copy. A table that cannot be read is set aside, and every vnode gets a fresh actor.
//!
//! ```text
//! lease table (file `dot_leases`, replaced atomically; little-endian)
//!   magic      8 bytes   "kvorlea1"
//!   count      u32       number of leases
//!   lease      26 bytes  partition u16, store identity u64, actor u64, bound u64; `count` times
//!   checksum   u32       masked CRC-32C of all bytes before
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kvorum_backend::StoreId;
use kvorum_disk::{Disk, DiskError};
use kvorum_encoding::{ByteReader, Truncated, checksum, mask_checksum};
use kvorum_object::{ActorId, Dot};
use kvorum_ring::Partition;
use kvorum_runtime::Randomness;
use parking_lot::Mutex;

const MAGIC: &[u8; 8] = b"kvorlea1";
const TABLE_BYTES_MAX: u64 = 1 << 20;

/// How many dots a vnode may issue between two renewals: at 10,000 puts a second to one vnode, a
/// renewal every 100 seconds, and each is done when half of it is left.
const LEASE_DOTS: u64 = 1 << 20;

/// The leases of all vnodes of a node.
pub struct LeaseTable {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    randomness: Arc<dyn Randomness>,
    sources: Mutex<BTreeMap<u16, Arc<DotSource>>>,
    previous: BTreeMap<u16, Lease>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    store: StoreId,
    actor: ActorId,
    bound: u64,
}

/// The table was there and could not be used.
#[derive(Debug)]
pub struct Unreadable {
    /// Where it was set aside.
    pub kept_as: PathBuf,
    /// What was wrong with it.
    pub reason: String,
}

/// Issues the dots of one vnode.
pub struct DotSource {
    state: Mutex<SourceState>,
    /// Counters below this are on disk as used.
    bound: AtomicU64,
    renewal_due: AtomicBool,
}

#[derive(Clone, Copy)]
struct SourceState {
    store: StoreId,
    actor: ActorId,
    next: u64,
}

/// The lease is used up: renew it on a thread that may block, then ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseUsedUp;

impl LeaseTable {
    /// Reads the table of a node, or starts an empty one. An unreadable table is moved aside and
    /// reported, since fresh actors are always safe.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        randomness: Arc<dyn Randomness>,
    ) -> Result<(Self, Option<Unreadable>), DiskError> {
        let path = directory.join("dot_leases");
        let (previous, unreadable) = match disk.info(&path)? {
            None => (BTreeMap::new(), None),
            Some(_) => read_table(&*disk, &path)?,
        };
        let sources = Mutex::new(BTreeMap::new());
        Ok((
            Self {
                disk,
                path,
                randomness,
                sources,
                previous,
            },
            unreadable,
        ))
    }

    /// The dot source of a vnode. It has no counters yet: [`LeaseTable::renew`] gives it some, for all
    /// vnodes at once.
    pub fn source(&self, partition: Partition, store: StoreId) -> Arc<DotSource> {
        let kept = self
            .previous
            .get(&partition.number())
            .filter(|lease| lease.store == store);
        let (actor, next) = match kept {
            Some(lease) => (lease.actor, lease.bound),
            None => (self.fresh_actor(), 1),
        };
        let source = Arc::new(DotSource {
            state: Mutex::new(SourceState { store, actor, next }),
            bound: AtomicU64::new(next),
            renewal_due: AtomicBool::new(true),
        });
        self.sources
            .lock()
            .insert(partition.number(), source.clone());
        source
    }

    /// True when a vnode has used half of its lease.
    pub fn is_renewal_due(&self) -> bool {
        self.sources
            .lock()
            .values()
            .any(|source| source.renewal_due.load(Ordering::Relaxed))
    }

    /// Extends every lease, durably. Blocks for a sync.
    pub fn renew(&self) -> Result<(), DiskError> {
        let sources = self.sources.lock();
        let mut leases = self.previous.clone();
        for (partition, source) in sources.iter() {
            leases.insert(*partition, source.proposed());
        }
        kvorum_disk::replace_file(&*self.disk, &self.path, &encode_table(&leases))?;
        for (partition, source) in sources.iter() {
            if let Some(lease) = leases.get(partition) {
                source.grant(*lease);
            }
        }
        Ok(())
    }

    /// Gives a vnode a new actor: after its store was erased, or when somebody else has been seen with
    /// a higher counter of its present actor. Blocks for a sync.
    pub fn renounce(&self, source: &DotSource, store: StoreId) -> Result<(), DiskError> {
        let actor = self.fresh_actor();
        {
            let mut state = source.state.lock();
            *state = SourceState {
                store,
                actor,
                next: 1,
            };
            source.bound.store(1, Ordering::Release);
        }
        self.renew()
    }

    fn fresh_actor(&self) -> ActorId {
        // The reserved actor has number 0; one more than 0 is as random as any other.
        ActorId(self.randomness.next_u64().max(ActorId::CONTENT.0 + 1))
    }
}

impl DotSource {
    /// The next dot of the vnode; no other call ever returns the same.
    pub fn next(&self) -> Result<Dot, LeaseUsedUp> {
        let mut state = self.state.lock();
        let bound = self.bound.load(Ordering::Acquire);
        if state.next >= bound {
            self.renewal_due.store(true, Ordering::Relaxed);
            return Err(LeaseUsedUp);
        }
        let dot = Dot {
            actor: state.actor,
            counter: state.next,
        };
        state.next += 1;
        if bound - state.next < LEASE_DOTS / 2 {
            self.renewal_due.store(true, Ordering::Relaxed);
        }
        Ok(dot)
    }

    /// True when a clock names a dot of this vnode's actor that the vnode never issued: its own past
    /// was lost, and the actor must not be used again.
    pub fn is_overtaken_by(&self, clock: &kvorum_object::Clock) -> bool {
        let state = self.state.lock();
        clock.get(state.actor) >= state.next
    }

    /// The actor in use.
    pub fn actor(&self) -> ActorId {
        self.state.lock().actor
    }

    /// The last counter issued, or the one before the first.
    pub fn counter(&self) -> u64 {
        self.state.lock().next - 1
    }

    fn proposed(&self) -> Lease {
        let state = self.state.lock();
        Lease {
            store: state.store,
            actor: state.actor,
            bound: state.next + LEASE_DOTS,
        }
    }

    fn grant(&self, lease: Lease) {
        let state = self.state.lock();
        if state.actor == lease.actor {
            self.bound.fetch_max(lease.bound, Ordering::AcqRel);
            self.renewal_due.store(false, Ordering::Relaxed);
        }
    }
}

fn encode_table(leases: &BTreeMap<u16, Lease>) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    let count = u32::try_from(leases.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&count.to_le_bytes());
    for (partition, lease) in leases {
        out.extend_from_slice(&partition.to_le_bytes());
        out.extend_from_slice(&lease.store.0.to_le_bytes());
        out.extend_from_slice(&lease.actor.0.to_le_bytes());
        out.extend_from_slice(&lease.bound.to_le_bytes());
    }
    let sum = mask_checksum(checksum(&out));
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

fn decode_table(bytes: &[u8]) -> Result<BTreeMap<u16, Lease>, String> {
    let Some(body_len) = bytes.len().checked_sub(4) else {
        return Err(format!("{} bytes are too few for a table", bytes.len()));
    };
    let (body, stored) = bytes.split_at(body_len);
    let expected = mask_checksum(checksum(body)).to_le_bytes();
    if stored != expected {
        return Err(format!(
            "checksum {stored:02x?} where {expected:02x?} is expected"
        ));
    }
    decode_leases(body).map_err(|error| error.to_string())
}

fn decode_leases(body: &[u8]) -> Result<BTreeMap<u16, Lease>, Truncated> {
    let mut reader = ByteReader::new(body);
    if reader.take(MAGIC.len())? != MAGIC {
        return Err(Truncated { offset: 0 });
    }
    let count = reader.u32()?;
    let mut leases = BTreeMap::new();
    for _ in 0..count {
        let partition = reader.u16()?;
        let store = StoreId(reader.u64()?);
        let actor = ActorId(reader.u64()?);
        leases.insert(
            partition,
            Lease {
                store,
                actor,
                bound: reader.u64()?,
            },
        );
    }
    Ok(leases)
}

fn read_table(
    disk: &dyn Disk,
    path: &Path,
) -> Result<(BTreeMap<u16, Lease>, Option<Unreadable>), DiskError> {
    let outcome = match kvorum_disk::read_file(disk, path, TABLE_BYTES_MAX) {
        Ok(bytes) => decode_table(&bytes),
        Err(error) => Err(error.to_string()),
    };
    match outcome {
        Ok(leases) => Ok((leases, None)),
        Err(reason) => {
            let kept_as = path.with_extension("unreadable");
            disk.rename(path, &kept_as)?;
            Ok((BTreeMap::new(), Some(Unreadable { kept_as, reason })))
        }
    }
}
