//! The binary `kvorum`: settings, wiring and lifecycle of a node, and the tools around it.

mod admin_client;
mod admin_verbs;
mod advise;
mod allocator;
mod arguments;
mod command_line;
mod configuration_file;
mod console;
mod data_directory;
mod data_directory_check;
mod demo;
mod embedded_engines;
mod engine_names;
mod engines;
mod engines_described;
mod engines_left;
mod exchange_figures;
mod figures;
mod hints_opening;
mod import;
mod inspect;
mod json_failures;
mod lifecycle;
mod logging;
mod machine_figures;
mod maintained_value_log;
mod node;
mod node_stores;
mod open_files;
mod progress;
mod repair;
mod request_meter;
mod request_rates;
mod riak_names;
mod server;
mod shown_keys;
mod start_report;
mod store_roots;
mod taking_over;
mod tls_files;
mod tls_issuing;
mod tls_upkeep;
mod tombstone_metrics;
mod tracked_buckets;
mod value_log_check;
mod verify;
mod vnode_figures;

#[cfg(test)]
mod background_work;

use std::process::ExitCode;

fn main() -> ExitCode {
    allocator::refuse_huge_pages();
    command_line::main()
}
