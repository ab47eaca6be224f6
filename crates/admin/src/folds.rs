//! `tictacaae fold`: questions about the keys of a bucket, and actions on the keys that are found.
//!
//! Verbs and words are those of Riak 3.4. The answer follows the end of the fold.

mod asked;
mod time_of_day;
mod view;

use std::sync::Arc;
use std::time::Duration;

use kvorum_coordinator::{Coordinator, RequestError};
use kvorum_key_folds::{Findings, FoldKind, FoldScope, KeyFold};

use self::asked::FoldAsked;
use crate::cluster::ClusterAdmin;
use crate::request::{AdminReply, Replied};

/// The time after which a fold is given up.
const FOLD_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Maximum memory of a list, in bytes: about a quarter of the reply's line.
const LISTED_BYTES_MAX: usize = 4 << 20;

const TOO_LONG: &str = "more keys than one answer can hold: count them, ask for a narrower range of \
    keys, or ask over HTTP";

/// Answers the words behind `tictacaae fold`. Blocks until the fold is done.
pub(crate) fn answer(cluster: &ClusterAdmin, words: &[String]) -> Replied {
    let asked = FoldAsked::parse(words).map_err(AdminReply::refused)?;
    let coordinator = cluster.member.coordinator().clone();
    let done = cluster.wait_for("fold", async move { run(&coordinator, asked).await })?;
    let failed = |error: RequestError| format!("the fold failed: {}", error.in_full());
    done.map_err(|error| AdminReply::refused(failed(error)))?
}

/// The answer, or a refusal of one that is too long.
async fn run(coordinator: &Arc<Coordinator>, asked: FoldAsked) -> Result<Replied, RequestError> {
    Ok(match asked {
        FoldAsked::Buckets => {
            let buckets = coordinator.all_buckets(FOLD_TIMEOUT).await?;
            Ok(view::buckets(&buckets))
        }
        FoldAsked::Stats(scope) => {
            let found = find(coordinator, scope, FoldKind::ObjectStats).await?;
            Ok(view::stats(&found.stats))
        }
        FoldAsked::Find(scope, kind) => {
            let found = find(coordinator, scope, kind).await?;
            short(&found).map(|()| view::keys(&found))
        }
        FoldAsked::CountFound(scope, kind) => {
            let found = find(coordinator, scope, kind).await?;
            Ok(view::count(found.numbers.len() as u64))
        }
        FoldAsked::Count(scope, class) => {
            let found = find(coordinator, scope, FoldKind::Count(class)).await?;
            Ok(view::count(found.count))
        }
        FoldAsked::Change(scope, change) => {
            let changed = coordinator.change_keys(scope, change, FOLD_TIMEOUT).await?;
            let members = coordinator.state().members().len();
            Ok(view::changed(change, changed, members))
        }
    })
}

async fn find(
    coordinator: &Arc<Coordinator>,
    scope: FoldScope,
    kind: FoldKind,
) -> Result<Findings, RequestError> {
    let fold = KeyFold { scope, kind };
    coordinator.fold_keys(fold, FOLD_TIMEOUT).await
}

fn short(found: &Findings) -> Result<(), AdminReply> {
    match found.memory_bytes() <= LISTED_BYTES_MAX {
        true => Ok(()),
        false => Err(AdminReply::refused(TOO_LONG)),
    }
}
