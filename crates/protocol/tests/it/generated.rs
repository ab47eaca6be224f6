//! The messages in the tree are those of the `.proto` files.
//!
//! `protox` compiles the files in Rust, so that no `protoc` is needed. Every `bytes` field becomes
//! `bytes::Bytes`: decoding slices the frame instead of copying it.

use std::path::Path;

/// Set by `cargo xtask fix`: the file in the tree is replaced.
const RENEWS: &str = "KVORUM_RENEW_MESSAGES";

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "files of the tree are compared with each other"
)]
fn the_messages_are_those_of_the_proto_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let proto = root.join("proto");
    let files = ["riak.proto", "riak_kv.proto", "riak_dt.proto"];
    let files = files.map(|file| proto.join(file));
    let descriptors = protox::compile(&files, [&proto]).unwrap();
    let out = tempfile::tempdir().unwrap();
    prost_build::Config::new()
        .bytes(["."])
        .out_dir(out.path())
        .compile_fds(descriptors)
        .unwrap();
    let generated = std::fs::read_to_string(out.path().join("kvorum.riak.rs")).unwrap();
    let in_tree = root.join("src/messages.inc");
    if std::env::var_os(RENEWS).is_some() {
        std::fs::write(&in_tree, &generated).unwrap();
    }
    let is_same = std::fs::read_to_string(&in_tree).unwrap() == generated;
    assert!(
        is_same,
        "src/messages.inc is not what proto/ says; `cargo xtask fix` renews it"
    );
}
