//! The binary `kvorum`: settings, wiring and lifecycle of a node, and the tools around it.

mod admin_client;
mod admin_request;
mod admin_server;
mod advise;
mod command_line;
mod configuration_file;
mod data_directory;
mod embedded_engines;
mod engines;
mod figures;
mod import;
mod logging;
mod maintenance;
mod node;
mod server;
mod vnode_table;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    command_line::main()
}
