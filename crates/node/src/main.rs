//! The binary `kvorum`: settings, wiring and lifecycle of a node, and the tools around it.

mod admin_client;
mod admin_cluster;
mod admin_request;
mod admin_server;
mod admin_verbs;
mod advise;
mod backup;
mod command_line;
mod configuration_file;
mod data_directory;
mod demo;
mod embedded_engines;
mod engines;
mod figures;
mod import;
mod index_figures;
mod inspect;
mod lifecycle;
mod logging;
mod maintenance;
mod node;
mod node_log;
mod node_stores;
mod open_files;
mod progress;
mod readiness;
mod repair;
mod riak_names;
mod server;
mod store_roots;
mod tls_files;
mod tls_issuing;
mod tls_upkeep;
mod tls_view;
mod verify;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    refuse_huge_pages();
    command_line::main()
}

/// Memory comes in pages of the smallest size, in every command alike.
///
/// The allocator asks the kernel for transparent huge pages, with which memory is taken 2 MB at a time
/// and a key in memory costs up to a third more than its bytes. The process is asked, and not the
/// allocator: that also holds where the machine gives huge pages to everybody. See
/// `docs/performance.md` for both costs.
fn refuse_huge_pages() {
    let _older_kernels_have_no_such_call = rustix::thread::disable_transparent_huge_pages(true);
}
