//! The admin interface of a running node: a Unix socket that only the data directory's owner may
//! open, one line of JSON in and one out.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use kvorum_backend::Timestamp;
use kvorum_backup::Backups;
use kvorum_cluster::{Command, ProposeError, TypeStatus};
use kvorum_coordinator::Coordinator;
use kvorum_encoding::BucketType;
use kvorum_maintenance::{Maintenance, bytes_text, counted};
use kvorum_member::{Exchanges, Member, VnodeTable};
use kvorum_properties::{BucketProperties, PropertyOverlay, WithoutEffect};
use kvorum_runtime::Runtime;
use kvorum_server_http::NodeFacts;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use crate::aae_view;
use crate::backend_moves::BackendMoves;
use crate::bucket_defaults;
use crate::bucket_keys::{BucketKeys, Drops};
use crate::bucket_type_view;
use crate::cluster::ClusterAdmin;
use crate::folds;
use crate::health_view;
use crate::readiness;
use crate::request::{AdminReply, AdminRequest, LINE_BYTES_MAX, Replied};
use crate::status_view;
use crate::tombstones_view;
use crate::vnode_view;

/// The parts of the node that the admin interface reads.
pub struct Parts {
    /// The runtime, for tasks and the time of day.
    pub runtime: Runtime,
    /// The name of this node.
    pub node_name: String,
    /// The coordinator, which changes properties.
    pub coordinator: Arc<Coordinator>,
    /// The statistics.
    pub facts: Arc<dyn NodeFacts>,
    /// The stores of this node.
    pub vnodes: Arc<VnodeTable>,
    /// This node's part in the cluster.
    pub member: Arc<Member>,
    /// Background work.
    pub maintenance: Arc<Maintenance>,
    /// Backups that were made.
    pub backups: Arc<Backups>,
}

/// Answers the verbs.
pub struct AdminServer {
    parts: Parts,
    cluster: ClusterAdmin,
    drops: Drops,
}

impl AdminServer {
    /// Serves nothing before [`AdminServer::serve`].
    pub fn new(parts: Parts) -> Arc<Self> {
        let cluster = ClusterAdmin::new(parts.member.clone(), parts.maintenance.clone());
        let drops = Drops::default();
        Arc::new(Self {
            parts,
            cluster,
            drops,
        })
    }

    /// Listens on `path`, replacing the socket of an earlier run; the data directory's lock makes sure
    /// that no process uses it. Must be called within the runtime.
    ///
    /// # Errors
    /// Those of the file system, with the path.
    pub fn listen(path: &Path) -> anyhow::Result<UnixListener> {
        if path.exists() {
            std::fs::remove_file(path)
                .with_context(|| format!("remove the old socket {}", path.display()))?;
        }
        let listener = UnixListener::bind(path)
            .with_context(|| format!("open the admin socket {}", path.display()))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
            .with_context(|| format!("restrict the admin socket {}", path.display()))?;
        Ok(listener)
    }

    /// Serves connections for as long as the runtime lives.
    pub async fn serve(self: Arc<Self>, listener: UnixListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let server = self.clone();
                    self.parts.runtime.spawn("admin connection", async move {
                        if let Err(error) = server.converse(stream).await {
                            tracing::debug!(event = "admin_connection_lost", error = %error);
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(event = "admin_accept_failed", error = %error);
                    self.parts
                        .runtime
                        .sleep(std::time::Duration::from_millis(100))
                        .await;
                }
            }
        }
    }

    async fn converse(self: Arc<Self>, stream: UnixStream) -> std::io::Result<()> {
        let (read, mut write) = stream.into_split();
        let mut reader = BufReader::new(read.take(LINE_BYTES_MAX as u64));
        let mut line = String::new();
        while reader.read_line(&mut line).await? > 0 {
            let server = self.clone();
            let asked = line.trim_end().to_owned();
            let reply = self
                .parts
                .runtime
                .blocking(move || server.answer(&asked))
                .await;
            let (Ok(reply) | Err(reply)) = reply;
            write.write_all(reply.encode().as_bytes()).await?;
            write.write_all(b"\n").await?;
            line.clear();
        }
        Ok(())
    }

    fn answer(&self, line: &str) -> Replied {
        let request = AdminRequest::decode(line).map_err(AdminReply::refused)?;
        Ok(match request {
            AdminRequest::Ping => pong(),
            AdminRequest::Health => self.health(),
            AdminRequest::Stop => stop_this_process(),
            AdminRequest::Test => self.cluster.test()?,
            AdminRequest::Status => self.status(),
            AdminRequest::VnodeStatus => self.vnode_status(),
            AdminRequest::AaeStatus => {
                let data = self.exchanges();
                let text = aae_view::exchanges_text(&self.parts.node_name, &data);
                let riak = aae_view::riak_text(&data);
                AdminReply::ok(text, data).with_riak_text(riak)
            }
            AdminRequest::TreeStatus => {
                let data = self.exchanges();
                AdminReply::ok(aae_view::trees_text(&self.parts.node_name, &data), data)
            }
            AdminRequest::Tombstones => self.tombstones(),
            AdminRequest::Fold { words } => folds::answer(&self.cluster, &words)?,
            AdminRequest::ExchangesEnable => self.switch_exchanges(true)?,
            AdminRequest::ExchangesDisable => self.switch_exchanges(false)?,
            AdminRequest::Maintenance => self.maintenance(),
            AdminRequest::TlsStatus => self.cluster.tls_status(self.parts.runtime.wall_time()),
            AdminRequest::Backup { directory } => self.back_up(Path::new(&directory))?,
            AdminRequest::Cluster { words } => self.cluster.answer(&words)?,
            AdminRequest::BucketDefaultsShow => bucket_defaults::show(&self.cluster.member),
            AdminRequest::BucketDefaultsApply => {
                let propose = |command, done: &str| self.propose(command, Vec::new(), done);
                bucket_defaults::apply(&self.cluster.member, &propose)
            }
            AdminRequest::BucketDefaultsSet { properties } => {
                let (change, passed_over) = read_properties(&properties, None)?;
                let propose =
                    |command, done: &str| self.propose(command, passed_over.clone(), done);
                bucket_defaults::set(&self.cluster.member, &change, &propose)
            }
            AdminRequest::BackendMigrate {
                scope,
                target,
                is_dry_run,
            } => self.backend_moves().migrate(&scope, &target, is_dry_run)?,
            AdminRequest::BackendStatus => self.backend_moves().status()?,
            AdminRequest::BackendCancel { partition } => {
                self.backend_moves().cancel(partition.as_deref())?
            }
            AdminRequest::BucketTypeList => self.bucket_type_list(),
            AdminRequest::BucketTypeStatus { name } => self.bucket_type_status(&name)?,
            AdminRequest::BucketTypeCreate { name, properties } => {
                let (Ok(reply) | Err(reply)) = self.bucket_type_create(&name, &properties);
                bucket_type_view::changed("create", &name, &properties, reply)
            }
            AdminRequest::BucketTypeReset { name, property } => {
                self.bucket_type_reset(&name, property)
            }
            AdminRequest::BucketTypeRemove { name } => self.cluster.remove_type(&name)?,
            AdminRequest::BucketCount { name } => self.bucket_keys().count(&name)?,
            AdminRequest::BucketDrop {
                name,
                is_dry_run: true,
            } => self.bucket_keys().try_drop(&name)?,
            AdminRequest::BucketDrop { name, .. } => self.bucket_keys().drop_some(&name)?,
            AdminRequest::BucketTypeActivate { name } => self.bucket_type_activate(&name),
            AdminRequest::BucketTypeUpdate { name, properties } => {
                let (Ok(reply) | Err(reply)) = self.bucket_type_update(&name, &properties);
                bucket_type_view::changed("update", &name, &properties, reply)
            }
        })
    }

    /// Fails if the node is not ready, so that scripts need not parse the answer.
    fn health(&self) -> AdminReply {
        let health = self.cluster.member.health();
        AdminReply {
            is_ok: health.is_ready(),
            ..AdminReply::ok(health.text(), health_view::json(&health))
        }
    }

    fn status(&self) -> AdminReply {
        let values = self.riak_values();
        let mut text = format!("1-minute stats for '{}'\n", self.parts.node_name);
        text.push_str("-------------------------------------------\n");
        for (name, value) in &values {
            let _infallible = match value {
                Value::String(value) => writeln!(text, "{name} : {value}"),
                value => writeln!(text, "{name} : {value}"),
            };
        }
        let riak = status_view::riak_text(&self.parts.node_name, &values);
        AdminReply::ok(text, Value::Object(values)).with_riak_text(riak)
    }

    /// The state of comparisons and trees.
    fn exchanges(&self) -> Value {
        let member = &self.cluster.member;
        let size = self.parts.coordinator.state().ring().size();
        let report = member.exchanges().map(Exchanges::report);
        aae_view::data(report.as_ref(), size)
    }

    fn tombstones(&self) -> AdminReply {
        let member = &self.cluster.member;
        let report = member.exchanges().map(Exchanges::report);
        let data = tombstones_view::data(report.as_ref(), &self.parts.coordinator.state());
        let text = tombstones_view::text(&self.parts.node_name, &data);
        AdminReply::ok(text, data)
    }

    fn switch_exchanges(&self, is_enabled: bool) -> Replied {
        let Some(exchanges) = self.cluster.member.exchanges() else {
            return Err(AdminReply::refused(
                "anti-entropy is off on this node: set tictacaae_active = active and restart it",
            ));
        };
        exchanges.set_enabled(is_enabled);
        let text = match is_enabled {
            true => "replicas are compared again\n",
            false => "replicas are not compared any more until the next start; trees are kept\n",
        };
        Ok(AdminReply::ok(text, json!({"enabled": is_enabled})))
    }

    fn riak_values(&self) -> Map<String, Value> {
        let values = self.parts.facts.stats().into_iter();
        values
            .map(|(name, value)| (name.into_owned(), value))
            .collect()
    }

    fn vnode_status(&self) -> AdminReply {
        let size = self.parts.coordinator.state().ring().size();
        let failures = self.parts.maintenance.failures();
        let mut all = Vec::new();
        for vnode in self.parts.vnodes.all() {
            let (own, store) = (vnode.status(), vnode.store_status());
            let index = own.partition.index_decimal(size);
            let lost: Vec<Value> = store
                .lost
                .iter()
                .map(|lost| {
                    let (file, offset, len) = (&lost.file, lost.offset, lost.len);
                    json!({"file": file, "offset": offset, "len": len, "held": lost.held})
                })
                .collect();
            let details: Map<String, Value> = store
                .details
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone().into()))
                .collect();
            let mut data = json!({
                "partition": own.partition.number(),
                "state": readiness::OPEN,
                "index": index,
                "epoch": own.epoch.get(),
                "actor": own.actor.0.to_string(),
                "counter": own.counter,
                "gets": own.gets,
                "heads": own.heads,
                "puts": own.puts,
                "damaged_reads": own.damaged_reads,
                "size_warnings": own.size_warnings,
                "sibling_warnings": own.sibling_warnings,
                "complete": own.is_complete,
                "backend": store.engine,
                "keys": store.keys,
                "live_bytes": store.live_bytes,
                "garbage_bytes": store.garbage_bytes,
                "dead_bytes": store.garbage_bytes,
                "disk_bytes": store.disk_bytes,
                "files": store.files,
                "memory_bytes": store.memory_bytes,
                "pinned_bytes": store.pinned_bytes,
                "backlog_bytes": store.backlog_bytes,
                "debt_bytes": store.backlog_bytes,
                "put_bytes": store.put_bytes,
                "written_bytes": store.written_bytes,
                "lost": lost,
                "details": details,
            });
            if let Some(failed) = failures.of(own.partition.number()) {
                data["unwritable"] = failed.why.clone().into();
                data["unwritable_since"] = (failed.since.micros() / 1_000_000).into();
            }
            all.push(data);
        }
        for (partition, unopened) in self.parts.vnodes.unopened() {
            let index = partition.index_decimal(size);
            let mut data = json!({
                "partition": partition.number(),
                "state": readiness::state_of(&unopened),
                "index": index,
            });
            if let Some(error) = readiness::error_of(&unopened) {
                data["error"] = error.into();
            }
            all.push(data);
        }
        let several = self.parts.facts.several_backends();
        let text = vnode_view::text(&self.parts.node_name, several.as_deref(), &all);
        let riak = vnode_view::riak_text(&all);
        AdminReply::ok(text, Value::Array(all)).with_riak_text(riak)
    }

    fn maintenance(&self) -> AdminReply {
        let (mut text, mut data) = self.parts.maintenance.show();
        let (backups, backups_data) = self.parts.backups.show();
        text.push_str(&backups);
        if let Value::Object(fields) = &mut data {
            fields.insert("backups".to_owned(), backups_data);
        }
        AdminReply::ok(text, data)
    }

    fn backend_moves(&self) -> BackendMoves<'_> {
        BackendMoves {
            cluster: &self.cluster,
            coordinator: &self.parts.coordinator,
            vnodes: &self.parts.vnodes,
            now: Timestamp(self.parts.runtime.wall_time().micros()),
        }
    }

    fn bucket_keys(&self) -> BucketKeys<'_> {
        BucketKeys {
            cluster: &self.cluster,
            coordinator: &self.parts.coordinator,
            drops: &self.drops,
        }
    }

    fn back_up(&self, directory: &Path) -> Replied {
        let made = self.parts.backups.make(directory);
        let made = made.map_err(|error| AdminReply::refused(format!("{error:#}")))?;
        let (files, seconds) = (made.files, made.took.as_secs_f64());
        let text = format!(
            "backed up to {} in {seconds:.1} s\n{} linked ({}), {} copied ({})",
            directory.display(),
            counted(files.linked_files, "file"),
            bytes_text(files.linked_bytes),
            counted(files.copied_files, "file"),
            bytes_text(files.copied_bytes),
        );
        tracing::info!(
            event = "backed_up",
            directory = %directory.display(),
            linked_files = files.linked_files,
            linked_bytes = files.linked_bytes,
            copied_files = files.copied_files,
            copied_bytes = files.copied_bytes,
        );
        let data = json!({
            "directory": directory.to_string_lossy(),
            "linked_files": files.linked_files,
            "linked_bytes": files.linked_bytes,
            "copied_files": files.copied_files,
            "copied_bytes": files.copied_bytes,
            "seconds": seconds,
        });
        Ok(AdminReply::ok(text, data))
    }

    fn bucket_type_list(&self) -> AdminReply {
        let state = self.parts.coordinator.state();
        let mut text = String::from("default (active)\n");
        let mut data = vec![json!({"name": "default", "active": true})];
        for (name, entry) in state.bucket_types() {
            let is_active = entry.status == TypeStatus::Active;
            let is_leaving = state.is_leaving(name);
            let word = match entry.status {
                TypeStatus::Active => "active",
                TypeStatus::Created => "not active",
                TypeStatus::Leaving { .. } => "being removed",
            };
            let _infallible = writeln!(text, "{name} ({word})");
            let name = name.to_string();
            data.push(json!({"name": name, "active": is_active, "leaving": is_leaving}));
        }
        AdminReply::ok(text, Value::Array(data))
    }

    fn bucket_type_status(&self, name: &str) -> Replied {
        let state = self.parts.coordinator.state();
        let bucket_type = type_named(name);
        let (status, properties) = if bucket_type.is_default() {
            let defaults = BucketProperties::untyped_defaults().with(state.default_properties());
            (TypeStatus::Active, defaults)
        } else {
            let unknown = || AdminReply::refused(format!("{name} is not an existing bucket type"));
            let entry = state.bucket_types().get(&bucket_type);
            let entry = entry.ok_or_else(unknown)?;
            let properties = BucketProperties::typed_defaults().with(&entry.properties);
            (entry.status, properties)
        };
        let is_active = status == TypeStatus::Active;
        let word = match status {
            TypeStatus::Active => "active",
            TypeStatus::Created => "created and may be activated",
            TypeStatus::Leaving { .. } => "being removed, and may be activated again",
        };
        let mut text = format!("{name} is {word}\n\n");
        let properties = properties.to_json();
        for (property, value) in &properties {
            let _infallible = writeln!(text, "{property}: {value}");
        }
        let claimant = (!bucket_type.is_default()).then(|| self.cluster.claimant_name());
        let riak = bucket_type_view::riak_text(name, is_active, &properties, claimant.as_deref());
        let data = json!({"name": name, "active": is_active, "props": properties});
        Ok(AdminReply::ok(text, data).with_riak_text(riak))
    }

    fn bucket_type_create(&self, name: &str, properties: &str) -> Replied {
        let (properties, passed_over) = read_properties(properties, None)?;
        let bucket_type = type_named(name);
        let command = Command::CreateType {
            bucket_type,
            properties,
        };
        let done = format!(
            "{name} created\n\nWARNING: it is not usable yet; activate it with: \
             kvorum admin bucket-type activate {name}"
        );
        let reply = self.propose(command, passed_over, &done);
        match reply.is_ok {
            true => Ok(reply.with_riak_text(format!("{name} created"))),
            false => Err(reply),
        }
    }

    fn bucket_type_activate(&self, name: &str) -> AdminReply {
        let done = format!("{name} has been activated");
        let bucket_type = type_named(name);
        self.propose(Command::ActivateType { bucket_type }, Vec::new(), &done)
    }

    fn bucket_type_update(&self, name: &str, properties: &str) -> Replied {
        let bucket_type = type_named(name);
        let state = self.parts.coordinator.state();
        let current = state.type_properties(&bucket_type).ok();
        let (properties, passed_over) = read_properties(properties, current.map(Arc::as_ref))?;
        let done = format!("{name} updated");
        let command = Command::UpdateType {
            bucket_type,
            properties,
        };
        Ok(self.propose(command, passed_over, &done))
    }

    fn bucket_type_reset(&self, name: &str, property: Option<String>) -> AdminReply {
        let done = match &property {
            None => format!("{name} reset"),
            Some(property) => format!("{property} of {name} reset"),
        };
        let command = Command::ResetType {
            bucket_type: type_named(name),
            property,
        };
        bucket_type_view::reset(name, self.propose(command, Vec::new(), &done))
    }

    fn propose(&self, command: Command, passed_over: Vec<WithoutEffect>, done: &str) -> AdminReply {
        match self
            .parts
            .coordinator
            .change_properties(command, passed_over)
        {
            Ok(changed) => {
                let mut text = done.to_owned();
                for WithoutEffect { property, because } in &changed.without_effect {
                    let _infallible = write!(text, "\n\nNOTE: {property} has no effect: {because}");
                }
                let names: Vec<_> = changed
                    .without_effect
                    .iter()
                    .map(|it| it.property)
                    .collect();
                AdminReply::ok(
                    text,
                    json!({"state_version": changed.state.version(), "without_effect": names}),
                )
            }
            Err(ProposeError::Refused(refusal)) => bucket_type_view::refused(&refusal),
            Err(error) => AdminReply::refused(error.in_full()),
        }
    }
}

/// The answer to a ping, with the number of this process.
fn pong() -> AdminReply {
    let process = rustix::process::getpid().as_raw_nonzero().get();
    AdminReply::ok("pong", json!({"answer": "pong", "process": process}))
}

/// Stops this process as SIGTERM does.
pub fn stop_this_process() -> AdminReply {
    let own = rustix::process::getpid();
    match rustix::process::kill_process(own, rustix::process::Signal::TERM) {
        Ok(()) => AdminReply::ok("stopping", json!({"process": own.as_raw_nonzero().get()})),
        Err(error) => AdminReply::refused(format!("cannot stop: {error}")),
    }
}

fn type_named(name: &str) -> BucketType {
    BucketType::new(name.as_bytes().to_vec())
}

/// The properties in the argument of a verb, and the names that cannot be set. An empty text is the
/// same as none. `current` are the properties before the change, if there are any yet.
fn read_properties(
    text: &str,
    current: Option<&BucketProperties>,
) -> Result<(PropertyOverlay, Vec<WithoutEffect>), AdminReply> {
    if text.trim().is_empty() {
        return Ok((PropertyOverlay::default(), Vec::new()));
    }
    let shape = "properties must be a JSON object of the form {\"props\":{...}}";
    let value: Value = serde_json::from_str(text)
        .map_err(|error| AdminReply::refused(format!("{shape}: {error}")))?;
    let wanted = value.get("props").and_then(Value::as_object);
    let wanted = wanted.ok_or_else(|| AdminReply::refused(shape))?;
    let overlay = PropertyOverlay::from_json(wanted).map_err(|errors| {
        let errors = match current {
            Some(current) => current.reasons_of_change(errors),
            None => errors,
        };
        bucket_type_view::refused(&errors.into())
    })?;
    Ok((overlay, PropertyOverlay::passed_over(wanted, &Map::new())))
}
