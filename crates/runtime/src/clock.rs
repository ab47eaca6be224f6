//! The two kinds of time: monotonic and wall-clock time.
//!
//! Durations and deadlines are measured in monotonic time. Wall-clock time is written into objects and
//! compared between machines, and may jump.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// A point in monotonic time: the time since an arbitrary start, the same for one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The moment this long after the start.
    pub const fn from_start(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// The time since the start.
    pub const fn elapsed(self) -> Duration {
        self.0
    }

    /// This moment plus a duration; the last possible moment on overflow.
    #[must_use]
    pub const fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// The time from an earlier moment to this one; zero when the other is later.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// A wall-clock time: microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(u64);

impl WallTime {
    /// The time this many microseconds after the Unix epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The time this many seconds after the Unix epoch.
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }

    /// Microseconds since the Unix epoch.
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// Whole seconds since the Unix epoch.
    pub const fn seconds(self) -> u64 {
        self.0 / 1_000_000
    }

    /// This time plus a duration, in whole microseconds; the last possible time on overflow.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(whole_micros(duration)))
    }

    /// The time from an earlier time to this one; zero when the other is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

fn whole_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A source of the time.
pub trait Clock: Send + Sync {
    /// The present monotonic time.
    fn now(&self) -> Moment;

    /// The present wall-clock time. It may be earlier than at the last call.
    fn wall_time(&self) -> WallTime;
}

/// The system's clocks.
pub(crate) struct SystemClock {
    start: Instant,
}

impl SystemClock {
    pub(crate) fn new(start: Instant) -> Self {
        Self { start }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        Moment(self.start.into_std().elapsed())
    }

    fn wall_time(&self) -> WallTime {
        // A clock before 1970 was never set, and counts as zero.
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        WallTime(whole_micros(since_epoch))
    }
}

/// Start of the wall clock of a simulation: 2026-01-01 00:00:00 UTC.
const SIMULATED_START: WallTime = WallTime::from_seconds(1_767_225_600);

/// The time of a simulated runtime, which moves when all its tasks wait.
pub(crate) struct SimulatedClock {
    handle: Handle,
    start: Instant,
    /// Offset of the wall-clock time, in microseconds.
    wall_offset: AtomicI64,
}

impl SimulatedClock {
    pub(crate) fn new(handle: Handle, start: Instant) -> Self {
        Self {
            handle,
            start,
            wall_offset: AtomicI64::new(0),
        }
    }

    /// Makes the wall clock jump.
    pub(crate) fn jump_wall(&self, micros: i64) {
        self.wall_offset.fetch_add(micros, Ordering::Relaxed);
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Moment {
        // Outside its runtime, tokio's time is the real one.
        let _inside = self.handle.enter();
        Moment(Instant::now().saturating_duration_since(self.start))
    }

    fn wall_time(&self) -> WallTime {
        let right = SIMULATED_START.plus(self.now().elapsed());
        let offset = self.wall_offset.load(Ordering::Relaxed);
        WallTime(right.0.saturating_add_signed(offset))
    }
}

/// A clock that its owner sets, for tests with fixed times and with jumps of the wall clock.
#[derive(Debug, Default)]
pub struct ManualClock {
    times: Mutex<(Moment, WallTime)>,
}

impl ManualClock {
    /// A clock at the start of monotonic time, with this wall-clock time.
    pub fn new(wall_time: WallTime) -> Self {
        Self {
            times: Mutex::new((Moment::default(), wall_time)),
        }
    }

    /// Moves both times forward.
    pub fn advance(&self, duration: Duration) {
        let mut times = self.times.lock();
        *times = (times.0.plus(duration), times.1.plus(duration));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        self.times.lock().0
    }

    fn wall_time(&self) -> WallTime {
        self.times.lock().1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_stops_at_the_ends_of_time() {
        let late = Moment::from_start(Duration::from_secs(5));
        let later = late.plus(Duration::from_secs(2));
        assert_eq!(later.since(late), Duration::from_secs(2));
        assert_eq!(late.since(later), Duration::ZERO);
        assert_eq!(later.plus(Duration::MAX).elapsed(), Duration::MAX);
        let wall = WallTime::from_micros(1_999_999);
        assert_eq!(wall.seconds(), 1);
        assert_eq!(wall.plus(Duration::from_nanos(1999)).micros(), 2_000_000);
        assert_eq!(wall.since(WallTime::from_seconds(2)), Duration::ZERO);
        assert_eq!(wall.plus(Duration::MAX).micros(), u64::MAX);
    }

    #[test]
    fn a_manual_clock_moves_as_it_is_set() {
        let clock = ManualClock::new(WallTime::from_seconds(100));
        clock.advance(Duration::from_secs(3));
        assert_eq!(clock.now().elapsed(), Duration::from_secs(3));
        assert_eq!(clock.wall_time().seconds(), 103);
    }
}
