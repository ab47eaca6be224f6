//! The driver `nhs` as configured: its operations, targets, key counts and buckets.

use super::actions;
use super::nhs_keys::KeyOrder;
use super::object_access::{AccessPlan, Via};
use super::pb_session::Bucket;
use super::riakc_pb::bucket_of;
use super::targets::Targets;
use crate::configuration::{Configuration, ConfigurationError, scaled_count};
use crate::erlang_hash::{phash2, phash2_atom};
use crate::settings::Operation;
use kvorum_erlang_terms::Term;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Action {
    PutUnique { indexed: bool, via: Via },
    PutUniqueCheckReplication,
    GetUnique(Via),
    HeadUnique,
    DeleteUnique(Via),
    AlwaysGet(Via),
    AlwaysHead,
    AlwaysGetUpdate { indexed: bool, via: Via },
    Get,
    UpdateIndexed,
    QueryPostcode(Via),
    QueryBirth(Via),
    ListKeys,
}

impl Action {
    /// True for the bucket of documents, false for the bucket of records. Both have keys of the
    /// same form.
    pub(super) fn is_of_documents(self) -> bool {
        matches!(
            self,
            Self::PutUnique { .. }
                | Self::PutUniqueCheckReplication
                | Self::GetUnique(_)
                | Self::HeadUnique
                | Self::DeleteUnique(_)
        )
    }

    fn needs_http(self) -> bool {
        match self {
            Self::PutUnique { via, .. }
            | Self::AlwaysGetUpdate { via, .. }
            | Self::GetUnique(via)
            | Self::DeleteUnique(via)
            | Self::AlwaysGet(via)
            | Self::QueryPostcode(via)
            | Self::QueryBirth(via) => via == Via::Http,
            Self::PutUniqueCheckReplication
            | Self::HeadUnique
            | Self::AlwaysHead
            | Self::Get
            | Self::UpdateIndexed
            | Self::ListKeys => false,
        }
    }
}

/// `alwaysget`: the numbers of record keys of a worker.
#[derive(Debug, Clone, Copy)]
pub(super) struct Records {
    pub(super) max: u64,
    pub(super) min: u64,
    pub(super) order: KeyOrder,
}

/// The driver as configured.
#[derive(Debug, Clone)]
pub struct NhsPlan {
    pub(super) actions: Vec<Action>,
    pub(super) objects: AccessPlan,
    pub(super) replica_targets: Option<Targets>,
    pub(super) records: Records,
    pub(super) unique_bytes: usize,
    pub(super) unique_order: KeyOrder,
    pub(super) node_name_hash: u32,
    pub(super) record_bucket: Bucket,
    pub(super) document_bucket: Bucket,
    /// Bucket properties to set at the start, as JSON.
    pub(super) record_properties: Option<String>,
    pub(super) document_properties: Option<String>,
    pub(super) postcodes_max: u64,
}

impl NhsPlan {
    /// Reads the driver's keys; `scale` multiplies the numbers of record keys.
    pub fn read(
        configuration: &Configuration,
        operations: &[Operation],
        scale: f64,
    ) -> Result<Self, ConfigurationError> {
        let actions = actions(configuration, operations, action)?;
        let unique = configuration.convert("unique", unique)?;
        let (unique_bytes, unique_order) = unique.unwrap_or((8000, KeyOrder::Key));
        let replica_targets = actions
            .contains(&Action::PutUniqueCheckReplication)
            .then(|| Targets::read(configuration, "replpb_ips", "pb_port", 8087))
            .transpose()?;
        let record_properties = properties(configuration, "record_sync")?;
        let document_properties = properties(configuration, "document_sync")?;
        let needs_http = actions.iter().any(|action| action.needs_http())
            || record_properties.is_some()
            || document_properties.is_some();
        let records = configuration.convert("alwaysget", records)?;
        let records = records.map(|records| Records {
            max: scaled_count(records.max, scale),
            min: scaled_count(records.min, scale),
            ..records
        });
        Ok(Self {
            actions,
            objects: AccessPlan::read(configuration, needs_http)?,
            replica_targets,
            records: records.unwrap_or(Records {
                max: 1,
                min: 1,
                order: KeyOrder::Key,
            }),
            unique_bytes,
            unique_order,
            node_name_hash: configuration
                .convert("node_name", node_name)?
                .unwrap_or_else(|| phash2_atom("nonode@nohost")),
            record_bucket: bucket_of(configuration, "record_bucket", "domainRecord")?,
            document_bucket: bucket_of(configuration, "document_bucket", "domainDocument")?,
            record_properties,
            document_properties,
            postcodes_max: configuration.integer("postcode_indexcount", 1..=1000, 3)?,
        })
    }
}

/// The properties of a bucket, whose `sync_on_write` is configured under `sync_key`. `None` if
/// neither that nor `node_confirms` is set, so that a run changes no properties on its own.
fn properties(
    configuration: &Configuration,
    sync_key: &'static str,
) -> Result<Option<String>, ConfigurationError> {
    let sync = configuration.convert(sync_key, |term| {
        let text = term.as_text().or_else(|| term.as_atom().map(str::to_owned));
        text.filter(|text| ["one", "all", "backend"].contains(&text.as_str()))
            .ok_or_else(|| "expected \"one\", \"all\" or \"backend\"".to_owned())
    })?;
    let confirms = configuration.convert("node_confirms", |term| {
        let count = term.as_integer().filter(|count| (0..=64).contains(count));
        count.ok_or_else(|| "expected a number of nodes".to_owned())
    })?;
    let sync = sync.map(|sync| format!("\"sync_on_write\":\"{sync}\""));
    let confirms = confirms.map(|confirms| format!("\"node_confirms\":{confirms}"));
    let parts: Vec<String> = sync.into_iter().chain(confirms).collect();
    Ok(Some(parts)
        .filter(|parts| !parts.is_empty())
        .map(|parts| format!("{{\"props\":{{{}}}}}", parts.join(","))))
}

fn action(operation: &Term) -> Result<Action, String> {
    const EXPECTED: &str = "expected put_unique, put_unique_bet365, put_unique_checkrepl, \
         get_unique, head_unique, delete_unique, alwaysget_pb, alwayshead_pb, \
         alwaysget_updatewith2i, alwaysget_updatewithout2i, get_pb, update_with2i, \
         postcodequery_http, postcodequery_pb, dobquery_http, dobquery_pb, list_keys, or \
         alwaysget, alwaysget_updatewith2i, put_unique, get_unique or delete_unique with _http \
         behind it, with the driver nhs";
    use Via::{Http, Pb};
    let put = |indexed, via| Action::PutUnique { indexed, via };
    let update = |indexed, via| Action::AlwaysGetUpdate { indexed, via };
    let reason = match operation.as_atom().unwrap_or_default() {
        "put_unique" => return Ok(put(true, Pb)),
        "put_unique_http" => return Ok(put(true, Http)),
        "put_unique_bet365" => return Ok(put(false, Pb)),
        "put_unique_checkrepl" => return Ok(Action::PutUniqueCheckReplication),
        "get_unique" => return Ok(Action::GetUnique(Pb)),
        "get_unique_http" => return Ok(Action::GetUnique(Http)),
        "head_unique" => return Ok(Action::HeadUnique),
        "delete_unique" => return Ok(Action::DeleteUnique(Pb)),
        "delete_unique_http" => return Ok(Action::DeleteUnique(Http)),
        "alwaysget_pb" => return Ok(Action::AlwaysGet(Pb)),
        "alwaysget_http" => return Ok(Action::AlwaysGet(Http)),
        "alwayshead_pb" => return Ok(Action::AlwaysHead),
        "alwaysget_updatewith2i" => return Ok(update(true, Pb)),
        "alwaysget_updatewith2i_http" => return Ok(update(true, Http)),
        "alwaysget_updatewithout2i" => return Ok(update(false, Pb)),
        "get_pb" => return Ok(Action::Get),
        "update_with2i" => return Ok(Action::UpdateIndexed),
        "postcodequery_http" => return Ok(Action::QueryPostcode(Http)),
        "postcodequery_pb" => return Ok(Action::QueryPostcode(Pb)),
        "dobquery_http" => return Ok(Action::QueryBirth(Http)),
        "dobquery_pb" => return Ok(Action::QueryBirth(Pb)),
        "list_keys" => return Ok(Action::ListKeys),
        "aae_query" | "segment_fold" | "force_aae" => "it needs anti-entropy folds",
        _ => "there is no such operation",
    };
    Err(format!("{reason}; {EXPECTED}"))
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
