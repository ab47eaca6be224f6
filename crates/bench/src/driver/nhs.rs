//! The driver `nhs`: a mix that only reads what it has written, with keys of its own making.

use bytes::Bytes;
use kvorum_protocol::pb::{RpbContent, RpbPair};
use kvorum_protocol::request::{DeleteOptions, GetOptions, PutOptions};

use super::nhs_keys::{KeyOrder, WorkerKeys, skewed_pick};
use super::nhs_records::{last_modified, record_entries};
use super::pb_session::{Bucket, Found, PbSession, Timeouts};
use super::riakc_pb::{bucket, timeouts};
use super::targets::Targets;
use super::{Draws, Driver, Outcome, Plan};
use crate::configuration::{Configuration, ConfigurationError, Operation};
use crate::erlang_hash::{phash2, phash2_atom};
use crate::eterm::Term;
use crate::key_generator::Exhausted;

/// Worker that alone starts key listings.
const LISTING_WORKER: u32 = 7;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Action {
    PutUnique { indexed: bool },
    PutUniqueCheckReplication,
    GetUnique,
    DeleteUnique,
    AlwaysGet,
    AlwaysGetUpdate { indexed: bool },
    Get,
    UpdateIndexed,
    ListKeys,
}

/// `alwaysget`: how many record keys a worker owns.
#[derive(Debug, Clone, Copy)]
struct Records {
    max: u64,
    min: u64,
    order: KeyOrder,
}

/// The driver as configured.
#[derive(Debug, Clone)]
pub struct NhsPlan {
    actions: Vec<Action>,
    targets: Targets,
    replica_targets: Option<Targets>,
    timeouts: Timeouts,
    records: Records,
    unique_bytes: usize,
    unique_order: KeyOrder,
    node_name_hash: u32,
    record_bucket: Bucket,
    document_bucket: Bucket,
    postcodes_max: u64,
}

impl NhsPlan {
    /// Reads the driver's keys.
    pub fn read(
        configuration: &Configuration,
        operations: &[Operation],
    ) -> Result<Self, ConfigurationError> {
        let actions: Vec<Action> = operations
            .iter()
            .map(|operation| action(configuration, &operation.operation))
            .collect::<Result<_, _>>()?;
        let unique = configuration.convert("unique", unique)?;
        let (unique_bytes, unique_order) = unique.unwrap_or((8000, KeyOrder::Key));
        let default_bucket = |name: &'static str| Bucket {
            bucket_type: None,
            name: Bytes::from_static(name.as_bytes()),
        };
        let replica_targets = actions
            .contains(&Action::PutUniqueCheckReplication)
            .then(|| Targets::read(configuration, "replpb_ips", "pb_port"))
            .transpose()?;
        Ok(Self {
            actions,
            targets: Targets::read(configuration, "pb_ips", "pb_port")?,
            replica_targets,
            timeouts: timeouts(configuration, 30_000)?,
            records: configuration
                .convert("alwaysget", records)?
                .unwrap_or(Records {
                    max: 1,
                    min: 1,
                    order: KeyOrder::Key,
                }),
            unique_bytes,
            unique_order,
            node_name_hash: configuration
                .convert("node_name", node_name)?
                .unwrap_or_else(|| phash2_atom("nonode@nohost")),
            record_bucket: configuration
                .convert("record_bucket", bucket)?
                .unwrap_or_else(|| default_bucket("domainRecord")),
            document_bucket: configuration
                .convert("document_bucket", bucket)?
                .unwrap_or_else(|| default_bucket("domainDocument")),
            postcodes_max: configuration.integer("postcode_indexcount", 1..=1000, 3)?,
        })
    }
}

fn action(configuration: &Configuration, operation: &Term) -> Result<Action, ConfigurationError> {
    const EXPECTED: &str = "expected put_unique, put_unique_bet365, put_unique_checkrepl, \
         get_unique, delete_unique, alwaysget_pb, alwaysget_updatewith2i, \
         alwaysget_updatewithout2i, get_pb, update_with2i or list_keys with the driver nhs";
    let reason = match operation.as_atom().unwrap_or_default() {
        "put_unique" => return Ok(Action::PutUnique { indexed: true }),
        "put_unique_bet365" => return Ok(Action::PutUnique { indexed: false }),
        "put_unique_checkrepl" => return Ok(Action::PutUniqueCheckReplication),
        "get_unique" => return Ok(Action::GetUnique),
        "delete_unique" => return Ok(Action::DeleteUnique),
        "alwaysget_pb" => return Ok(Action::AlwaysGet),
        "alwaysget_updatewith2i" => return Ok(Action::AlwaysGetUpdate { indexed: true }),
        "alwaysget_updatewithout2i" => return Ok(Action::AlwaysGetUpdate { indexed: false }),
        "get_pb" => return Ok(Action::Get),
        "update_with2i" => return Ok(Action::UpdateIndexed),
        "list_keys" => return Ok(Action::ListKeys),
        "postcodequery_http" | "dobquery_http" => "it queries secondary indexes over HTTP",
        "aae_query" | "segment_fold" | "force_aae" => "it needs anti-entropy folds",
        name if name.ends_with("_http") => "operations over HTTP are not offered",
        _ => "there is no such operation",
    };
    Err(configuration.refusal("operations", operation, format!("{reason}; {EXPECTED}")))
}

fn unique(term: &Term) -> Result<(usize, KeyOrder), String> {
    const EXPECTED: &str = "expected {Size, key_order} or {Size, skew_order}, size in bytes";
    let Some([size, order]) = term.as_tuple() else {
        return Err(EXPECTED.to_owned());
    };
    let size = size
        .as_integer()
        .and_then(|size| usize::try_from(size).ok())
        .filter(|size| *size <= 1 << 30)
        .ok_or(EXPECTED)?;
    Ok((size, key_order(order).ok_or(EXPECTED)?))
}

fn records(term: &Term) -> Result<Records, String> {
    const EXPECTED: &str =
        "expected {MaxKeysPerWorker, MinKeysPerWorker, Order} with key_order or skew_order";
    let Some([max, min, order]) = term.as_tuple() else {
        return Err(EXPECTED.to_owned());
    };
    let count = |term: &Term| {
        term.as_integer()
            .and_then(|count| u64::try_from(count).ok())
    };
    let max = count(max).filter(|max| *max > 0).ok_or(EXPECTED)?;
    Ok(Records {
        max,
        min: count(min).ok_or(EXPECTED)?,
        order: key_order(order).ok_or(EXPECTED)?,
    })
}

fn key_order(term: &Term) -> Option<KeyOrder> {
    match term.as_atom()? {
        "key_order" => Some(KeyOrder::Key),
        "skew_order" => Some(KeyOrder::Skew),
        _ => None,
    }
}

fn node_name(term: &Term) -> Result<u32, String> {
    phash2(term).ok_or_else(|| "expected an atom or an integer of 64 bits".to_owned())
}

impl Plan for NhsPlan {
    type Worker = NhsDriver;

    fn worker(&self, id: u32) -> NhsDriver {
        let replica = self.replica_targets.as_ref();
        NhsDriver {
            id,
            keys: WorkerKeys::new(id, self.node_name_hash),
            session: PbSession::new(self.targets.of_worker(id), self.timeouts),
            replica: replica.map(|targets| PbSession::new(targets.of_worker(id), self.timeouts)),
            plan: self.clone(),
            next_unique: 1,
            lowest_unique: 1,
            record_count: 0,
        }
    }

    fn why_without_effect(key: &str) -> Option<&'static str> {
        match key {
            "riakc_pb_replies" | "pb_connect_options" => Some("the driver nhs has never read it"),
            "record_sync" | "document_sync" | "node_confirms" => {
                Some("bucket properties are set on the server")
            }
            "http_ips" | "http_port" | "http_timeout_general" | "fold_timeout_general" => {
                Some("it concerns operations over HTTP, which are not offered")
            }
            "replpb_ips" => Some("only put_unique_checkrepl uses it"),
            _ => None,
        }
    }
}

/// One worker's connection, keys and counters.
#[derive(Debug)]
pub struct NhsDriver {
    plan: NhsPlan,
    id: u32,
    keys: WorkerKeys,
    session: PbSession,
    /// The other cluster, for `put_unique_checkrepl`.
    replica: Option<PbSession>,
    /// Counter of the next unique key to write.
    next_unique: u64,
    /// Counter of the lowest unique key that has not been deleted.
    lowest_unique: u64,
    /// Number of record keys that this worker has written.
    record_count: u64,
}

impl Driver for NhsDriver {
    async fn connect(&mut self) -> Result<(), String> {
        if let Some(replica) = &mut self.replica {
            replica.connect().await?;
        }
        self.session.connect().await
    }

    async fn run(&mut self, operation: usize, draws: &mut Draws) -> Outcome {
        let Some(action) = self.plan.actions.get(operation).copied() else {
            return Outcome::Silent;
        };
        match action {
            Action::PutUnique { indexed } => self.put_unique(indexed, draws).await.1,
            Action::PutUniqueCheckReplication => self.put_unique_replicated(draws).await,
            Action::GetUnique => self.get_unique(draws).await,
            Action::DeleteUnique => self.delete_unique().await,
            Action::AlwaysGet => self.always_get(draws).await,
            Action::AlwaysGetUpdate { indexed } => self.always_get_update(indexed, draws).await,
            Action::Get => self.get(draws).await.unwrap_or_else(Outcome::from),
            Action::UpdateIndexed => self
                .update_indexed(draws)
                .await
                .unwrap_or_else(Outcome::from),
            Action::ListKeys => {
                if self.id == LISTING_WORKER {
                    self.session
                        .list_keys_in_background(&self.plan.record_bucket);
                }
                Outcome::Done
            }
        }
    }
}

impl NhsDriver {
    /// Writes the next unique key; the counter only advances when that succeeds.
    async fn put_unique(&mut self, indexed: bool, draws: &mut Draws) -> (Bytes, Outcome) {
        let key = self.keys.key(self.next_unique, self.plan.unique_order);
        let mut value = vec![0; self.plan.unique_bytes];
        draws.random.fill(&mut value);
        let content = RpbContent {
            value: draws.marked(&key, Bytes::from(value)),
            indexes: if indexed {
                vec![last_modified()]
            } else {
                Vec::new()
            },
            ..RpbContent::default()
        };
        let options = PutOptions::default();
        let bucket = &self.plan.document_bucket;
        match self
            .session
            .put(bucket, &key, None, &content, &options)
            .await
        {
            Ok(()) => {
                self.next_unique += 1;
                (key, Outcome::Done)
            }
            Err(reason) => (key, Outcome::Failed(reason)),
        }
    }

    /// Writes a unique key, then asks the other cluster for it until it is there; one sample
    /// covers all. Unlike the original it gives up after the read timeout.
    async fn put_unique_replicated(&mut self, draws: &mut Draws) -> Outcome {
        let (key, outcome) = self.put_unique(true, draws).await;
        let (Outcome::Done, Some(replica)) = (&outcome, &mut self.replica) else {
            return outcome;
        };
        let bucket = &self.plan.document_bucket;
        let options = GetOptions::default();
        let arriving = async {
            loop {
                match replica.get(bucket, &key, &options).await {
                    Ok(Some(_)) => return Outcome::Done,
                    Ok(None) => {}
                    Err(reason) => return Outcome::Failed(reason),
                }
            }
        };
        tokio::time::timeout(self.plan.timeouts.read, arriving)
            .await
            .unwrap_or_else(|_| Outcome::failed("not_replicated"))
    }

    /// Reads one of the unique keys of this worker; one that is not there counts as success.
    async fn get_unique(&mut self, draws: &mut Draws) -> Outcome {
        let span = self.next_unique.saturating_sub(self.lowest_unique).max(1);
        let counter = self.lowest_unique + draws.random.uniform(span);
        let key = self.keys.key(counter, self.plan.unique_order);
        let options = GetOptions::default();
        match self
            .session
            .get(&self.plan.document_bucket, &key, &options)
            .await
        {
            Ok(Some(found)) => draws.judge(&key, &found.content.value),
            Ok(None) => Outcome::Missed,
            Err(reason) => Outcome::Failed(reason),
        }
    }

    /// Deletes the lowest unique key that is left.
    async fn delete_unique(&mut self) -> Outcome {
        if self.lowest_unique >= self.next_unique {
            return Outcome::Missed;
        }
        let key = self.keys.key(self.lowest_unique, self.plan.unique_order);
        let options = DeleteOptions::default();
        match self
            .session
            .delete(&self.plan.document_bucket, &key, &options)
            .await
        {
            Ok(()) => {
                self.lowest_unique += 1;
                Outcome::Done
            }
            Err(reason) => Outcome::Failed(reason),
        }
    }

    /// Reads a record of this worker once it owns enough of them; a miss is an error.
    async fn always_get(&mut self, draws: &mut Draws) -> Outcome {
        if self.record_count <= self.plan.records.min {
            return Outcome::Silent;
        }
        let key = self.picked_record(draws);
        let options = GetOptions::default();
        match self
            .session
            .get(&self.plan.record_bucket, &key, &options)
            .await
        {
            Ok(Some(found)) => draws.judge(&key, &found.content.value),
            Ok(None) => Outcome::failed("notfound"),
            Err(reason) => Outcome::Failed(reason),
        }
    }

    /// Inserts a record while there is room, the likelier the emptier; else updates one.
    async fn always_get_update(&mut self, indexed: bool, draws: &mut Draws) -> Outcome {
        let Records { max, order, .. } = self.plan.records;
        let room = max.saturating_sub(self.record_count);
        if self.record_count == 0 || draws.random.uniform(max) <= room {
            let key = self.keys.key(self.record_count + 1, order);
            let outcome = self.write_record(&key, None, indexed, draws).await;
            self.record_count += u64::from(outcome == Outcome::Done);
            return outcome;
        }
        let key = self.picked_record(draws);
        let options = GetOptions::default();
        match self
            .session
            .get(&self.plan.record_bucket, &key, &options)
            .await
        {
            Ok(Some(found)) => self.write_record(&key, Some(found), indexed, draws).await,
            Ok(None) => Outcome::failed("notfound"),
            Err(reason) => Outcome::Failed(reason),
        }
    }

    /// Reads a key of the key generator; a miss counts as success.
    async fn get(&mut self, draws: &mut Draws) -> Result<Outcome, Exhausted> {
        let key = draws.key()?;
        let options = GetOptions::default();
        Ok(
            match self
                .session
                .get(&self.plan.record_bucket, &key, &options)
                .await
            {
                Ok(Some(found)) => draws.judge(&key, &found.content.value),
                Ok(None) => Outcome::Missed,
                Err(reason) => Outcome::Failed(reason),
            },
        )
    }

    /// Updates a key of the key generator, or creates it.
    async fn update_indexed(&mut self, draws: &mut Draws) -> Result<Outcome, Exhausted> {
        let key = draws.key()?;
        let options = GetOptions::default();
        Ok(
            match self
                .session
                .get(&self.plan.record_bucket, &key, &options)
                .await
            {
                Ok(found) => self.write_record(&key, found, true, draws).await,
                Err(reason) => Outcome::Failed(reason),
            },
        )
    }

    fn picked_record(&self, draws: &mut Draws) -> Bytes {
        let counter = skewed_pick(self.record_count, &mut draws.random);
        self.keys.key(counter, self.plan.records.order)
    }

    /// Writes a new value, over what was found if anything was.
    async fn write_record(
        &mut self,
        key: &Bytes,
        found: Option<Found>,
        indexed: bool,
        draws: &mut Draws,
    ) -> Outcome {
        let value = draws.value(key);
        let (vclock, before) =
            found.map_or_else(Default::default, |found| (found.vclock, found.content));
        let indexes: Vec<RpbPair> = if indexed {
            record_entries(self.plan.postcodes_max, &mut draws.random)
        } else {
            before.indexes
        };
        let content = RpbContent {
            value,
            indexes,
            ..before
        };
        let options = PutOptions::default();
        let bucket = &self.plan.record_bucket;
        match self
            .session
            .put(bucket, key, vclock.as_deref(), &content, &options)
            .await
        {
            Ok(()) => Outcome::Done,
            Err(reason) => Outcome::Failed(reason),
        }
    }
}
