//! `kvorum demo`: this program as its nodes.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use kvorum_demo::{DemoArguments, Program, Reply};

use crate::admin_client;
use kvorum_admin::{AdminReply, AdminRequest};

pub(crate) fn main(arguments: &DemoArguments) -> anyhow::Result<ExitCode> {
    let program = Program {
        binary: std::env::current_exe().context("cannot find this program's own file")?,
        ask,
    };
    kvorum_demo::execute(arguments, &program)
}

fn ask(data_directory: &Path, words: &[&str]) -> anyhow::Result<Reply> {
    let words = words.iter().map(|word| (*word).to_owned()).collect();
    let request = AdminRequest::Cluster { words };
    let AdminReply {
        is_ok, text, data, ..
    } = admin_client::ask_at(data_directory, &request)?;
    Ok(Reply { is_ok, text, data })
}
