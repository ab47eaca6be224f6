//! Generates the protocol-buffer messages from `proto/` without a `protoc` binary.
//!
//! `protox` compiles the files in Rust, so that a fresh machine needs nothing but a toolchain.
//! Every `bytes` field becomes `bytes::Bytes`: decoding slices the frame instead of copying it.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let files = [
        "proto/riak.proto",
        "proto/riak_kv.proto",
        "proto/riak_dt.proto",
    ];
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(files, ["proto"])?;
    prost_build::Config::new()
        .bytes(["."])
        .compile_fds(descriptors)?;
    Ok(())
}
