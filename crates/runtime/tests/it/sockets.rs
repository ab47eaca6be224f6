//! Listening, connecting, and transferring bytes.

use std::io::IoSlice;
use std::net::SocketAddr;

use kvorum_runtime::{ListenOptions, Listener, Runtime, RuntimeError};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::tasks::each_runtime;

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn listen(runtime: &Runtime) -> Listener {
    runtime
        .listen(any_port(), ListenOptions::default())
        .unwrap()
}

/// Sends back the bytes of each of `connections`, until its output ends.
async fn echo(listener: Listener, connections: usize) {
    for _ in 0..connections {
        let (mut stream, peer) = listener.accept().await.unwrap();
        assert_eq!(stream.peer_address(), peer);
        stream.set_nodelay(true).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        stream.shutdown().await.unwrap();
    }
}

#[test]
fn what_is_sent_comes_back() {
    for executor in each_runtime() {
        let runtime = executor.runtime();
        executor.block_on(async {
            let listener = listen(&runtime);
            let address = listener.local_address();
            assert_ne!(address.port(), 0);
            let server = runtime.spawn("echo", echo(listener, 3));
            for _ in 0..3 {
                let mut stream = runtime.connect(address).await.unwrap();
                assert_eq!(stream.peer_address(), address);
                assert_ne!(stream.local_address(), address);
                let parts = [IoSlice::new(b"two "), IoSlice::new(b"parts")];
                assert!(stream.is_write_vectored());
                assert_eq!(stream.write_vectored(&parts).await.unwrap(), 9);
                stream.shutdown().await.unwrap();
                let mut back = String::new();
                stream.read_to_string(&mut back).await.unwrap();
                assert_eq!(back, "two parts");
            }
            server.await.unwrap();
        });
    }
}

#[test]
fn a_connection_can_be_split_between_two_tasks() {
    for executor in each_runtime() {
        let runtime = executor.runtime();
        executor.block_on(async {
            let listener = listen(&runtime);
            let address = listener.local_address();
            let server = runtime.spawn("echo", echo(listener, 1));
            let (mut read, mut write) = runtime.connect(address).await.unwrap().into_split();
            let writer = runtime.spawn("writer", async move {
                for byte in 0..=255_u8 {
                    write.write_all(&[byte; 100]).await.unwrap();
                }
                write.shutdown().await.unwrap();
            });
            let mut back = Vec::new();
            read.read_to_end(&mut back).await.unwrap();
            assert_eq!((back.len(), back.last()), (25_600, Some(&255)));
            writer.await.unwrap();
            server.await.unwrap();
        });
    }
}

#[test]
fn an_address_in_use_is_named_and_free_again_after_the_listener() {
    for executor in each_runtime() {
        let runtime = executor.runtime();
        executor.block_on(async {
            let first = listen(&runtime);
            let address = first.local_address();
            let refused = runtime
                .listen(address, ListenOptions::default())
                .unwrap_err();
            assert!(
                matches!(refused, RuntimeError::AddressInUse { address: it } if it == address),
                "{refused}"
            );
            assert!(
                refused.to_string().contains(&address.to_string()),
                "{refused}"
            );
            drop(first);
            drop(runtime.listen(address, ListenOptions::default()).unwrap());
        });
    }
}

#[test]
fn connecting_where_nobody_listens_is_refused() {
    for executor in each_runtime() {
        let runtime = executor.runtime();
        executor.block_on(async {
            let address = listen(&runtime).local_address();
            let refused = runtime.connect(address).await.unwrap_err();
            assert!(
                matches!(refused, RuntimeError::Refused { address: it } if it == address),
                "{refused}"
            );
        });
    }
}

#[test]
fn a_listener_on_all_addresses_is_reached_by_each() {
    for executor in each_runtime() {
        let runtime = executor.runtime();
        executor.block_on(async {
            let everywhere = SocketAddr::from(([0, 0, 0, 0], 0));
            let listener = runtime
                .listen(everywhere, ListenOptions::default())
                .unwrap();
            let port = listener.local_address().port();
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            let _stream = runtime.connect(address).await.unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            assert_eq!(accepted.local_address(), address);
        });
    }
}

#[test]
fn ports_are_shared_only_when_asked_for() {
    let [production, _] = each_runtime();
    let runtime = production.runtime();
    let shared = ListenOptions {
        reuse_port: true,
        ..ListenOptions::default()
    };
    let first = runtime.listen(any_port(), shared).unwrap();
    let second = runtime.listen(first.local_address(), shared).unwrap();
    assert_eq!(second.local_address(), first.local_address());
}

#[test]
fn an_address_of_another_machine_is_not_listened_on() {
    let [production, _] = each_runtime();
    let elsewhere = SocketAddr::from(([192, 0, 2, 1], 8087));
    let error = production
        .runtime()
        .listen(elsewhere, ListenOptions::default())
        .unwrap_err();
    assert!(
        matches!(error, RuntimeError::AddressNotHere { .. }),
        "{error}"
    );
}
