//! `test`: an object is written, read and deleted, as a client would.

use std::sync::Arc;

use bytes::Bytes;
use kvorum_coordinator::{
    Condition, Coordinator, DeleteOptions, GetOptions, PutKind, PutOptions, PutRequest,
    RequestError,
};
use kvorum_encoding::{Address, Bucket, BucketType, Key};
use kvorum_object::{Clock, Content};
use serde_json::json;

use super::cluster_admin::ClusterAdmin;
use crate::request::{AdminReply, Replied};

/// A bucket only for this test.
const BUCKET: &[u8] = b"__kvorum_client_test__";

impl ClusterAdmin {
    /// Blocks.
    pub(crate) fn test(&self) -> Replied {
        let coordinator = self.member.coordinator().clone();
        let name = &self.member.settings().name;
        let done = self.wait_for("test", async move { round_trip(&coordinator).await })?;
        done.map_err(|problem| {
            AdminReply::refused(format!("Failed read/write test to '{name}': {problem}"))
        })?;
        let text = format!("Successfully completed 1 read/write cycle to '{name}'");
        Ok(AdminReply::ok(text, json!({"node": name, "cycles": 1})))
    }
}

async fn round_trip(coordinator: &Arc<Coordinator>) -> Result<(), String> {
    let said = |step: &str, error: &RequestError| format!("{step}: {}", error.in_full());
    let runtime = coordinator.runtime();
    let word = runtime.random_u64().to_string();
    let address = Address {
        bucket_type: BucketType::default_type(),
        bucket: Bucket::new(BUCKET.to_vec()),
        key: Key::new(word.clone().into_bytes()),
    };
    let request = PutRequest {
        context: Clock::new(),
        condition: Condition::Always,
        content: Content {
            value: Bytes::from(word.clone().into_bytes()),
            ..Content::default()
        },
        kind: PutKind::Versioned,
    };
    let options = PutOptions::default();
    let put = coordinator.put(&address, request, &options, runtime.now());
    put.await.map_err(|error| said("write", &error))?;
    let options = GetOptions::default();
    let get = coordinator.get(&address, &options, runtime.now());
    let found = get.await.map_err(|error| said("read", &error))?;
    let found = found.ok_or("read: the written value is not there")?;
    let is_same = found
        .siblings()
        .iter()
        .any(|it| it.value == word.as_bytes());
    if !is_same {
        return Err("read: another value than the written one".into());
    }
    let context = Some(found.clock().clone());
    let options = DeleteOptions::default();
    let delete = coordinator.delete(&address, context, &options, runtime.now());
    delete.await.map_err(|error| said("delete", &error))?;
    Ok(())
}
