//! The effect of a power cut: the surviving changes, drawn from a seed or set to an extreme.
//!
//! A crash is a value, so that a failing test prints one line that reproduces it.

/// The unsynced changes that a crash keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashOptions {
    /// The seed of all draws; the same disk and the same seed leave the same image.
    pub seed: u64,
    /// The fate of unsynced writes, truncations and reservations of files.
    pub data: DataSurvival,
    /// The fate of unsynced creations, renames, links and removals.
    pub names: NameSurvival,
}

/// Fates of the unsynced changes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataSurvival {
    /// All changes are lost, lengths included.
    Nothing,
    /// Files have their new lengths; unsynced data in the new part read as zeros.
    Lengths,
    /// All changes are kept.
    Everything,
    /// Each change is kept, dropped or torn at 512-byte sectors. A file may also get one of the
    /// three extremes above, or only its first few changes.
    Drawn,
}

/// Fates of unsynced names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameSurvival {
    /// All changes are lost.
    Nothing,
    /// All changes are kept.
    Everything,
    /// Each change is kept or lost, in order for changes of the same name; a rename is kept or lost
    /// as a whole.
    Drawn,
}

impl CrashOptions {
    fn of(seed: u64, data: DataSurvival, names: NameSurvival) -> Self {
        Self { seed, data, names }
    }

    /// A crash with all changes drawn from the seed, for sweeps.
    pub fn drawn(seed: u64) -> Self {
        Self::of(seed, DataSurvival::Drawn, NameSurvival::Drawn)
    }

    /// Only synced data and names survive.
    pub fn nothing_unsynced() -> Self {
        Self::of(0, DataSurvival::Nothing, NameSurvival::Nothing)
    }

    /// Everything survives, as when a process is killed, since the page cache remains.
    pub fn everything() -> Self {
        Self::of(0, DataSurvival::Everything, NameSurvival::Everything)
    }

    /// Names survive and unsynced data do not: renamed files are empty.
    pub fn names_without_data() -> Self {
        Self::of(0, DataSurvival::Nothing, NameSurvival::Everything)
    }

    /// Names and lengths survive and unsynced data do not: new parts of files are zeros.
    pub fn names_with_zeros() -> Self {
        Self::of(0, DataSurvival::Lengths, NameSurvival::Everything)
    }

    /// Data survive and unsynced names do not: files have their old names again.
    pub fn data_without_names() -> Self {
        Self::of(0, DataSurvival::Everything, NameSurvival::Nothing)
    }

    /// The five extremes, to run before any seed: they reveal most bugs.
    pub fn extremes() -> [Self; 5] {
        [
            Self::nothing_unsynced(),
            Self::everything(),
            Self::names_without_data(),
            Self::names_with_zeros(),
            Self::data_without_names(),
        ]
    }
}

/// The source of the draws (SplitMix64), small and with a stable sequence.
pub(super) struct Draw {
    state: u64,
}

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, or 0 if there is none.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        let drawn = self.next() % (bound.max(1) as u64);
        usize::try_from(drawn).unwrap_or(0)
    }

    pub(super) fn coin(&mut self) -> bool {
        self.next() & (1 << 40) != 0
    }
}
