//! `kvorum bench` alone, without the server in the same program: `cargo run --release
//! --package kvorum-bench --example bench -- run FILE`.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    bench: kvorum_bench::BenchArguments,
}

fn main() -> anyhow::Result<ExitCode> {
    kvorum_bench::main(&Arguments::parse().bench)
}
