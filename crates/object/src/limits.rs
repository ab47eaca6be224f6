//! Limits on the size of an object, and the verdict on a write that would exceed them.
//!
//! Limits are for clients' writes only. Read repair, anti-entropy and handoff must not check them:
//! a replica that refuses an object of the others would be repaired for ever.

/// Limits of one object. Each holds for values strictly above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Size above which reads and writes are logged, in bytes.
    pub size_warning_bytes: u64,
    /// Size above which a write is refused, in bytes.
    pub size_max_bytes: u64,
    /// Siblings above which reads and writes are logged.
    pub siblings_warning: usize,
    /// Siblings above which a write is refused.
    pub siblings_max: usize,
}

impl Default for Limits {
    /// 5 MB and 50 MB, 25 and 100 siblings.
    fn default() -> Self {
        Self {
            size_warning_bytes: 5 * 1024 * 1024,
            size_max_bytes: 50 * 1024 * 1024,
            siblings_warning: 25,
            siblings_max: 100,
        }
    }
}

/// The size of an object, as limits measure it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectSize {
    /// Bytes of head and body.
    pub bytes: u64,
    /// Number of siblings, tombstones included.
    pub siblings: usize,
}

/// The level of an object under a pair of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitLevel {
    /// Below both.
    Within,
    /// To be logged.
    Warning,
    /// Above the maximum.
    Exceeded,
}

/// The verdict on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitVerdict {
    /// Its size in bytes.
    pub size: LimitLevel,
    /// Its number of siblings.
    pub siblings: LimitLevel,
    /// Set when a client's write must be refused.
    pub refusal: Option<LimitExceeded>,
}

/// The reason why a write is refused. The client can store a smaller value, or resolve siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitExceeded {
    /// The object would be too large.
    #[error("object of {got} bytes, allowed are {allowed}")]
    TooLarge {
        /// Size that the object would have, in bytes.
        got: u64,
        /// The limit, in bytes.
        allowed: u64,
    },
    /// The object would have too many siblings.
    #[error("object with {got} siblings, allowed are {allowed}")]
    TooManySiblings {
        /// Siblings that the object would have.
        got: usize,
        /// The limit.
        allowed: usize,
    },
}

impl Limits {
    /// Judges the object that a client's write would produce.
    ///
    /// A write that makes the object no larger than `stored` is never refused, since clients must be
    /// able to reduce an object that a merge has brought above its limits.
    pub fn judge_write(&self, written: ObjectSize, stored: Option<ObjectSize>) -> LimitVerdict {
        let stored = stored.unwrap_or_default();
        let (size, siblings) = (self.size_level(written), self.siblings_level(written));
        let refusal = if size == LimitLevel::Exceeded && written.bytes > stored.bytes {
            Some(LimitExceeded::TooLarge {
                got: written.bytes,
                allowed: self.size_max_bytes,
            })
        } else if siblings == LimitLevel::Exceeded && written.siblings > stored.siblings {
            let allowed = self.siblings_max;
            Some(LimitExceeded::TooManySiblings {
                got: written.siblings,
                allowed,
            })
        } else {
            None
        };
        LimitVerdict {
            size,
            siblings,
            refusal,
        }
    }

    fn size_level(&self, size: ObjectSize) -> LimitLevel {
        level(size.bytes, self.size_warning_bytes, self.size_max_bytes)
    }

    fn siblings_level(&self, size: ObjectSize) -> LimitLevel {
        level(size.siblings, self.siblings_warning, self.siblings_max)
    }
}

fn level<T: PartialOrd + Copy>(value: T, warning: T, max: T) -> LimitLevel {
    if value > max {
        LimitLevel::Exceeded
    } else if value > warning {
        LimitLevel::Warning
    } else {
        LimitLevel::Within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        size_warning_bytes: 10,
        size_max_bytes: 20,
        siblings_warning: 2,
        siblings_max: 3,
    };

    fn size(bytes: u64, siblings: usize) -> ObjectSize {
        ObjectSize { bytes, siblings }
    }

    #[test]
    fn a_limit_is_exceeded_above_it_only() {
        let at = LIMITS.judge_write(size(20, 3), None);
        assert_eq!(
            (at.size, at.siblings),
            (LimitLevel::Warning, LimitLevel::Warning)
        );
        assert_eq!(at.refusal, None);
        assert_eq!(
            LIMITS.judge_write(size(10, 2), None).size,
            LimitLevel::Within
        );
        let large = LIMITS.judge_write(size(21, 1), None).refusal;
        assert_eq!(
            large,
            Some(LimitExceeded::TooLarge {
                got: 21,
                allowed: 20
            })
        );
        let many = LIMITS.judge_write(size(1, 4), None).refusal;
        assert_eq!(
            many,
            Some(LimitExceeded::TooManySiblings { got: 4, allowed: 3 })
        );
    }

    #[test]
    fn a_write_that_does_not_grow_the_object_is_never_refused() {
        let stored = Some(size(90, 9));
        assert_eq!(LIMITS.judge_write(size(90, 9), stored).refusal, None);
        assert_eq!(LIMITS.judge_write(size(60, 1), stored).refusal, None);
        assert!(LIMITS.judge_write(size(60, 10), stored).refusal.is_some());
        assert!(LIMITS.judge_write(size(91, 1), stored).refusal.is_some());
    }
}
