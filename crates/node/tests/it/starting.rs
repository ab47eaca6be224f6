//! Starts that cannot be: refused with a message that says what to change, and told by `chkconfig` before.

use std::process::Output;

use crate::server::{Site, free_address};

fn told(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    [out, err]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}

/// Refused, and in words: no panic, no trace.
fn refused(site: &Site, words: &[&str]) -> String {
    let output = site.run(words);
    let told = told(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        !told.contains("panicked") && !told.contains("backtrace"),
        "{told}"
    );
    told
}

/// The port between nodes is that of the clients, or would be where one of them listens everywhere.
#[test]
fn r18_a_start_with_overlapping_ports_is_refused_and_chkconfig_says_so() {
    let mut site = Site::new();
    let port = site.protobuf.port();
    for taken in ["127.0.0.1", "0.0.0.0", "[::]"] {
        site.settings = vec![format!("listener.peer.internal={taken}:{port}")];
        for words in [&["chkconfig"][..], &["server"]] {
            let told = refused(&site, words);
            for word in [
                "listener.protobuf.internal",
                "listener.peer.internal",
                &port.to_string(),
            ] {
                assert!(told.contains(word), "{words:?}: {told}");
            }
        }
    }
    // One that another program has is found when it is opened.
    let address = free_address();
    let _holder = std::net::TcpListener::bind(address).unwrap();
    site.settings = vec![format!("listener.peer.internal={address}")];
    assert!(site.run(&["chkconfig"]).status.success());
    let told = refused(&site, &["server"]);
    assert!(told.contains("listener.peer.internal"), "{told}");
    assert!(told.contains("choose another address"), "{told}");
}

/// A node is who its data says, whatever it is called now.
#[test]
fn r22_a_node_under_another_name_is_the_same_node_and_says_so() {
    let mut site = Site::new();
    site.start().stop();
    site.settings = vec!["nodename=renamed@127.0.0.1".to_owned()];
    let server = site.start();
    let shown = told(&site.run(&["admin", "member-status"]));
    assert!(shown.contains("'renamed@127.0.0.1'"), "{shown}");
    assert!(shown.contains("Valid:1 / Leaving:0"), "{shown}");
    server.stop();
}
