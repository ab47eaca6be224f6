//! The opening of a store: its children compared with its card, and a card for a new one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend::{
    BackendError, Belonging, ErrorKind, Result, set_copy_aside, settle_two_copies,
};
use kvorum_disk::{Disk, create_directory_durably};

use crate::card::{self, CARD_NAMES, Card, KnownChild, exchanged};
use crate::child::{CHILDREN_MAX, Child};

/// Draws a random number for the identity of a store.
pub type DrawNumber = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The place of a store's card.
pub(crate) struct CardFiles {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) directory: PathBuf,
}

impl CardFiles {
    /// Reads the card, compares the children with it, and rewrites it after a change. Completes an
    /// interrupted erasure. A store without persistent children has no card.
    pub(crate) fn settle(
        &self,
        belonging: &Belonging,
        children: &[Child],
        draw: &DrawNumber,
    ) -> Result<Card> {
        check_names(children)?;
        create_directory_durably(&*self.disk, &self.directory)?;
        let found = card::read(&*self.disk, &self.directory, belonging)?;
        if let Some(why) = found.refusal {
            return Err(BackendError::new(ErrorKind::Corrupt, why));
        }
        for foreign in &found.foreign {
            set_copy_aside(&*self.disk, &self.directory, foreign.name)?;
        }
        let before = found.content;
        let mut is_erasing = false;
        for known in before.iter().flat_map(|it| &it.children) {
            is_erasing |= self.check(known, children)?;
        }
        if is_erasing {
            erase(children, before.as_ref())?;
        }
        let mut card = self.card_of(before.as_ref(), children, is_erasing, draw);
        if !belonging.label.is_empty() {
            card.label.clone_from(&belonging.label);
        }
        let is_kept = before.is_some() || !card.children.is_empty();
        if is_kept && (before.as_ref() != Some(&card) || found.is_uneven) {
            card.generation += 1;
            self.write_when_opened(&card)?;
        }
        Ok(card)
    }

    fn card_of(
        &self,
        before: Option<&Card>,
        children: &[Child],
        is_erasing: bool,
        draw: &DrawNumber,
    ) -> Card {
        let mut card = before.cloned().unwrap_or_default();
        card.children = known(children);
        // Without persistence, each opening of a store has another identity.
        if before.is_none() || is_erasing || card.children.is_empty() {
            card.erased = card.identity;
            card.identity = draw().max(1);
        }
        card
    }

    /// Compares a former child with the present ones. True when the child was erased and the store
    /// was not: an erasure of the whole was interrupted.
    fn check(&self, known: &KnownChild, children: &[Child]) -> Result<bool> {
        let place = self.directory.join(&known.name);
        let Some(child) = children.iter().find(|it| it.name == known.name) else {
            return match self.disk.info(&place)? {
                None => Ok(false),
                Some(_) => Err(left_out(&place, known)),
            };
        };
        if child.engine() != known.engine {
            return Err(left_out(&place, known));
        }
        let identity = child.store.identity();
        if identity == known.identity {
            return Ok(false);
        }
        match child.erased == known.identity {
            true => Ok(true),
            false => Err(BackendError::new(
                ErrorKind::Corrupt,
                exchanged(&place, identity, known),
            )),
        }
    }

    /// Writes the card during the opening of a store, which has to succeed on a full disk.
    fn write_when_opened(&self, card: &Card) -> Result<()> {
        settle_two_copies(&*self.disk, &self.directory, CARD_NAMES, &card.encode())
    }
}

/// The persistent children, in the form of a card.
pub(crate) fn known(children: &[Child]) -> Vec<KnownChild> {
    let kept = children.iter().filter(|it| it.is_kept());
    let known = kept.map(|child| KnownChild {
        name: child.name.clone(),
        engine: child.engine().to_owned(),
        identity: child.store.identity(),
    });
    known.collect()
}

/// Erases all children except those that an interrupted erasure has erased already: a child has
/// only one earlier identity, which must stay the card's until all children are erased.
pub(crate) fn erase(children: &[Child], card: Option<&Card>) -> Result<()> {
    let known = |child: &Child| {
        let of_card = card.iter().flat_map(|it| &it.children);
        let mut same_name = of_card.filter(|it| it.name == child.name);
        same_name.next().map(|it| it.identity)
    };
    let is_erased = |child: &&Child| {
        child.is_kept() && known(child).is_some_and(|it| it != child.store.identity())
    };
    let mut rest = children.iter().filter(|it| !is_erased(it));
    rest.try_for_each(|child| child.named(child.store.erase()))
}

fn check_names(children: &[Child]) -> Result<()> {
    let misuse = |detail: &str| Err(BackendError::new(ErrorKind::Misuse, detail));
    if children.is_empty() || children.len() > CHILDREN_MAX {
        return misuse("a store of several needs at least one and at most 32");
    }
    let is_second = |at: usize| children[..at].iter().any(|it| it.name == children[at].name);
    match (0..children.len()).any(is_second) {
        true => misuse("two children have one name"),
        false => Ok(()),
    }
}

fn left_out(place: &Path, known: &KnownChild) -> BackendError {
    let KnownChild { name, engine, .. } = known;
    let detail = format!(
        "{} has data of the backend {name}, a {engine} store, which is not among the configured ones: set \
         multi_backend.{name}.storage_backend = {engine} again",
        place.display()
    );
    BackendError::new(ErrorKind::Denied, detail)
}
