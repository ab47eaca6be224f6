//! The cluster state: effects of commands on it, and of a disk on its file.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot make its input should fail"
)]

mod apply;
mod bucket_types;
mod local;
mod membership;
mod model;
mod ring_scripts;
mod rounds;

use std::path::Path;
use std::sync::Arc;

use kvorum_cluster::{ClusterId, ClusterState, Command, Founding, LocalState, Member, Refusal};
use kvorum_disk::Disk;
use kvorum_properties::PropertyOverlay;
use kvorum_ring::{NodeId, Ring, RingSize};

const NODE_NAME: &str = "riak@127.0.0.1";

fn node(number: u8) -> NodeId {
    NodeId::from_random([number; 16])
}

fn size(partitions: u64) -> RingSize {
    RingSize::new(partitions).unwrap()
}

fn founding() -> Founding {
    Founding {
        cluster_id: ClusterId::from_random([7; 16]),
        cluster_name: "default".to_owned(),
        node: node(1),
        member: Member::new(NODE_NAME),
        ring_size: size(8),
    }
}

fn founded() -> ClusterState {
    let Founding {
        cluster_id,
        cluster_name,
        node,
        member,
        ring_size,
    } = founding();
    ClusterState::found(
        cluster_id,
        &cluster_name,
        node,
        member,
        Ring::single(ring_size, node),
    )
}

fn directory() -> &'static Path {
    Path::new("data/cluster_state")
}

fn created(disk: &Arc<dyn Disk>) -> LocalState {
    LocalState::create(Arc::clone(disk), directory(), founding()).unwrap()
}

fn overlay(text: &str) -> PropertyOverlay {
    PropertyOverlay::from_json(&serde_json::from_str(text).unwrap()).unwrap()
}

fn set_bucket(bucket: &'static str, properties: &str) -> Command {
    set_typed_bucket("default", bucket, properties)
}

fn set_typed_bucket(bucket_type: &'static str, bucket: &'static str, properties: &str) -> Command {
    Command::SetBucketProperties {
        bucket_type: bucket_type.into(),
        bucket: bucket.into(),
        properties: overlay(properties),
    }
}

fn create_type(bucket_type: &'static str, properties: &str) -> Command {
    Command::CreateType {
        bucket_type: bucket_type.into(),
        properties: overlay(properties),
    }
}

fn activate_type(bucket_type: &'static str) -> Command {
    Command::ActivateType {
        bucket_type: bucket_type.into(),
    }
}

fn update_type(bucket_type: &'static str, properties: &str) -> Command {
    Command::UpdateType {
        bucket_type: bucket_type.into(),
        properties: overlay(properties),
    }
}

fn after(
    state: &ClusterState,
    commands: impl IntoIterator<Item = Command>,
) -> Result<ClusterState, Refusal> {
    let apply = |state, command| kvorum_cluster::apply(&state, command);
    commands.into_iter().try_fold(state.clone(), apply)
}
