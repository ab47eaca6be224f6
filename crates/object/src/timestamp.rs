//! Wall-clock time as objects carry it.

/// Microseconds since the Unix epoch.
///
/// Zero stands for "before anything was written".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Before every write.
    pub const ZERO: Self = Self(0);

    /// Takes microseconds since the Unix epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whole seconds since the Unix epoch.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000_000
    }

    /// The microseconds behind the whole second, below one million.
    pub const fn subsec_micros(self) -> u64 {
        self.0 % 1_000_000
    }

    /// The first moment after this one, saturated at the last one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}
