//! A run of the tests, for its stages.

use crate::server::Binary;
use crate::workspace::Workspace;

/// The common arguments of stages.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub(crate) workspace: &'a Workspace,
    pub(crate) long: bool,
    pub(crate) seed: u64,
    pub(crate) binary: Binary,
}
