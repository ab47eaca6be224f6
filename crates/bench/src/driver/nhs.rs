//! The driver `nhs`: a mix with keys of its own, which only reads keys that it has written.

use bytes::Bytes;
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use kvorum_protocol::pb::{RpbContent, RpbPair};
use kvorum_protocol::request::GetOptions;

use super::http_session::HttpRequest;
use super::index_query::IndexQuery;
use super::nhs_keys::{WorkerKeys, skewed_pick};
use super::nhs_plan::{Action, Records};
use super::nhs_records::{last_modified, record_entries};
use super::object_access::{ObjectAccess, Via, bucket_path, why_without_http};
use super::pb_session::{Found, PbSession};
use super::{BucketNumber, Draws, Driver, Ended, Outcome, Plan};

pub use super::nhs_plan::NhsPlan;
use kvorum_erlang_terms::Term;

/// The only worker that starts key listings.
const LISTING_WORKER: u32 = 7;

impl Plan for NhsPlan {
    type Worker = NhsDriver;

    fn worker(&self, id: u32) -> NhsDriver {
        let replica = self.replica_targets.as_ref();
        let timeouts = self.objects.timeouts;
        NhsDriver {
            id,
            keys: WorkerKeys::new(id, self.node_name_hash),
            objects: self.objects.of_worker(id),
            replica: replica.map(|targets| PbSession::new(targets.of_worker(id), timeouts)),
            plan: self.clone(),
            next_unique: 1,
            lowest_unique: 1,
            record_count: 0,
        }
    }

    fn why_without_effect(key: &str) -> Option<&'static str> {
        match key {
            "riakc_pb_replies" | "pb_connect_options" => Some("the driver nhs has never read it"),
            "fold_timeout_general" => Some("it concerns anti-entropy folds, which are not offered"),
            "replpb_ips" => Some("only put_unique_checkrepl uses it"),
            _ => why_without_http(key),
        }
    }
}

/// One worker's connections, keys and counters.
#[derive(Debug)]
pub struct NhsDriver {
    plan: NhsPlan,
    id: u32,
    keys: WorkerKeys,
    objects: ObjectAccess,
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
        self.objects.connect().await?;
        self.set_properties().await
    }

    async fn run(&mut self, operation: usize, draws: &mut Draws) -> Ended {
        let Some(action) = self.plan.actions.get(operation).copied() else {
            return Ok(Outcome::Silent);
        };
        draws.use_bucket(BucketNumber(u64::from(action.is_of_documents())));
        match action {
            Action::PutUnique { indexed, via } => {
                self.put_unique(indexed, via, draws).await?;
                Ok(Outcome::Done)
            }
            Action::PutUniqueCheckReplication => self.put_unique_replicated(draws).await,
            Action::GetUnique(via) => self.get_unique(via, draws).await,
            Action::HeadUnique => self.head_unique(draws).await,
            Action::DeleteUnique(via) => self.delete_unique(via, draws).await,
            Action::AlwaysGet(via) => self.always_get(via, draws).await,
            Action::AlwaysHead => self.always_head(draws).await,
            Action::AlwaysGetUpdate { indexed, via } => {
                self.always_get_update(indexed, via, draws).await
            }
            Action::Get => self.get(draws).await,
            Action::UpdateIndexed => self.update_indexed(draws).await,
            Action::QueryPostcode(via) => {
                let query = IndexQuery::postcode(&mut draws.random);
                self.query(via, &query).await
            }
            Action::QueryBirth(via) => {
                let query = IndexQuery::birth(&mut draws.random);
                self.query(via, &query).await
            }
            Action::ListKeys => {
                if self.id == LISTING_WORKER {
                    let bucket = &self.plan.record_bucket;
                    self.objects.pb.list_keys_in_background(bucket);
                }
                Ok(Outcome::Done)
            }
        }
    }
}

impl NhsDriver {
    /// Sets the configured properties of the buckets, on the first worker.
    async fn set_properties(&mut self) -> Result<(), String> {
        if self.id != 1 {
            return Ok(());
        }
        let buckets = [
            (&self.plan.record_bucket, &self.plan.record_properties),
            (&self.plan.document_bucket, &self.plan.document_properties),
        ];
        for (bucket, properties) in buckets {
            let (Some(properties), Some(http)) = (properties, &mut self.objects.http) else {
                continue;
            };
            let request = HttpRequest {
                headers: vec![(CONTENT_TYPE, HeaderValue::from_static("application/json"))],
                body: Bytes::from(properties.clone()),
            };
            let path = format!("{}/props", bucket_path(bucket));
            let answer = http.send(Method::PUT, &path, request).await;
            let refused = match answer {
                Ok(answer) if answer.status.is_success() => continue,
                Ok(answer) => answer.reason(),
                Err(reason) => reason,
            };
            return Err(format!("cannot set {properties} at {path}: {refused}"));
        }
        Ok(())
    }

    /// Writes the next unique key, and returns it; the counter only advances when that succeeds.
    async fn put_unique(
        &mut self,
        indexed: bool,
        via: Via,
        draws: &mut Draws,
    ) -> Result<Bytes, Term> {
        let key = self.keys.key(self.next_unique, self.plan.unique_order);
        let mut value = vec![0; self.plan.unique_bytes];
        draws.random.fill(&mut value);
        let content = RpbContent {
            value: draws.marked(&key, Bytes::from(value)),
            indexes: indexed.then(last_modified).into_iter().collect(),
            ..RpbContent::default()
        };
        let bucket = &self.plan.document_bucket;
        let put = self.objects.put(via, bucket, &key, None, &content);
        put.await?;
        self.next_unique += 1;
        Ok(key)
    }

    /// Writes a unique key, then polls the other cluster until the key is there; one sample covers
    /// all. Unlike the original, this gives up after the read timeout.
    async fn put_unique_replicated(&mut self, draws: &mut Draws) -> Ended {
        let key = self.put_unique(true, Via::Pb, draws).await?;
        let Some(replica) = &mut self.replica else {
            return Ok(Outcome::Done);
        };
        let bucket = &self.plan.document_bucket;
        let options = GetOptions::default();
        let arriving = async {
            while replica.get(bucket, &key, &options).await?.is_none() {}
            Ok(Outcome::Done)
        };
        tokio::time::timeout(self.plan.objects.timeouts.read, arriving)
            .await
            .unwrap_or_else(|_| Err(Outcome::failed("not_replicated")))
    }

    /// One of the unique keys that this worker has written and not deleted; none before the first.
    ///
    /// basho_bench draws from the lowest key plus 1 up to the next key, which is not written yet.
    /// So it never reads the first key, and with N keys one get in N finds nothing.
    fn written_unique(&self, draws: &mut Draws) -> Option<Bytes> {
        let count = self.next_unique.checked_sub(self.lowest_unique)?;
        if count == 0 {
            return None;
        }
        let counter = self.lowest_unique + draws.random.uniform(count) - 1;
        Some(self.keys.key(counter, self.plan.unique_order))
    }

    /// Reads one of the unique keys of this worker; a missing one counts as success.
    async fn get_unique(&mut self, via: Via, draws: &mut Draws) -> Ended {
        let Some(key) = self.written_unique(draws) else {
            return Ok(Outcome::Silent);
        };
        draws.reads(&key);
        let bucket = &self.plan.document_bucket;
        let found = self.objects.get(via, bucket, &key).await?;
        Ok(draws.judge_found(&key, found.as_ref()))
    }

    /// Reads one of the unique keys of this worker without its value.
    async fn head_unique(&mut self, draws: &mut Draws) -> Ended {
        let Some(key) = self.written_unique(draws) else {
            return Ok(Outcome::Silent);
        };
        draws.reads(&key);
        let bucket = &self.plan.document_bucket;
        if self.objects.head(bucket, &key).await? {
            Ok(Outcome::Done)
        } else {
            Ok(draws.judge_absent(&key))
        }
    }

    /// Deletes the lowest unique key that is left.
    async fn delete_unique(&mut self, via: Via, draws: &mut Draws) -> Ended {
        if self.lowest_unique >= self.next_unique {
            return Ok(Outcome::Missed);
        }
        let key = self.keys.key(self.lowest_unique, self.plan.unique_order);
        draws.removes(&key);
        let bucket = &self.plan.document_bucket;
        self.objects.delete(via, bucket, &key).await?;
        self.lowest_unique += 1;
        Ok(Outcome::Done)
    }

    /// Reads a record of this worker once it has enough records; a miss is an error.
    async fn always_get(&mut self, via: Via, draws: &mut Draws) -> Ended {
        if self.record_count <= self.plan.records.min {
            return Ok(Outcome::Silent);
        }
        let key = self.picked_record(draws);
        draws.reads(&key);
        let found = self.record(via, &key).await?;
        Ok(draws.judge(&key, found.values()))
    }

    /// Like [`Self::always_get`], without the value.
    async fn always_head(&mut self, draws: &mut Draws) -> Ended {
        if self.record_count <= self.plan.records.min {
            return Ok(Outcome::Silent);
        }
        let key = self.picked_record(draws);
        if self.objects.head(&self.plan.record_bucket, &key).await? {
            Ok(Outcome::Done)
        } else {
            Err(Outcome::failed("notfound"))
        }
    }

    /// Inserts a record with a probability that falls with the number of records, or else updates
    /// one.
    async fn always_get_update(&mut self, indexed: bool, via: Via, draws: &mut Draws) -> Ended {
        let Records { max, order, .. } = self.plan.records;
        let room = max.saturating_sub(self.record_count);
        if self.record_count == 0 || draws.random.uniform(max) <= room {
            let key = self.keys.key(self.record_count + 1, order);
            self.write_record(&key, None, indexed, via, draws).await?;
            self.record_count += 1;
            return Ok(Outcome::Done);
        }
        let key = self.picked_record(draws);
        draws.reads(&key);
        let found = self.record(via, &key).await?;
        draws.judge(&key, found.values()).go_on()?;
        self.write_record(&key, Some(found), indexed, via, draws)
            .await
    }

    /// Reads an existing record.
    async fn record(&mut self, via: Via, key: &[u8]) -> Result<Found, Term> {
        let found = self.objects.get(via, &self.plan.record_bucket, key).await?;
        found.ok_or_else(|| Term::atom("notfound"))
    }

    /// Reads a key of the key generator; a miss counts as success.
    async fn get(&mut self, draws: &mut Draws) -> Ended {
        let key = draws.key()?;
        draws.reads(&key);
        let bucket = &self.plan.record_bucket;
        let found = self.objects.get(Via::Pb, bucket, &key).await?;
        Ok(draws.judge_found(&key, found.as_ref()))
    }

    /// Updates a key of the key generator, or creates it.
    async fn update_indexed(&mut self, draws: &mut Draws) -> Ended {
        let key = draws.key()?;
        let bucket = &self.plan.record_bucket;
        let found = self.objects.get(Via::Pb, bucket, &key).await?;
        self.write_record(&key, found, true, Via::Pb, draws).await
    }

    async fn query(&mut self, via: Via, query: &IndexQuery) -> Ended {
        let bucket = &self.plan.record_bucket;
        match via {
            Via::Pb => drop(self.objects.pb.query_index(&query.request(bucket)).await?),
            Via::Http => drop(self.objects.fetch(&query.path(bucket)).await?),
        }
        Ok(Outcome::Done)
    }

    fn picked_record(&self, draws: &mut Draws) -> Bytes {
        let counter = skewed_pick(self.record_count, &mut draws.random);
        self.keys.key(counter, self.plan.records.order)
    }

    /// Writes a new value, which replaces the found value if there is one.
    async fn write_record(
        &mut self,
        key: &Bytes,
        found: Option<Found>,
        indexed: bool,
        via: Via,
        draws: &mut Draws,
    ) -> Ended {
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
        let (bucket, vclock) = (&self.plan.record_bucket, vclock.as_deref());
        self.objects.put(via, bucket, key, vclock, &content).await?;
        Ok(Outcome::Done)
    }
}
