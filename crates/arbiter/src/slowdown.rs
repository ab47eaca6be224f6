//! The spring: the delay of writers when upkeep falls behind.

use std::time::Duration;

/// The part of the bound up to which the backlog causes no delay.
const FREE_PART: f64 = 0.5;

/// The delay of a put while the backlog is `fullness` of its bound.
///
/// Zero up to one half; from there it grows with the square of the distance, so that the first
/// delays are hardly noticeable. At the bound and beyond it is `delay_max`: a put is slowed, not
/// stopped.
pub fn put_delay(fullness: f64, delay_max: Duration) -> Duration {
    let way = (fullness - FREE_PART) / (1.0 - FREE_PART);
    // NaN counts as zero: an unknown figure causes no delay.
    let way = if way > 0.0 { way.min(1.0) } else { 0.0 };
    delay_max.mul_f64(way * way)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MOST: Duration = Duration::from_millis(20);

    #[test]
    fn half_of_the_bound_is_free_and_the_bound_costs_the_most() {
        assert_eq!(put_delay(0.5, MOST), Duration::ZERO);
        assert_eq!(put_delay(0.75, MOST), MOST / 4);
        assert_eq!(put_delay(1.0, MOST), MOST);
        assert_eq!(put_delay(f64::INFINITY, MOST), MOST);
        assert_eq!(put_delay(f64::NAN, MOST), Duration::ZERO);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_little_more_backlog_is_a_little_more_delay(fullness in 0.0..2.0f64, more in 0.0..0.01f64) {
            let (less, more) = (put_delay(fullness, MOST), put_delay(fullness + more, MOST));
            prop_assert!(less <= more && more <= MOST);
            // The steepest part rises by four times the maximum over the whole distance.
            prop_assert!(more - less <= MOST.mul_f64(0.0401));
        }
    }
}
