//! The extent of a vnode's stores at some moment: the last batch of each.
//!
//! Batches of one store are ordered, those of two are not. A vnode over several stores has an
//! extent with several parts.

/// The batch that wrote an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchName {
    /// The identity of the store.
    pub store: u64,
    /// The position of the batch in the order of its store, from one.
    pub sequence: u64,
}

/// All batches of some stores, each up to its last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// The last batch of each store; one for each store.
    lasts: Vec<BatchName>,
}

impl Extent {
    /// The extent that ends with these batches, one of each store.
    pub fn up_to(lasts: impl IntoIterator<Item = BatchName>) -> Self {
        Self {
            lasts: lasts.into_iter().collect(),
        }
    }

    /// True for a batch within. One of a store that is not named is outside.
    pub fn has(&self, batch: BatchName) -> bool {
        let last = self.lasts.iter().find(|it| it.store == batch.store);
        last.is_some_and(|it| batch.sequence <= it.sequence)
    }

    /// The last batch of each store, for a file.
    pub fn lasts(&self) -> &[BatchName] {
        &self.lasts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(store: u64, sequence: u64) -> BatchName {
        BatchName { store, sequence }
    }

    #[test]
    fn an_extent_has_the_batches_of_its_stores_up_to_the_last() {
        let extent = Extent::up_to([batch(1, 10), batch(2, 0)]);
        assert!(extent.has(batch(1, 1)) && extent.has(batch(1, 10)));
        assert!(!extent.has(batch(1, 11)));
        assert!(!extent.has(batch(2, 1)), "the store was empty");
        assert!(!extent.has(batch(3, 1)), "the store is another");
        assert!(!Extent::default().has(batch(1, 1)));
        assert_eq!(extent.lasts().len(), 2);
    }
}
