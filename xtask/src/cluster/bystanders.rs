//! Clients of undisturbed nodes during a planned change of another node. They write, read and list,
//! and no request may be refused, broken or answered wrongly.

use std::net::SocketAddr;
use std::ops::Range;

use anyhow::ensure;
use tokio::runtime::Handle;

use crate::cluster::census::{self, Listing};
use crate::cluster::writers::{self, Expectation, Knowledge, Writing};

/// Clients whose reads are checked.
const STRICT: Range<u32> = 200..204;
/// Clients that set no quorums.
const USUAL: Range<u32> = 204..208;

/// Running clients.
pub(super) struct Bystanders {
    strict: Writing,
    usual: Writing,
    listing: Listing,
}

/// Their results, over several changes.
#[derive(Debug, Default)]
pub(super) struct Seen {
    acknowledged: u64,
    lists: u32,
}

impl Seen {
    pub(super) fn outline(&self) -> String {
        let Seen {
            acknowledged,
            lists,
        } = self;
        format!("{acknowledged} acknowledgements, no refusal, {lists} lists exact")
    }
}

impl Bystanders {
    /// Starts the clients at these nodes. They continue with their keys in `known`.
    pub(super) fn start(
        runtime: &Handle,
        nodes: &[SocketAddr],
        known: &mut Knowledge,
        seed: u64,
    ) -> Bystanders {
        let mut start = |writers, expectation| {
            writers::go_on(runtime, writers, nodes, expectation, seed, known)
        };
        Bystanders {
            strict: start(STRICT, Expectation::Strict),
            usual: start(USUAL, Expectation::Whatever),
            listing: census::start_listing(runtime, nodes),
        }
    }

    /// Stops the clients.
    ///
    /// # Errors
    /// If a request of a client failed.
    pub(super) fn finish(
        self,
        runtime: &Handle,
        known: &mut Knowledge,
        seen: &mut Seen,
    ) -> anyhow::Result<()> {
        let lists = self.listing.finish(runtime)?;
        let mut found = self.strict.finish(runtime)?;
        found.add(self.usual.finish(runtime)?);
        let (outline, is_undisturbed) = (found.outline(), found.is_undisturbed());
        let sound = found.require_sound();
        seen.acknowledged += found.acknowledged;
        seen.lists += lists.exact;
        known.add(found);
        sound?;
        lists.require_exact()?;
        ensure!(is_undisturbed, "bystanders saw errors: {outline}");
        Ok(())
    }
}
