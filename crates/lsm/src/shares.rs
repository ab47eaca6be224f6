//! Charges of puts for merges, if each put pays its share: an account for each level with a due
//! merge.
//!
//! A put adds the same charge to each account, and work on a level is subtracted from the level's
//! account. So puts pay nothing for a level whose merge upkeep has done ahead of time.

use std::collections::BTreeMap;

/// The accounts, by the level that a merge relieves.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// Bytes of merging that are charged; below zero for work done ahead.
    charges: BTreeMap<usize, i64>,
}

impl Shares {
    /// Charges each of these levels this many bytes of merging for new puts. Other levels' accounts
    /// are closed.
    pub(crate) fn put(&mut self, levels: &[usize], bytes: u64) {
        self.charges.retain(|level, _| levels.contains(level));
        for level in levels {
            let charge = self.charges.entry(*level).or_default();
            *charge = charge.saturating_add_unsigned(bytes);
        }
    }

    /// Records that this many bytes were merged for a level.
    pub(crate) fn done(&mut self, level: usize, bytes: u64) {
        let charge = self.charges.entry(level).or_default();
        *charge = charge.saturating_sub_unsigned(bytes);
    }

    /// Closes the account of a level at the end of its merge: the next merge begins without a
    /// charge.
    pub(crate) fn close(&mut self, level: usize) {
        self.charges.remove(&level);
    }

    /// The level outside `passed` with the highest charge, and the charge, if it is above zero.
    pub(crate) fn most(&self, passed: &[usize]) -> Option<(usize, u64)> {
        let charges = self
            .charges
            .iter()
            .filter(|(level, _)| !passed.contains(level));
        let (level, charge) = charges.max_by_key(|(_, charge)| **charge)?;
        let charge = u64::try_from(*charge).ok().filter(|it| *it > 0)?;
        Some((*level, charge))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_is_charged_the_same_and_work_done_ahead_counts() {
        let mut shares = Shares::default();
        shares.put(&[0, 2], 90);
        shares.done(2, 100);
        shares.put(&[0, 2], 30);
        assert_eq!(shares.most(&[]), Some((0, 120)));
        assert_eq!(shares.most(&[0]), Some((2, 20)));
        shares.done(2, 20);
        assert_eq!(shares.most(&[0]), None);
    }

    #[test]
    fn work_done_ahead_of_one_merge_is_not_counted_for_the_next() {
        let mut shares = Shares::default();
        shares.put(&[2], 10);
        shares.done(2, 1000);
        shares.close(2);
        shares.put(&[2], 10);
        assert_eq!(shares.most(&[]), Some((2, 10)));
        // Without a due merge, a level has no charge.
        shares.put(&[5], 10);
        assert_eq!(shares.most(&[5]), None);
    }
}
