//! The remaining time of a matrix.

/// The first guess of a cell's time beyond its load, for a server's start and stop, in seconds.
const OVERHEAD_GUESS: f64 = 3.0;

/// The time of a cell beyond its load, learned from the cells that are done.
#[derive(Debug)]
pub(super) struct Estimate {
    /// Seconds of load that are left.
    load: f64,
    cells: u32,
    overheads: f64,
    done: u32,
}

impl Estimate {
    /// For cells with loads of these seconds.
    pub(super) fn new(loads: impl Iterator<Item = f64>) -> Self {
        let (load, cells) = loads.fold((0.0, 0), |(sum, count), load| (sum + load, count + 1));
        Self {
            load,
            cells,
            overheads: 0.0,
            done: 0,
        }
    }

    /// Notes that a cell has ended or failed. Its load was expected to take `expected` seconds; the
    /// cell took `took`.
    pub(super) fn finish(&mut self, expected: f64, took: f64) {
        self.load -= expected;
        self.cells = self.cells.saturating_sub(1);
        self.overheads += (took - expected).max(0.0);
        self.done += 1;
    }

    /// Seconds that are left.
    pub(super) fn left(&self) -> f64 {
        let overhead = if self.done == 0 {
            OVERHEAD_GUESS
        } else {
            self.overheads / f64::from(self.done)
        };
        self.load.max(0.0) + f64::from(self.cells) * overhead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cells_take_beyond_their_load_is_learnt() {
        let mut estimate = Estimate::new([100.0, 100.0, 50.0].into_iter());
        assert_eq!(estimate.left(), 250.0 + 3.0 * OVERHEAD_GUESS);
        estimate.finish(100.0, 110.0);
        assert_eq!(estimate.left(), 150.0 + 2.0 * 10.0);
        estimate.finish(100.0, 104.0);
        estimate.finish(50.0, 1.0);
        assert_eq!(estimate.left(), 0.0);
    }
}
