//! Shares: the number of partitions that each claimant is due, by weight.
//!
//! A weighted share is seldom a whole number. It may be rounded either way (`least` and `most`), so
//! that the search has room; the search begins with `due`.

/// A node by its place in the list of claimants.
pub(crate) type Member = usize;

/// The partitions that one member is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// Its share rounded down.
    pub(crate) least: usize,
    /// Its share rounded up.
    pub(crate) most: usize,
    /// One of `least` and `most`; the sum over all members is the ring's size.
    pub(crate) due: usize,
}

/// The facts that decide the rounding of shares.
pub(crate) struct Claims<'a> {
    pub(crate) partitions: usize,
    pub(crate) weights: &'a [u64],
    /// The location of each member, by number.
    pub(crate) location_of: &'a [usize],
    /// Replicas to be kept on distinct nodes.
    pub(crate) replicas: usize,
    /// Number of partitions that each member owned before.
    pub(crate) owned: &'a [usize],
}

impl Claims<'_> {
    /// The share of each member. Shares are rounded up in this order: members that already own more
    /// than their share rounded down, then members with the largest remainders, then members in the
    /// location that has least.
    pub(crate) fn shares(&self) -> Vec<Share> {
        let mut shares = vec![Share::default(); self.weights.len()];
        let mut open: Vec<Member> = (0..self.weights.len()).collect();
        let mut left = self.partitions;
        let cap = self.cap();
        let total = |open: &[Member]| -> u128 {
            open.iter()
                .map(|member| u128::from(self.weights[*member]))
                .sum()
        };
        let scaled = |left: usize, member: Member| left as u128 * u128::from(self.weights[member]);
        while let Some(over) = open
            .iter()
            .position(|member| scaled(left, *member) > cap as u128 * total(&open))
        {
            let member = open.remove(over);
            (shares[member].least, shares[member].most) = (cap, cap);
            shares[member].due = cap;
            left -= cap;
        }
        let all = total(&open).max(1);
        let mut remainders = Vec::with_capacity(open.len());
        let mut given = 0;
        for member in open {
            let least = usize::try_from(scaled(left, member) / all).unwrap_or(cap);
            let remainder = scaled(left, member) % all;
            shares[member] = Share {
                least,
                most: least + usize::from(remainder > 0),
                due: least,
            };
            given += least;
            remainders.push((remainder, member));
        }
        self.round_up(&mut shares, remainders, left - given);
        shares
    }

    fn round_up(&self, shares: &mut [Share], mut open: Vec<(u128, Member)>, count: usize) {
        let locations = self.location_of.iter().max().map_or(0, |most| most + 1);
        let mut due_in = vec![0usize; locations];
        for (member, share) in shares.iter().enumerate() {
            due_in[self.location_of[member]] += share.due;
        }
        for _ in 0..count {
            let first = (0..open.len()).min_by_key(|at| {
                let (remainder, member) = open[*at];
                let had = self.owned[member] > shares[member].least;
                let large = std::cmp::Reverse((had, remainder, self.owned[member]));
                (large, due_in[self.location_of[member]], member)
            });
            let Some(at) = first else { break };
            let (_, member) = open.remove(at);
            shares[member].due += 1;
            due_in[self.location_of[member]] += 1;
        }
    }

    /// The most partitions that can be `replicas` apart on the circle.
    fn cap(&self) -> usize {
        let spaced = self.partitions / self.replicas;
        if spaced * self.weights.len() >= self.partitions {
            spaced
        } else {
            self.partitions.div_ceil(self.replicas)
        }
    }
}
