//! A store over two directories: young tables on a fast device, old tables on a slow one.
//!
//! The store's own directory is the fast one. It has the lock, the manifest, the logs, files that
//! were set aside, and the tables of the levels above a border. The slow directory has the tables
//! from the border on, and the bodies that only these use. A merge that writes a table on the other
//! side of the border gives it a new number. So each number is in one of the two directories, and a
//! lookup finds it. The manifest does not record the directory: when the border was moved, tables
//! on the wrong side are still read.
//!
//! # Two cards
//!
//! A device that is not mounted is an empty directory, and upkeep would mark the missing tables of a store as
//! lost. So each directory has a card with the path of the other directory and a number drawn for
//! the pair. A store whose slow directory lacks its card is not opened. Tools, which have no
//! settings, find the slow directory by the card.
//!
//! For a moved directory, the settings have the new place, and the card there is the proof.

mod card;
mod tiered_disk;

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend::{BackendError, ErrorKind, LOST_NAME, Result};
use kvorum_disk::{Disk, create_directory_durably};

use self::card::{Card, Found};

pub use self::card::{CARD_BYTES_MAX, CARD_OF_FAST, CARD_OF_SLOW, MAGIC, card_piece};
pub use self::tiered_disk::{TieredDisk, is_table_name};

/// The place of old tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiers {
    /// The absolute path of the store's slow directory, so that tools find it from anywhere.
    pub slow_directory: PathBuf,
    /// The first level in the slow directory; 1 at least.
    pub from_level: usize,
}

/// The slow side of an open store.
pub struct SlowSide {
    /// The store's disk, but new tables go to the slow directory.
    pub disk: Arc<dyn Disk>,
    directory: PathBuf,
    /// `None` if no more tables go to the slow directory.
    from_level: Option<usize>,
}

impl SlowSide {
    /// True when tables of a level belong in this directory.
    pub fn takes(&self, level: usize) -> bool {
        self.from_level.is_some_and(|it| it <= level)
    }

    /// True when a file is in this directory, by its path at the opening.
    pub fn has(&self, path: &Path) -> bool {
        path.starts_with(&self.directory)
    }
}

/// The disk of a store, from its cards, for programs that read or repair the store without opening
/// it.
///
/// # Errors
/// Its slow directory is missing.
pub fn whole_disk<'a, B>(below: B, directory: &Path) -> Result<TieredDisk<B>>
where
    B: Deref<Target = dyn Disk + 'a> + Send + Sync,
{
    let slow = match own_card(&*below, directory)? {
        Found::Nothing => None,
        Found::Damaged => return Err(damaged(directory)),
        Found::Card(card) => {
            let _found = find_pair(&*below, directory, &card)?;
            Some(card.other)
        }
    };
    Ok(TieredDisk::new(below, directory, slow))
}

/// True when a store has a slow directory, even a missing one.
///
/// # Errors
/// Those of the disk.
pub fn has_slow(disk: &dyn Disk, directory: &Path) -> Result<bool> {
    let card = disk.info(&directory.join(CARD_OF_SLOW))?;
    Ok(card.is_some())
}

/// The fast directory named in a slow one's card; `None` for other directories.
///
/// # Errors
/// Those of the disk.
pub fn fast_of(disk: &dyn Disk, slow: &Path) -> Result<Option<PathBuf>> {
    Ok(match card::read(disk, slow, CARD_OF_FAST)? {
        Found::Card(card) => Some(card.other),
        Found::Nothing | Found::Damaged => None,
    })
}

/// Removes the files of a closed store, in both directories.
///
/// The slow directory is first marked as unowned, and removed once the removal of the fast one is
/// durable: a crash leaves the store, or a rest that the next store in its place removes.
pub fn remove_store(disk: &dyn Disk, directory: &Path) -> Result<()> {
    let slow = match own_card(disk, directory)? {
        Found::Card(card) if find_pair(disk, directory, &card).is_ok() => Some(card),
        _ => None,
    };
    if let Some(card) = &slow {
        let dropped = Card {
            number: card.number,
            is_dropped: true,
            other: directory.to_owned(),
        };
        card::write(disk, &card.other, CARD_OF_FAST, &dropped)?;
    }
    disk.remove_directory(directory)?;
    let Some(card) = slow else {
        return Ok(());
    };
    if let Some(parent) = directory.parent() {
        disk.sync_directory(parent)?;
    }
    Ok(disk.remove_directory(&card.other)?)
}

/// The disk of a store at its opening, and its slow side. The caller holds the store's lock. `draw`
/// gives the number of a new pair of directories.
///
/// # Errors
/// [`ErrorKind::Denied`] when the slow directory has moved, or is another store's; those of the
/// disk.
pub fn settle(
    disk: Arc<dyn Disk>,
    directory: &Path,
    wanted: Option<&Tiers>,
    draw: &dyn Fn() -> u64,
) -> Result<(Arc<dyn Disk>, Option<SlowSide>)> {
    let Some(slow) = slow_directory(&*disk, directory, wanted, draw)? else {
        return Ok((disk, None));
    };
    let tiered = TieredDisk::new(disk, directory, Some(slow.clone()));
    let side = SlowSide {
        disk: Arc::new(tiered.creating_slow()),
        directory: slow,
        from_level: wanted.map(|it| it.from_level.max(1)),
    };
    Ok((Arc::new(tiered), Some(side)))
}

fn slow_directory(
    disk: &dyn Disk,
    directory: &Path,
    wanted: Option<&Tiers>,
    draw: &dyn Fn() -> u64,
) -> Result<Option<PathBuf>> {
    let wanted = wanted.map(|it| &*it.slow_directory);
    match (own_card(disk, directory)?, wanted) {
        (Found::Nothing, None) => Ok(None),
        (Found::Nothing, Some(slow)) => {
            begin(disk, directory, slow, draw)?;
            Ok(Some(slow.to_owned()))
        }
        (Found::Card(card), Some(slow)) if card.other != slow => {
            follow(disk, directory, &card, slow)?;
            Ok(Some(slow.to_owned()))
        }
        (Found::Card(card), wanted) => {
            let back = find_pair(disk, directory, &card)?;
            if back.is_none_or(|it| it.other != directory || it.is_dropped) {
                // The card is damaged, the fast directory was moved, or a removal did not end.
                write_pair(disk, directory, &card.other, card.number)?;
            }
            if wanted.is_none() && is_drained(disk, &card.other)? {
                end(disk, directory, &card.other)?;
                return Ok(None);
            }
            Ok(Some(card.other))
        }
        (Found::Damaged, Some(slow)) => {
            let Found::Card(back) = card::read(disk, slow, CARD_OF_FAST)? else {
                return Err(damaged(directory));
            };
            if back.other != directory {
                return Err(damaged(directory));
            }
            write_pair(disk, directory, slow, back.number)?;
            Ok(Some(slow.to_owned()))
        }
        (Found::Damaged, None) => Err(damaged(directory)),
    }
}

/// The card of a store. A card that another store also has, after a restore into the wrong
/// directory, counts as damaged: two stores with one slow directory would remove each other's
/// tables.
fn own_card(disk: &dyn Disk, directory: &Path) -> Result<Found> {
    let found = card::read(disk, directory, CARD_OF_SLOW)?;
    if let Found::Card(card) = &found
        && let Found::Card(back) = card::read(disk, &card.other, CARD_OF_FAST)?
        && back.number == card.number
        && is_in_use(disk, &back, directory, &card.other)?
    {
        return Ok(Found::Damaged);
    }
    Ok(found)
}

/// Gives a store a slow directory. One that was begun and is not named in the fast directory is
/// empty.
fn begin(disk: &dyn Disk, directory: &Path, slow: &Path, draw: &dyn Fn() -> u64) -> Result<()> {
    if disk.info(slow)?.is_some() {
        let back = card::read(disk, slow, CARD_OF_FAST)?;
        if matches!(&back, Found::Card(card) if card.is_dropped) {
            disk.remove_directory(slow)?;
        } else if let Found::Card(card) = &back
            && is_in_use(disk, card, directory, slow)?
        {
            let (slow, other) = (slow.display(), card.other.display());
            return Err(refused(format!(
                "{slow} is for the old tables of the store in {other}: set leveldb.tiered.path.slow to a \
                 directory of this node's own"
            )));
        } else if !is_drained(disk, slow)? {
            let (fast, slow) = (directory.display(), slow.display());
            return Err(refused(format!(
                "{slow} holds old tables of a store, and {fast} does not list them: if they are \
                 of an earlier copy of this store, or of another one, move {slow} away; if {fast} \
                 was put on another device, put what it had there back"
            )));
        }
    }
    create_directory_durably(disk, slow)?;
    write_pair(disk, directory, slow, draw())
}

/// True when another store has this slow directory.
fn is_in_use(disk: &dyn Disk, back: &Card, directory: &Path, slow: &Path) -> Result<bool> {
    if back.other == directory {
        return Ok(false);
    }
    let card = card::read(disk, &back.other, CARD_OF_SLOW)?;
    Ok(matches!(card, Found::Card(card) if card.number == back.number && card.other == slow))
}

/// Updates the cards after an operator has moved the slow directory.
fn follow(disk: &dyn Disk, directory: &Path, card: &Card, slow: &Path) -> Result<()> {
    let is_at = |place: &Path| -> Result<bool> {
        let back = card::read(disk, place, CARD_OF_FAST)?;
        Ok(matches!(back, Found::Card(back) if back.number == card.number))
    };
    if is_at(slow)? {
        return write_pair(disk, directory, slow, card.number);
    }
    let (fast, before, slow) = (directory.display(), card.other.display(), slow.display());
    Err(refused(match is_at(&card.other)? {
        true => format!(
            "the old tables of {fast} are in {before}, and by the settings they are to be in {slow}: move \
             that directory there while the node is stopped, or set leveldb.tiered.path.slow as it was"
        ),
        false => format!(
            "the old tables of {fast} were in {before}, and are to be in {slow}; they are in \
             neither: mount the device that has them"
        ),
    }))
}

/// Ends the use of an empty slow directory.
fn end(disk: &dyn Disk, directory: &Path, slow: &Path) -> Result<()> {
    let card = directory.join(CARD_OF_SLOW);
    disk.remove_file(&card)?;
    disk.sync_directory(directory)?;
    // A leftover directory has no table, and does no harm.
    let _removed_or_left_over = disk.remove_directory(slow);
    Ok(())
}

fn is_drained(disk: &dyn Disk, slow: &Path) -> Result<bool> {
    let entries = disk.list(slow)?;
    let is_ours = |name: &str| is_table_name(name) || name == LOST_NAME;
    Ok(!entries.iter().any(|it| is_ours(&it.name)))
}

/// Fails unless the slow directory of a card has the other card. `None` if that is damaged: only
/// this store can have written it there.
fn find_pair(disk: &dyn Disk, directory: &Path, card: &Card) -> Result<Option<Card>> {
    let (fast, slow) = (directory.display(), card.other.display());
    match card::read(disk, &card.other, CARD_OF_FAST)? {
        Found::Card(back) if back.number == card.number => Ok(Some(back)),
        Found::Damaged => Ok(None),
        Found::Card(_) => Err(refused(format!(
            "{slow} is not the directory with the old tables of {fast}, but another store's: \
             mount the right one, or set leveldb.tiered.path.slow to its place"
        ))),
        Found::Nothing => Err(refused(format!(
            "{slow}, the directory with the old tables of {fast}, is not there or not mounted (it \
             has no file {CARD_OF_FAST}): mount it, or set leveldb.tiered.path.slow to its place"
        ))),
    }
}

/// Writes both cards, the slow directory's first: a slow directory that a store names always names
/// the store.
fn write_pair(disk: &dyn Disk, directory: &Path, slow: &Path, number: u64) -> Result<()> {
    let card_of = |other: &Path| Card {
        number,
        is_dropped: false,
        other: other.to_owned(),
    };
    card::write(disk, slow, CARD_OF_FAST, &card_of(directory))?;
    card::write(disk, directory, CARD_OF_SLOW, &card_of(slow))
}

fn damaged(directory: &Path) -> BackendError {
    let card = directory.join(CARD_OF_SLOW);
    refused(format!(
        "{} is damaged or another store's; it names the directory of the store's old tables: \
         start the node with leveldb.tiered.path.slow as it was, which writes it again",
        card.display()
    ))
}

fn refused(detail: String) -> BackendError {
    BackendError::new(ErrorKind::Denied, detail)
}
