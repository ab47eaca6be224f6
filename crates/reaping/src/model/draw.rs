//! Pseudorandom numbers from a seed.

pub(super) struct Draw(u64);

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x5851_f42d_4c95_7f2d))
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }

    pub(super) fn place(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap()
    }

    pub(super) fn happens(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Removes and returns one of them; `None` when there is none.
    pub(super) fn take<T>(&mut self, from: &mut Vec<T>) -> Option<T> {
        match from.len() {
            0 => None,
            len => Some(from.swap_remove(self.place(len))),
        }
    }
}
