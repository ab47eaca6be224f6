//! The admin interface's requests and replies: one line of JSON each way over a Unix socket.

use serde_json::{Value, json};

use crate::move_scope::MoveScope;

/// The longest request or reply line, in bytes.
pub const LINE_BYTES_MAX: usize = 16 << 20;

/// A request to a running node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminRequest {
    /// Report that the process runs.
    Ping,
    /// Report whether the node can serve, and the reasons if it cannot.
    Health,
    /// Stop gracefully.
    Stop,
    /// Write, read and delete an object.
    Test,
    /// The statistics.
    Status,
    /// The state of each vnode and its store.
    VnodeStatus,
    /// The comparisons of replicas: for each partition the times of the last one and of the last
    /// complete one, and the number of repairs.
    AaeStatus,
    /// The trees of each vnode.
    TreeStatus,
    /// Tombstones of this node, and the rounds that remove them.
    Tombstones,
    /// A question about the keys of a bucket, or a change of the keys that are found.
    Fold {
        /// The verb and its arguments.
        words: Vec<String>,
    },
    /// Compare replicas again.
    ExchangesEnable,
    /// Start no comparison of replicas until the next start, and end those under way.
    ExchangesDisable,
    /// Background work, and backups.
    Maintenance,
    /// Encryption between nodes.
    TlsStatus,
    /// Make a backup of the node.
    Backup {
        /// An absolute path that does not exist.
        directory: String,
    },
    /// The bucket types.
    BucketTypeList,
    /// A bucket type's properties.
    BucketTypeStatus {
        /// The type's name.
        name: String,
    },
    /// Make a bucket type.
    BucketTypeCreate {
        /// The type's name.
        name: String,
        /// A JSON object of the form `{"props": {...}}`.
        properties: String,
    },
    /// Let a bucket type be used.
    BucketTypeActivate {
        /// The type's name.
        name: String,
    },
    /// Change a bucket type's properties.
    BucketTypeUpdate {
        /// The type's name.
        name: String,
        /// In the form of its creation.
        properties: String,
    },
    /// Reset one property of a bucket type, or all that can be reset.
    BucketTypeReset {
        /// The type's name.
        name: String,
        /// The property.
        property: Option<String>,
    },
    /// Remove a bucket type of which no node holds a key.
    BucketTypeRemove {
        /// The type's name.
        name: String,
    },
    /// The number of a bucket's keys.
    BucketCount {
        /// The bucket, as TYPE/BUCKET.
        name: String,
    },
    /// Delete keys of a bucket for a second. The client repeats this until all are deleted.
    BucketDrop {
        /// The bucket, as TYPE/BUCKET.
        name: String,
        /// Only report how many there are.
        is_dry_run: bool,
    },
    /// The defaults of buckets without type: agreed ones and those of the configuration.
    BucketDefaultsShow,
    /// Make all nodes agree on the defaults of this node's configuration.
    BucketDefaultsApply,
    /// Make all nodes agree on some defaults.
    BucketDefaultsSet {
        /// In the form of a bucket type's properties.
        properties: String,
    },
    /// Move data to another backend.
    BackendMigrate {
        /// The scope of the move.
        scope: MoveScope,
        /// The target backend.
        target: String,
        /// Only report what would move, and the room for it.
        is_dry_run: bool,
    },
    /// Moves between backends.
    BackendStatus,
    /// Cancel moves between backends: all under way, or one partition's.
    BackendCancel {
        /// Its number or its index.
        partition: Option<String>,
    },
    /// A verb about the cluster.
    Cluster {
        /// The verb and its arguments.
        words: Vec<String>,
    },
}

/// The requests without arguments.
const BARE: [(&str, AdminRequest); 17] = [
    ("ping", AdminRequest::Ping),
    ("health", AdminRequest::Health),
    ("stop", AdminRequest::Stop),
    ("test", AdminRequest::Test),
    ("status", AdminRequest::Status),
    ("vnode-status", AdminRequest::VnodeStatus),
    ("aae-status", AdminRequest::AaeStatus),
    ("tictacaae treestatus", AdminRequest::TreeStatus),
    ("tictacaae tombstones", AdminRequest::Tombstones),
    ("tictacaae enable", AdminRequest::ExchangesEnable),
    ("tictacaae disable", AdminRequest::ExchangesDisable),
    ("maintenance", AdminRequest::Maintenance),
    ("tls status", AdminRequest::TlsStatus),
    ("bucket-defaults show", AdminRequest::BucketDefaultsShow),
    ("bucket-defaults apply", AdminRequest::BucketDefaultsApply),
    ("bucket-type list", AdminRequest::BucketTypeList),
    ("backend status", AdminRequest::BackendStatus),
];

/// A reply, or a refusal.
pub(crate) type Replied = Result<AdminReply, AdminReply>;

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct AdminReply {
    /// False when the request was refused; the text has the reason.
    pub is_ok: bool,
    /// The text for people.
    pub text: String,
    /// Text for users of Riak's commands and their scripts, if it differs.
    pub riak: Option<Box<str>>,
    /// The data for programs.
    pub data: Value,
}

impl AdminRequest {
    /// The line that is sent, without its end.
    pub fn encode(&self) -> String {
        let (verb, name, properties) = match self {
            Self::Cluster { words } => {
                return json!({"verb": "cluster", "words": words}).to_string();
            }
            Self::Fold { words } => {
                return json!({"verb": "tictacaae fold", "words": words}).to_string();
            }
            Self::Backup { directory } => {
                return json!({"verb": "backup", "directory": directory}).to_string();
            }
            Self::BackendMigrate {
                scope,
                target,
                is_dry_run,
            } => {
                let scope = scope.to_json();
                return json!({
                    "verb": "backend migrate", "scope": scope, "to": target, "dry_run": is_dry_run,
                })
                .to_string();
            }
            Self::BackendCancel { partition } => {
                return json!({"verb": "backend cancel", "partition": partition}).to_string();
            }
            Self::BucketTypeReset { name, property } => {
                return json!({"verb": "bucket-type reset", "name": name, "property": property})
                    .to_string();
            }
            Self::BucketDrop { name, is_dry_run } => {
                return json!({"verb": "bucket drop", "name": name, "dry_run": is_dry_run})
                    .to_string();
            }
            Self::BucketTypeRemove { name } => ("bucket-type remove", Some(name), None),
            Self::BucketCount { name } => ("bucket count", Some(name), None),
            Self::BucketDefaultsSet { properties } => {
                ("bucket-defaults set", None, Some(properties))
            }
            Self::BucketTypeStatus { name } => ("bucket-type status", Some(name), None),
            Self::BucketTypeCreate { name, properties } => {
                ("bucket-type create", Some(name), Some(properties))
            }
            Self::BucketTypeActivate { name } => ("bucket-type activate", Some(name), None),
            Self::BucketTypeUpdate { name, properties } => {
                ("bucket-type update", Some(name), Some(properties))
            }
            bare => {
                let found = BARE.iter().find(|(_, request)| request == bare);
                (found.map_or("", |(verb, _)| verb), None, None)
            }
        };
        json!({"verb": verb, "name": name, "properties": properties}).to_string()
    }

    /// Reads a line.
    ///
    /// # Errors
    /// A message, if the line is not a request of this version.
    pub fn decode(line: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let text = |field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
        let name = || text("name").ok_or_else(|| "the request names no bucket type".to_owned());
        let bucket = || text("name").ok_or_else(|| "the request names no bucket".to_owned());
        let is_dry_run = value["dry_run"].as_bool().unwrap_or(false);
        let properties = || text("properties").unwrap_or_else(|| "{\"props\":{}}".to_owned());
        let verb = text("verb").unwrap_or_default();
        let words = || {
            let words = value.get("words").and_then(Value::as_array);
            let words = words.into_iter().flatten().filter_map(Value::as_str);
            words.map(str::to_owned).collect()
        };
        Ok(match verb.as_str() {
            "cluster" => Self::Cluster { words: words() },
            "tictacaae fold" => Self::Fold { words: words() },
            "backup" => Self::Backup {
                directory: text("directory").ok_or("the request names no directory")?,
            },
            "backend migrate" => Self::BackendMigrate {
                scope: MoveScope::from_json(&value["scope"])
                    .ok_or("the request does not name the data to move")?,
                target: text("to").ok_or("the request names no backend")?,
                is_dry_run,
            },
            "backend cancel" => Self::BackendCancel {
                partition: text("partition"),
            },
            "bucket-defaults set" => Self::BucketDefaultsSet {
                properties: properties(),
            },
            "bucket-type status" => Self::BucketTypeStatus { name: name()? },
            "bucket-type create" => Self::BucketTypeCreate {
                name: name()?,
                properties: properties(),
            },
            "bucket-type reset" => Self::BucketTypeReset {
                name: name()?,
                property: text("property"),
            },
            "bucket-type remove" => Self::BucketTypeRemove { name: name()? },
            "bucket count" => Self::BucketCount { name: bucket()? },
            "bucket drop" => Self::BucketDrop {
                name: bucket()?,
                is_dry_run,
            },
            "bucket-type activate" => Self::BucketTypeActivate { name: name()? },
            "bucket-type update" => Self::BucketTypeUpdate {
                name: name()?,
                properties: properties(),
            },
            other => match BARE.iter().find(|(verb, _)| *verb == other) {
                Some((_, request)) => request.clone(),
                None => return Err(format!("the running node has no verb {other:?}")),
            },
        })
    }
}

impl AdminReply {
    /// A reply with the data that the request asks for.
    pub fn ok(text: impl Into<String>, data: Value) -> Self {
        Self {
            is_ok: true,
            text: text.into(),
            riak: None,
            data,
        }
    }

    /// The same with another text under the names of Riak's commands.
    pub fn with_riak_text(self, text: impl Into<String>) -> Self {
        Self {
            riak: Some(text.into().into_boxed_str()),
            ..self
        }
    }

    /// A refusal, with its reason.
    pub fn refused(text: impl Into<String>) -> Self {
        let text = text.into();
        let data = json!({ "error": text });
        Self {
            is_ok: false,
            text,
            riak: None,
            data,
        }
    }

    /// The line that is sent, without its end.
    pub fn encode(&self) -> String {
        json!({"ok": self.is_ok, "text": self.text, "riak": self.riak, "data": self.data})
            .to_string()
    }

    /// Reads a line.
    ///
    /// # Errors
    /// The line is not JSON.
    pub fn decode(line: &str) -> Result<Self, serde_json::Error> {
        let mut value: Value = serde_json::from_str(line)?;
        Ok(Self {
            is_ok: value["ok"].as_bool().unwrap_or(false),
            text: value["text"].as_str().unwrap_or_default().to_owned(),
            riak: value["riak"].as_str().map(Box::from),
            data: value["data"].take(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_round_trip() {
        let name = || "maps".to_owned();
        let properties = || "{\"props\":{\"n_val\":1}}".to_owned();
        for request in [
            AdminRequest::Ping,
            AdminRequest::Health,
            AdminRequest::Stop,
            AdminRequest::Test,
            AdminRequest::Status,
            AdminRequest::VnodeStatus,
            AdminRequest::AaeStatus,
            AdminRequest::TreeStatus,
            AdminRequest::Tombstones,
            AdminRequest::Fold {
                words: vec!["object-stats".to_owned(), "a b".to_owned()],
            },
            AdminRequest::ExchangesEnable,
            AdminRequest::ExchangesDisable,
            AdminRequest::Maintenance,
            AdminRequest::TlsStatus,
            AdminRequest::Backup {
                directory: "/a b/\"c\"".to_owned(),
            },
            AdminRequest::BucketDefaultsShow,
            AdminRequest::BucketDefaultsApply,
            AdminRequest::BucketDefaultsSet {
                properties: properties(),
            },
            AdminRequest::BucketTypeList,
            AdminRequest::BucketTypeStatus { name: name() },
            AdminRequest::BucketTypeCreate {
                name: name(),
                properties: properties(),
            },
            AdminRequest::BucketTypeActivate { name: name() },
            AdminRequest::BucketTypeUpdate {
                name: name(),
                properties: properties(),
            },
            AdminRequest::BucketTypeReset {
                name: name(),
                property: Some("n_val".to_owned()),
            },
            AdminRequest::BucketTypeReset {
                name: name(),
                property: None,
            },
            AdminRequest::BucketTypeRemove { name: name() },
            AdminRequest::BucketCount { name: name() },
            AdminRequest::BucketDrop {
                name: name(),
                is_dry_run: true,
            },
            AdminRequest::BackendMigrate {
                scope: MoveScope::Bucket("t/b".to_owned()),
                target: name(),
                is_dry_run: true,
            },
            AdminRequest::BackendMigrate {
                scope: MoveScope::All,
                target: name(),
                is_dry_run: false,
            },
            AdminRequest::BackendStatus,
            AdminRequest::BackendCancel { partition: None },
            AdminRequest::BackendCancel {
                partition: Some("7".to_owned()),
            },
            AdminRequest::Cluster {
                words: vec!["leave".to_owned(), name()],
            },
        ] {
            assert_eq!(AdminRequest::decode(&request.encode()), Ok(request));
        }
    }

    #[test]
    fn an_unknown_verb_is_refused_by_name() {
        assert!(
            AdminRequest::decode("{\"verb\":\"dance\"}")
                .unwrap_err()
                .contains("dance")
        );
    }
}
