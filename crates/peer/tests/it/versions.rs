//! Nodes of other versions: the callee refuses over the connection, and the caller gets the reason.
//!
//! There is only one version so far, so a relay rewrites the hello of this build.

use std::ops::RangeInclusive;

use super::*;

/// The magic bytes and the length are before the versions.
const START_BYTES: usize = 10;

/// Relays connections from an address to node 2, with other versions in the caller's hello.
fn between(runtime: &Runtime, number: u8, versions: RangeInclusive<u16>) -> TaskGuard<()> {
    let listener = runtime.listen(address(number), ListenOptions::default());
    let (listener, runtime) = (listener.unwrap(), runtime.clone());
    let passing = runtime.clone().spawn("between", async move {
        loop {
            let (caller, _) = listener.accept().await.unwrap();
            let called = runtime.connect(address(2)).await.unwrap();
            let passed = pass_on(caller, called, versions.clone());
            // The task ends with either side.
            let _detached = runtime.spawn("passing on", passed);
        }
    });
    passing.abort_on_drop()
}

async fn pass_on(mut caller: Stream, mut called: Stream, versions: RangeInclusive<u16>) {
    let mut hello = vec![0; START_BYTES];
    caller.read_exact(&mut hello).await.unwrap();
    let rest = usize::from(u16::from_le_bytes([hello[8], hello[9]]));
    hello.resize(START_BYTES + rest, 0);
    caller.read_exact(&mut hello[START_BYTES..]).await.unwrap();
    hello[START_BYTES..][..2].copy_from_slice(&versions.start().to_le_bytes());
    hello[START_BYTES + 2..][..2].copy_from_slice(&versions.end().to_le_bytes());
    let content = hello.len() - 4;
    let checksum = crc32c::crc32c(&hello[..content]);
    hello[content..].copy_from_slice(&checksum.to_le_bytes());
    called.write_all(&hello).await.unwrap();
    let _ended = tokio::io::copy_bidirectional(&mut caller, &mut called).await;
}

#[test]
fn a_node_of_other_versions_learns_it_and_disturbs_no_other() {
    simulated(|runtime| async move {
        let _answering = answering(&runtime, 2, settings());
        let ask = |number: u8, at: u8| {
            let known = Known::of(number);
            known.addresses.lock().insert(node(2), address(at));
            let peers = Peers::new(runtime.clone(), known, settings());
            let deadline = in_ms(&runtime, 1_000);
            async move {
                let asked = Message::of_head("echo");
                let asked = peers.request(node(2), Lane::Requests, asked, deadline);
                asked.await.map(|answer| answer.head)
            }
        };
        // Versions that are newer by more than a step, and older ones.
        for (at, versions) in [(4, 2..=7), (5, 0..=0)] {
            let _between = between(&runtime, at, versions);
            let refused = PeerError::Refused {
                address: address(at),
                refusal: Refusal::NoCommonVersion,
            };
            let advice = "upgrade one step at a time";
            assert!(refused.to_string().contains(advice), "{refused}");
            assert_eq!(ask(1, at).await, Err(refused));
        }
        // A version that is newer by a step still supports this version.
        let _between = between(&runtime, 6, 1..=2);
        assert_eq!(ask(1, 6).await, Ok("echo".into()));
        assert_eq!(ask(3, 2).await, Ok("echo".into()));
    });
}
