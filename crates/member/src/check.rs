//! A check of a member's small files that changes nothing: each has to exist, belong to this node,
//! and be no older than the others.

use std::path::{Path, PathBuf};

use kvorum_agreement::check::check_directory;
use kvorum_disk::Disk;
use kvorum_vnode::LEASES_NAME;

use crate::card::{Card, CardFile, SECOND_MARK, SECOND_MARK_END, Stage, recovered_file};
use crate::{generation, store_list};

/// Files in the directory of the agreed state that a node writes once it has started.
const RING_REMNANTS: [&str; 7] = [
    "stores",
    "stores.copy",
    "generation",
    "generation.copy",
    "recovered",
    "recovered.copy",
    "hints",
];

/// A file and its defect.
pub type Finding = (PathBuf, String);

/// The marks of agreed logs in a data directory.
pub fn second_marks(disk: &dyn Disk, data: &Path) -> Vec<PathBuf> {
    let is_mark = |name: &str| name.starts_with(SECOND_MARK) && name.ends_with(SECOND_MARK_END);
    let entries = disk.list(data).unwrap_or_default().into_iter();
    let marks = entries.filter(|it| is_mark(&it.name));
    marks.map(|it| data.join(it.name)).collect()
}

/// Checks the directory of the agreed state of the node whose data is in `data`. A backup has no second
/// marks.
pub fn check_ring(disk: &dyn Disk, ring: &Path, data: &Path, is_backup: bool) -> Vec<Finding> {
    let cards = CardFile::named(ring);
    let mut findings = cards.findings(disk);
    let contents = cards.contents(disk).unwrap_or([None, None]);
    let card = contents.iter().flatten().max_by_key(|it| it.0);
    let Some(card) = card.and_then(|(_, body)| Card::parse(body)) else {
        if let Some(remnant) = remnant(disk, ring, data)
            && findings.is_empty()
        {
            let what = format!("missing: {} shows that a node was here", remnant.display());
            findings.push((cards.path().to_owned(), what));
        }
        return findings;
    };
    let nodes = contents.iter().flatten().map(|(_, body)| Card::parse(body));
    if nodes.flatten().any(|it| it.node != card.node) {
        let what = "it and its copy are of two nodes".to_owned();
        findings.push((cards.path().to_owned(), what));
    }
    for file in [
        store_list::file(ring, card.node),
        generation::file(ring, card.node),
        recovered_file(ring, card.node),
    ] {
        findings.extend(file.findings(disk));
    }
    let (stores, later) = (ring.join("stores"), ring.join(generation::NAME));
    let is_missing = |path: &Path| matches!(disk.info(path), Ok(None));
    if is_missing(&stores) && is_missing(&ring.join("stores.copy")) && !is_missing(&later) {
        let what = "missing: it lists the stores of this node that are complete".to_owned();
        findings.push((stores, what));
    }
    if card.stage == Stage::Founding {
        // The next start begins the log again.
        return findings;
    }
    let log = CardFile::log_directory_in(ring, card.log);
    let mark = CardFile::second_mark_in(data, card.log);
    let mark = (!is_backup).then_some(&*mark);
    let found = check_directory(disk, &log, mark);
    findings.extend(found.into_iter().map(|it| (it.file, it.what)));
    if let Some(of) = kvorum_agreement::check::node_of(disk, &log)
        && of != card.node
    {
        let what = format!(
            "it is of node {of}, and the card of this node is of {}",
            card.node
        );
        findings.push((log.join("log"), what));
    }
    findings
}

/// A file that only a node that has been started leaves.
pub(crate) fn remnant(disk: &dyn Disk, ring: &Path, data: &Path) -> Option<PathBuf> {
    let of_ring = RING_REMNANTS.iter().map(|name| ring.join(name));
    let of_data = std::iter::once(data.join(LEASES_NAME));
    let marks = second_marks(disk, data).into_iter();
    let mut remnants = marks.chain(of_ring).chain(of_data);
    remnants.find(|path| matches!(disk.info(path), Ok(Some(_))))
}
