//! Clients of nodes to which nothing happens, while a planned change happens to another one: they write,
//! read and list, and no request of theirs may be refused, broken or answered wrongly.

use std::net::SocketAddr;
use std::ops::Range;

use anyhow::ensure;
use tokio::runtime::Handle;

use crate::cluster::census::{self, Listing};
use crate::cluster::writers::{self, Expectation, Knowledge, Writing};

/// Their reads are judged.
const STRICT: Range<u32> = 200..204;
/// They ask as clients do that name no quorums.
const USUAL: Range<u32> = 204..208;

/// Such clients at work.
pub(super) struct Bystanders {
    strict: Writing,
    usual: Writing,
    listing: Listing,
}

/// What they did, over several changes.
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
    /// Sends them to work at these nodes. They go on with the keys that `known` has of them.
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

    /// Ends their work.
    ///
    /// # Errors
    /// If anything happened to one of them.
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
