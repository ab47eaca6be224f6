//! Generates the protocol-buffer messages from `proto/` without a `protoc` binary.
//!
//! `protox` compiles the files in Rust, so that a fresh machine needs nothing but a toolchain.
//! Every `bytes` field becomes `bytes::Bytes`: decoding slices the frame instead of copying it.

use std::error::Error;
use std::path::PathBuf;

#[expect(
    clippy::disallowed_methods,
    reason = "a build script runs before there is anything to inject"
)]
fn main() -> Result<(), Box<dyn Error>> {
    let files = [
        "proto/riak.proto",
        "proto/riak_kv.proto",
        "proto/riak_dt.proto",
    ];
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(files, ["proto"])?;
    // Target directories may be copies of each other by hard links: what was generated before is
    // replaced, not written over.
    let generated = PathBuf::from(std::env::var("OUT_DIR")?).join("kvorum.riak.rs");
    if generated.exists() {
        std::fs::remove_file(generated)?;
    }
    prost_build::Config::new()
        .bytes(["."])
        .compile_fds(descriptors)?;
    Ok(())
}
