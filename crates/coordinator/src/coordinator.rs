//! The coordinator: the interface for protocols, and the frame around every request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use kvorum_backend::Reading;
use kvorum_cluster::{AgreedState, ClusterState, Command, ProposeError, Refusal};
use kvorum_data_types::{DataType, Kind};
use kvorum_encoding::{Address, Bucket, BucketType, Key, StorageKey};
use kvorum_key_folds::{Findings, FoldKind, FoldScope, KeyClock, KeyFold};
use kvorum_object::{Clock, Object};
use kvorum_properties::{PropertyErrors, Reason, WithoutEffect};
use kvorum_ring::{NodeId, Replica, Role};
use kvorum_runtime::{Moment, Runtime};
use kvorum_vnode::{TreeAnswer, TreeRequest, value_of_type};

use crate::accounts::{Accounts, Progress};
use crate::attempts::Attempts;
use crate::comparing::Comparisons;
use crate::coverage::Coverage;
use crate::data_types;
use crate::deleting::Deletes;
use crate::error::RequestError;
use crate::gate::{Gate, Pass};
use crate::hinting::{self, HandedOff};
use crate::index_query::IndexQuery;
use crate::index_results::IndexResults;
use crate::key_changes::{FoundTombstones, KeyChange, KeysChanged};
use crate::key_folding::KeyFolding;
use crate::listing::{BucketListing, KeyCount, KeyListing};
use crate::parts::{CoordinatorSettings, Parts, Remote};
use crate::plan::{Plan, Purpose};
use crate::property_change::{PropertiesChanged, PropertyChanges, retagged};
use crate::reach::{OutOfReach, out_of_reach};
use crate::reading::{Reads, StartedGet};
use crate::reaper::Reaper;
use crate::replicas::Replicas;
use crate::request::{
    BucketOrType, DeleteOptions, Deleted, GetOptions, PutOptions, PutRequest, ReplicaPlace,
};
use crate::trace::{Meter, RequestKind};
use crate::writing::{Writes, Written};

/// Listings in progress at which further ones are refused with `overload`: each holds a thread of the
/// blocking pool, of which reads must find some free.
const LISTINGS_MAX: usize = 16;

/// Index queries in progress at which further ones are refused with `overload`. A query holds a thread
/// for one part of its results at a time, which is short.
const INDEX_QUERIES_MAX: usize = 1_000;

/// Folds over keys in progress at which further ones are refused with `overload`. They are for operators,
/// and read whole buckets.
const KEY_FOLDS_MAX: usize = 4;

/// Keys that a fold has found and that are reaped, erased or repaired at a time.
const KEYS_AT_ONCE: usize = 16;

/// Coordinates requests at this node.
pub struct Coordinator {
    /// Shared with work that outlives a request.
    replicas: Arc<Replicas>,
    attempts: Arc<Attempts>,
    accounts: Arc<Accounts>,
    reads: Arc<Reads>,
    writes: Arc<Writes>,
    deletes: Deletes,
    coverage: Arc<Coverage>,
    comparisons: Arc<Comparisons>,
    found_tombstones: FoundTombstones,
    property_changes: PropertyChanges,
    settings: CoordinatorSettings,
    requests: Gate,
    /// Gets among the requests that wait.
    gets_waiting: Gate,
    listings: Arc<Gate>,
    index_queries: Arc<Gate>,
    key_folds: Arc<Gate>,
}

/// Requests that a coordinator has under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InProgress {
    /// Gets that wait for a device or another node; those that memory answers are over at once.
    pub gets: usize,
    /// Puts and deletes.
    pub puts: usize,
    /// Listings of keys and buckets.
    pub listings: usize,
    /// Index queries.
    pub index_queries: usize,
    /// Folds over keys.
    pub key_folds: usize,
}

impl Coordinator {
    /// The coordinator of a node that is alone.
    pub fn new(parts: Parts, settings: CoordinatorSettings) -> Self {
        Self::of_replicas(Replicas::new(parts, None), settings)
    }

    /// The coordinator of a node among others.
    pub fn among_peers(parts: Parts, remote: Remote, settings: CoordinatorSettings) -> Self {
        Self::of_replicas(Replicas::new(parts, Some(remote)), settings)
    }

    fn of_replicas(replicas: Replicas, settings: CoordinatorSettings) -> Self {
        let (replicas, colocated) = (Arc::new(replicas), settings.colocated_replicas);
        let compares_all = settings.compares_all_on_get;
        let attempts = Arc::new(Attempts::new(replicas.clone(), colocated));
        let accounts = Arc::new(Accounts::new(replicas.parts.clone(), settings));
        let reads = Arc::new(Reads::new(replicas.clone(), attempts.clone(), compares_all));
        let writes = Arc::new(Writes {
            replicas: replicas.clone(),
            attempts: attempts.clone(),
            reads: reads.clone(),
        });
        let deletes = Deletes {
            replicas: replicas.clone(),
            reads: reads.clone(),
            writes: writes.clone(),
            tombstones: settings.tombstones,
            reaper: Reaper::default(),
        };
        let coverage = Coverage::new(
            replicas.clone(),
            attempts.clone(),
            accounts.clone(),
            colocated,
        );
        let comparisons = Arc::new(Comparisons::new(replicas.clone(), attempts.clone()));
        let found_tombstones = FoundTombstones {
            replicas: replicas.clone(),
            attempts: attempts.clone(),
            comparisons: comparisons.clone(),
        };
        let property_changes = PropertyChanges::new(&replicas.parts, settings.backend_names);
        Self {
            replicas,
            attempts,
            accounts,
            reads,
            writes,
            deletes,
            coverage: Arc::new(coverage),
            comparisons,
            found_tombstones,
            property_changes,
            settings,
            requests: Gate::new(settings.requests_max),
            gets_waiting: Gate::new(usize::MAX),
            listings: Arc::new(Gate::new(LISTINGS_MAX)),
            index_queries: Arc::new(Gate::new(INDEX_QUERIES_MAX)),
            key_folds: Arc::new(Gate::new(KEY_FOLDS_MAX)),
        }
    }

    /// The agreed cluster state at this moment.
    pub fn state(&self) -> Arc<ClusterState> {
        self.replicas.parts.cluster.current()
    }

    /// The agreed state, through which cluster state is changed.
    pub fn cluster(&self) -> &Arc<dyn AgreedState> {
        &self.replicas.parts.cluster
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.replicas.parts.node
    }

    /// The receiver of figures, for work that is made of several requests.
    pub fn meter(&self) -> &Arc<dyn Meter> {
        &self.replicas.parts.meter
    }

    /// Clock, tasks and randomness, for the protocols above.
    pub fn runtime(&self) -> &Runtime {
        &self.replicas.parts.runtime
    }

    /// Puts, deletes, and gets that wait, in progress.
    pub fn requests_in_progress(&self) -> usize {
        self.requests.in_progress()
    }

    /// The requests under way at this moment.
    pub fn in_progress(&self) -> InProgress {
        let gets = self.gets_waiting.in_progress();
        InProgress {
            gets,
            puts: self.requests.in_progress().saturating_sub(gets),
            listings: self.listings.in_progress(),
            index_queries: self.index_queries.in_progress(),
            key_folds: self.key_folds.in_progress(),
        }
    }

    /// Reads an object. A tombstone is returned as it is: the protocol hides it, unless the
    /// client asks for its clock.
    ///
    /// `arrived` is when the request came in. Values of data types are in Riak's form.
    pub async fn get(
        &self,
        address: &Address,
        options: &GetOptions,
        arrived: Moment,
    ) -> Result<Option<Arc<Object>>, RequestError> {
        let read = self.read(RequestKind::Get, address, options, arrived);
        let found = read.await?;
        Ok(found.map(|object| data_types::shown(object, &address.bucket_type)))
    }

    /// The data type of a bucket's objects; `None` where they are plain.
    pub fn data_type_of(
        &self,
        bucket_type: &BucketType,
        bucket: &Bucket,
    ) -> Result<Option<Kind>, RequestError> {
        let state = self.state();
        let properties = data_types::properties_of(&state, bucket_type, bucket)?;
        Ok(data_types::kind_of(properties))
    }

    /// Reads the value of a data type. An object without a value of the type counts as an empty value, and
    /// a tombstone as nothing.
    pub async fn fetch_data_type(
        &self,
        address: &Address,
        kind: Kind,
        options: &GetOptions,
        arrived: Moment,
    ) -> Result<Option<DataType>, RequestError> {
        let state = self.state();
        let properties = data_types::properties_of(&state, &address.bucket_type, &address.bucket)?;
        let precision = properties.hll_precision();
        let read = self.read(RequestKind::Fetch(kind), address, options, arrived);
        let found = read.await?;
        let live = found.filter(|object| !object.is_tombstone());
        Ok(live.map(|object| value_of_type(&object, kind, precision)))
    }

    /// Carries out an operation on a data type, at most once, and returns the value that its
    /// coordinating replica holds then. `context` is the client's clock of the value, for its removes.
    pub async fn update_data_type(
        &self,
        address: &Address,
        operation: kvorum_data_types::Operation,
        context: Option<kvorum_data_types::Clock>,
        options: &PutOptions,
        arrived: Moment,
    ) -> Result<DataType, RequestError> {
        let kind = operation.kind();
        let operation = (operation, context);
        let operated = self.operate(address, operation, true, options, arrived);
        let (object, precision) = operated.await?;
        Ok(value_of_type(&object, kind, precision))
    }

    /// Like [`Coordinator::update_data_type`], for a client that does not need the value: that of a large
    /// set is not read.
    pub async fn change_data_type(
        &self,
        address: &Address,
        operation: kvorum_data_types::Operation,
        context: Option<kvorum_data_types::Clock>,
        options: &PutOptions,
        arrived: Moment,
    ) -> Result<(), RequestError> {
        let operation = (operation, context);
        let operated = self.operate(address, operation, false, options, arrived);
        operated.await.map(drop)
    }

    /// The object after an operation, whole if it is needed whole, and the precision of its bucket.
    async fn operate(
        &self,
        address: &Address,
        (operation, context): (
            kvorum_data_types::Operation,
            Option<kvorum_data_types::Clock>,
        ),
        is_needed_whole: bool,
        options: &PutOptions,
        arrived: Moment,
    ) -> Result<(Arc<Object>, u8), RequestError> {
        let _under_way = self.replicas.parts.under_way.begin();
        let (kind, state) = (operation.kind(), self.state());
        let properties = data_types::properties_of(&state, &address.bucket_type, &address.bucket)?;
        let update = Arc::new(data_types::update_in(properties, operation, context)?);
        let precision = update.precision;
        let mut progress = self.accounts.begin(arrived, options.timeout);
        let outcome = match self.admit_put(&progress) {
            Ok(_admitted) => {
                self.slow_down(&mut progress).await;
                let run = self.writes.apply(address, update, options, &mut progress);
                match run.await {
                    Ok(written) if is_needed_whole => self.whole(written, progress.deadline).await,
                    written => written.map(|it| it.object),
                }
            }
            Err(error) => Err(error),
        };
        let (object, error) = (outcome.as_deref().ok(), outcome.as_ref().err());
        self.accounts
            .finish_object(RequestKind::Update(kind), address, error, object, &progress);
        outcome.map(|object| (object, precision))
    }

    /// The whole of an object that was written.
    async fn whole(&self, written: Written, deadline: Moment) -> Result<Arc<Object>, RequestError> {
        if !written.is_in_pages {
            return Ok(written.object);
        }
        let (made_by, seen) = (written.made_by, written.object.clock());
        let whole = self
            .replicas
            .whole_of(&written.plan, made_by, seen, deadline);
        whole.await
    }

    /// Reads an object as it is stored.
    async fn read(
        &self,
        kind: RequestKind,
        address: &Address,
        options: &GetOptions,
        arrived: Moment,
    ) -> Result<Option<Arc<Object>>, RequestError> {
        let _under_way = self.replicas.parts.under_way.begin();
        // A get is read in one piece and taken up at once: there is no queue to measure.
        let mut progress = self.accounts.begin_at_once(arrived, options.timeout);
        // A get that memory answers holds nothing up and is over at once: to count it in and out
        // would cost more than the work, on a word that all cores share.
        let started = match self.check_admission(&progress) {
            Ok(()) => self.reads.start(address, options),
            Err(error) => StartedGet::Ended(Err(error)),
        };
        let outcome = match started {
            StartedGet::Ended(Err(RequestError::VnodeOpening)) => match self.requests.enter() {
                // Few get here: the future of those that never wait stays small.
                Some(_admitted) => Box::pin(self.reads.get(address, options, &mut progress)).await,
                None => Err(RequestError::Overload),
            },
            StartedGet::Ended(reply) => reply,
            StartedGet::Waits(get) => match self.requests.enter() {
                Some(_admitted) => {
                    let _counted = self.gets_waiting.enter();
                    let get = self.reads.wait_for(get, address, options, &mut progress);
                    match get.await {
                        Err(RequestError::VnodeOpening) => {
                            Box::pin(self.reads.get(address, options, &mut progress)).await
                        }
                        reply => reply,
                    }
                }
                None => Err(RequestError::Overload),
            },
        };
        let object = outcome.as_ref().ok().and_then(Option::as_deref);
        let error = outcome.as_ref().err();
        self.accounts
            .finish_object(kind, address, error, object, &progress);
        outcome
    }

    /// Writes an object and returns the object that its coordinating replica holds then; an `asis` put
    /// returns the object as it was given.
    pub async fn put(
        &self,
        address: &Address,
        mut request: PutRequest,
        options: &PutOptions,
        arrived: Moment,
    ) -> Result<Arc<Object>, RequestError> {
        let _under_way = self.replicas.parts.under_way.begin();
        request.content = data_types::taken(request.content);
        let mut progress = self.accounts.begin(arrived, options.timeout);
        let mut kind = RequestKind::Put;
        let outcome = match self.admit_put(&progress) {
            Ok(_admitted) => {
                self.slow_down(&mut progress).await;
                let run = self.writes.put(address, request, options, &mut progress);
                let written = run.await;
                let properties = written.as_ref().map(|it| it.plan.properties);
                if properties.is_ok_and(|it| it.is_write_once) {
                    kind = RequestKind::WriteOncePut;
                }
                written.map(|written| written.object)
            }
            Err(error) => Err(error),
        };
        let (object, error) = (outcome.as_deref().ok(), outcome.as_ref().err());
        self.accounts
            .finish_object(kind, address, error, object, &progress);
        outcome.map(|object| data_types::shown(object, &address.bucket_type))
    }

    /// Deletes an object: writes a tombstone over the version that the client names, or over the one
    /// that a read finds.
    pub async fn delete(
        &self,
        address: &Address,
        context: Option<Clock>,
        options: &DeleteOptions,
        arrived: Moment,
    ) -> Result<Deleted, RequestError> {
        let _under_way = self.replicas.parts.under_way.begin();
        let mut progress = self.accounts.begin(arrived, options.timeout);
        let outcome = match self.admit(&progress) {
            Ok(_admitted) => {
                self.slow_down(&mut progress).await;
                let run = self
                    .deletes
                    .delete(address, context, options, &mut progress);
                run.await
            }
            Err(error) => Err(error),
        };
        let error = outcome.as_ref().err();
        self.accounts
            .finish_object(RequestKind::Delete, address, error, None, &progress);
        outcome
    }

    /// Starts a listing of a bucket's keys.
    pub fn list_keys(
        &self,
        bucket_type: &BucketType,
        bucket: &Bucket,
        timeout: Duration,
    ) -> Result<KeyListing, RequestError> {
        let place = BucketOrType::new(bucket_type, Some(bucket));
        KeyListing::begin(&self.coverage, &self.listings, place, timeout)
    }

    /// Starts a count of a bucket's keys, which is cheaper than a listing. Statistics count it as a listing.
    pub fn count_keys(
        &self,
        bucket_type: &BucketType,
        bucket: &Bucket,
        timeout: Duration,
    ) -> Result<KeyCount, RequestError> {
        let place = BucketOrType::new(bucket_type, Some(bucket));
        KeyCount::begin(&self.coverage, &self.listings, place, timeout)
    }

    /// Starts a listing of a type's buckets.
    pub fn list_buckets(
        &self,
        bucket_type: &BucketType,
        timeout: Duration,
    ) -> Result<BucketListing, RequestError> {
        let place = BucketOrType::new(bucket_type, None);
        BucketListing::begin(&self.coverage, &self.listings, place, timeout)
    }

    /// The buckets of all types, in order. A bucket that holds nothing but tombstones is not among them.
    pub async fn all_buckets(
        &self,
        timeout: Duration,
    ) -> Result<Vec<(BucketType, Bucket)>, RequestError> {
        let state = self.state();
        let is_active = |it: &&BucketType| state.type_properties(it).is_ok();
        let created = state.bucket_types().keys().filter(is_active).cloned();
        let untyped = std::iter::once(BucketType::default_type());
        let types: Vec<BucketType> = untyped.chain(created).collect();
        let mut all = Vec::new();
        for bucket_type in types {
            let mut listing = self.list_buckets(&bucket_type, timeout)?;
            while let Some(found) = listing.next().await {
                let found = found?.into_iter();
                all.extend(found.map(|bucket| (bucket_type.clone(), bucket)));
            }
        }
        all.sort_unstable();
        Ok(all)
    }

    /// Starts an index query.
    pub fn query_index(&self, query: IndexQuery) -> Result<IndexResults, RequestError> {
        IndexResults::begin(&self.coverage, &self.index_queries, query)
    }

    /// Answers a question about the keys of a bucket, from one replica of each.
    pub async fn fold_keys(
        &self,
        fold: KeyFold,
        timeout: Duration,
    ) -> Result<Findings, RequestError> {
        let folding = KeyFolding::begin(&self.coverage, &self.key_folds, fold, timeout)?;
        folding.whole().await
    }

    /// Does the same with each key of a scope that it is for, some at a time, and returns when all is done.
    /// `timeout` is for finding them.
    pub async fn change_keys(
        &self,
        scope: FoldScope,
        change: KeyChange,
        timeout: Duration,
    ) -> Result<KeysChanged, RequestError> {
        let (bucket_type, bucket) = (scope.bucket_type.clone(), scope.bucket.clone());
        let kind = FoldKind::Clocks(change.entries());
        let fold = KeyFold { scope, kind };
        let mut folding = KeyFolding::begin(&self.coverage, &self.key_folds, fold, timeout)?;
        let mut changed = KeysChanged::default();
        while let Some(found) = folding.next().await {
            let mut keys = found?.clocks.into_iter();
            loop {
                let some: Vec<KeyClock> = keys.by_ref().take(KEYS_AT_ONCE).collect();
                if some.is_empty() {
                    break;
                }
                changed.dispatched += some.len() as u64;
                let changes = some.into_iter().map(|KeyClock { key, clock }| {
                    let address = Address {
                        bucket_type: bucket_type.clone(),
                        bucket: bucket.clone(),
                        key,
                    };
                    self.change_key(address, clock, change)
                });
                let done = join_all(changes).await;
                changed.left += done.into_iter().filter(|is_done| !is_done).count() as u64;
            }
        }
        tracing::info!(
            event = "keys_changed",
            change = change.name(),
            bucket_type = %bucket_type,
            bucket = %bucket,
            dispatched = changed.dispatched,
            left = changed.left,
        );
        Ok(changed)
    }

    /// True when it is done.
    async fn change_key(&self, address: Address, clock: Bytes, change: KeyChange) -> bool {
        let _under_way = self.replicas.parts.under_way.begin();
        let timeout = self.settings.request_timeout;
        let Ok(clock) = Clock::decode(&clock) else {
            return false;
        };
        match change {
            KeyChange::Reap => {
                let reaped = self.found_tombstones.reap(&address, clock, timeout);
                reaped.await
            }
            KeyChange::Erase => {
                let (options, now) = (DeleteOptions::default(), self.runtime().now());
                let deleted = self.delete(&address, Some(clock), &options, now);
                deleted.await.is_ok()
            }
            KeyChange::Repair => {
                let key = StorageKey::from_address(&address);
                self.comparisons.mend(&key, timeout).await
            }
        }
    }

    /// Proposes a change of properties, and waits until it is agreed. It lists the bucket where that is
    /// needed: a bucket with objects keeps their kind. Otherwise like
    /// [`Coordinator::change_properties`].
    pub async fn change_bucket_properties(
        self: &Arc<Self>,
        command: Command,
        passed_over: Vec<WithoutEffect>,
    ) -> Result<PropertiesChanged, ProposeError> {
        self.check_kind_may_change(&command).await?;
        let coordinator = self.clone();
        let propose = move || coordinator.change_properties(command, passed_over);
        self.runtime().blocking(propose).await
    }

    /// Refuses a command that would change the kind of a bucket's objects, unless the bucket is known
    /// to have none. An object that is put meanwhile is stored as one kind or the other, and read as
    /// that kind.
    async fn check_kind_may_change(&self, command: &Command) -> Result<(), Refusal> {
        let state = self.state();
        let Some((bucket_type, bucket)) = retagged(&state, command) else {
            return Ok(());
        };
        let in_doubt = |error: RequestError| Reason::TagInDoubt {
            detail: error.to_string(),
        };
        let listed = self.list_keys(bucket_type, bucket, self.settings.request_timeout);
        let reason = match listed {
            Err(error) => Some(in_doubt(error)),
            Ok(mut listing) => listing
                .next()
                .await
                .map(|keys| keys.map_or_else(in_doubt, |_| Reason::TagKept)),
        };
        match reason {
            None => Ok(()),
            Some(reason) => Err(PropertyErrors::one("object_tag", reason).into()),
        }
    }

    /// Proposes a change of properties, of a bucket or a bucket type, and waits until it is agreed;
    /// belongs on the blocking pool. It does not look at a bucket's objects. Values that this server
    /// would not keep are refused ([`kvorum_properties::Effect`]). Other commands are proposed as they
    /// are. `passed_over` are names in the client's request that cannot be set
    /// ([`kvorum_properties::PropertyOverlay::passed_over`]).
    pub fn change_properties(
        &self,
        command: Command,
        passed_over: Vec<WithoutEffect>,
    ) -> Result<PropertiesChanged, ProposeError> {
        self.property_changes.propose(command, passed_over)
    }

    /// Proposes another backend for a bucket or a type, and waits until it is agreed; belongs on the
    /// blocking pool. Each node moves the existing data there. This is an operator's order: clients
    /// change the backend of empty buckets and types alone ([`Coordinator::change_properties`]).
    pub fn move_to_backend(&self, command: Command) -> Result<PropertiesChanged, ProposeError> {
        self.property_changes.propose_move(command, Vec::new())
    }

    /// Logs properties that an earlier version accepted and this server does not keep: types that were
    /// created as consistent, hooks, and other backends' names. Called once, at the start.
    pub fn log_properties_not_kept(&self) {
        self.property_changes.log_not_kept();
    }

    /// Removes the tombstones whose time has come; called at intervals, from a thread that may block
    /// unless `reading` forbids it. Those that it cannot remove stay, and cost nothing but space.
    pub fn reap_due(&self, reading: Reading) {
        let _under_way = self.replicas.parts.under_way.begin();
        self.deletes.reap_due(reading);
    }

    /// Compares all replicas of a key and brings up to date those that are behind. True when every replica of
    /// the bucket has the same in the end, durably.
    pub async fn mend_replicas(&self, key: &StorageKey, timeout: Duration) -> bool {
        let _under_way = self.replicas.parts.under_way.begin();
        self.comparisons.mend(key, timeout).await
    }

    /// Asks a replica, of this node or another, about one of its trees.
    pub async fn ask_about_tree(
        &self,
        node: NodeId,
        request: TreeRequest,
        timeout: Duration,
    ) -> Result<TreeAnswer, RequestError> {
        self.comparisons.ask(node, request, timeout).await
    }

    /// Hands over the present hints of nodes that are up, until `deadline`.
    pub async fn hand_off_hints(&self, deadline: Moment) -> HandedOff {
        let _under_way = self.replicas.parts.under_way.begin();
        hinting::hand_off(&self.replicas, deadline).await
    }

    /// The partitions out of reach through this node at this moment, for requests without quorums of their
    /// own to buckets without a type.
    pub fn out_of_reach(&self) -> OutOfReach {
        let colocated = self.settings.colocated_replicas;
        out_of_reach(&self.state(), colocated, |node| self.replicas.is_up(node))
    }

    /// Ends the waits of requests for stores that are being opened: they are refused at once from here on.
    /// Called by a node that stops.
    pub fn stop_waiting(&self) {
        self.attempts.stop_waiting();
    }

    /// Waits until all stores of this node that can be opened are open, at most for the time-out of a
    /// request. Listings and queries call it, as they need every store; nothing waits if other nodes have
    /// replicas.
    pub async fn until_opened(&self, timeout: Option<Duration>) {
        let timeout = timeout.unwrap_or(self.settings.request_timeout);
        self.attempts.until_opened(timeout).await;
    }

    /// The replicas of a key at this moment.
    pub fn preference_list(&self, address: &Address) -> Result<Vec<ReplicaPlace>, RequestError> {
        let state = self.state();
        Ok(places(&state, &self.plan_of_key(&state, address)?))
    }

    /// The n_val partitions that the ring gives a key, for clients that ask for its preference list. Some of
    /// them keep no replica if there are too few nodes; requests may go to their nodes all the same.
    pub fn preference_list_by_ring(
        &self,
        address: &Address,
    ) -> Result<Vec<ReplicaPlace>, RequestError> {
        let state = self.state();
        let plan = self.plan_of_key(&state, address)?;
        if plan.replicas.len() >= plan.n_val as usize {
            return Ok(places(&state, &plan));
        }
        let is_up = |node| self.replicas.is_up(node);
        let by_ring = Plan::new(&state, address, None, true, true, Purpose::Read, is_up)?;
        Ok(places(&state, &by_ring))
    }

    fn plan_of_key(&self, state: &ClusterState, address: &Address) -> Result<Plan, RequestError> {
        let (attempts, purpose) = (&self.attempts, Purpose::Read);
        attempts.plan_with(state, address, None, true, purpose)
    }

    /// A key for an object whose client leaves the choice to us.
    pub fn generate_key(&self) -> Key {
        let mut random = [0; 20];
        self.replicas.parts.runtime.randomness().fill(&mut random);
        kvorum_object::generated_key(random)
    }

    /// Holds a write back while background work is behind, every writer by the same small delay. Timers
    /// go by the millisecond, so the delay is rounded up or down at random.
    async fn slow_down(&self, progress: &mut Progress) {
        let delay = self.replicas.parts.maintenance.put_delay();
        if delay.is_zero() {
            return;
        }
        let runtime = &self.replicas.parts.runtime;
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        let is_rounded_up = runtime.random_u64() % 1_000 < micros % 1_000;
        let delay = Duration::from_millis(micros / 1_000 + u64::from(is_rounded_up));
        let begun = runtime.now();
        let delay = delay.min(progress.deadline.since(begun));
        if !delay.is_zero() {
            runtime.sleep(delay).await;
            progress.trace.slowed += runtime.now().since(begun);
        }
    }

    /// Refuses requests above the limit, and those that have waited longer than their time; counts the
    /// rest in.
    fn admit(&self, progress: &Progress) -> Result<Pass<&Gate>, RequestError> {
        self.check_admission(progress)?;
        self.requests.enter().ok_or(RequestError::Overload)
    }

    /// Refuses a put also where this node has no room for it.
    fn admit_put(&self, progress: &Progress) -> Result<Pass<&Gate>, RequestError> {
        if self.replicas.parts.maintenance.refuses_puts() {
            return Err(RequestError::Overload);
        }
        self.admit(progress)
    }

    /// Refuses as [`Coordinator::admit`] does, and counts nothing in.
    fn check_admission(&self, progress: &Progress) -> Result<(), RequestError> {
        if self.requests.is_full() {
            return Err(RequestError::Overload);
        }
        if progress.arrived.plus(progress.trace.queue) >= progress.deadline {
            return Err(RequestError::Timeout);
        }
        Ok(())
    }
}

/// The replicas of a plan, as clients see them.
fn places(state: &ClusterState, plan: &Plan) -> Vec<ReplicaPlace> {
    let place = |replica: &Replica| ReplicaPlace {
        partition: replica.partition,
        node: replica.node,
        node_name: state
            .member(replica.node)
            .map_or_else(String::new, |m| m.name.clone()),
        is_primary: replica.role == Role::Primary,
    };
    plan.replicas.iter().map(place).collect()
}
