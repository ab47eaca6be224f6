//! The decoder of messages and the handlers behind it, on bursts of valid and damaged requests.
//! `KVORUM_TEST_SEED` sets the seed of the first burst, and `KVORUM_TEST_LONG` runs more bursts.

use std::time::Duration;

use kvorum_hostile_requests::{BUCKET_TYPES, Burst, Protocol, for_each_burst};
use kvorum_properties::PropertyOverlay;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::node::{Node, with_node};

fn add_types(node: &Node) {
    for (name, properties) in BUCKET_TYPES {
        let properties = serde_json::from_str(properties).unwrap();
        node.add_type(name, PropertyOverlay::from_json(&properties).unwrap());
    }
}

/// Sends a burst and reads all answers to it; the server must close too.
async fn exchange(node: &Node, burst: Burst) {
    let (mut read, mut write) = node.connect().await.into_split();
    let sending = node.runtime.spawn("sender", async move {
        // The server may have closed already.
        let _ = write.write_all(&burst.bytes).await;
        let _ = write.shutdown().await;
    });
    let mut replies = Vec::new();
    read.read_to_end(&mut replies).await.unwrap();
    sending.await.unwrap();
}

#[expect(
    clippy::disallowed_methods,
    reason = "the seed and the length of a run are those of the test command"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[test]
fn bursts_of_messages_are_answered_or_refused_and_nothing_stays_behind() {
    for_each_burst(Protocol::Messages, variable, |burst| {
        with_node(|node| async move {
            add_types(&node);
            exchange(&node, burst).await;
            node.client().await.ping().await.unwrap();
            node.runtime.sleep(Duration::from_secs(2)).await;
            assert_eq!(node.open_connections.count(), 0);
            assert_eq!(node.room.taken_bytes(), 0, "all room is given back");
        });
    });
}
