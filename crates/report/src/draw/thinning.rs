//! Thinning of long runs, which have more rows than a chart has pixels: every extreme is kept.
//!
//! The first, the least, the greatest and the last point in each column of pixels are kept, so that
//! the line looks as if all points were drawn: a spike of one row in ten thousand stays visible.
//! Means over columns would hide the spike, so charts of latencies must not use them.

/// A point in units of pixels.
pub(super) type Point = (f64, f64);

/// Keeps at most four points for each column one pixel wide. `points` ascend in x.
pub(super) fn thin(points: &[Point]) -> Vec<Point> {
    let mut kept = Vec::new();
    for column in points.chunk_by(|a, b| a.0.floor() == b.0.floor()) {
        let mut extremes: [usize; 4] =
            [0, least(column, 1.0), least(column, -1.0), column.len() - 1];
        extremes.sort_unstable();
        let mut previous = None;
        for index in extremes {
            if previous != Some(index) {
                kept.extend(column.get(index).copied());
            }
            previous = Some(index);
        }
    }
    kept
}

/// The index of the least y, times `sign`.
fn least(column: &[Point], sign: f64) -> usize {
    let mut best = 0;
    for (index, point) in column.iter().enumerate() {
        if column
            .get(best)
            .is_none_or(|found| sign * point.1 < sign * found.1)
        {
            best = index;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_points_stay_as_they_are() {
        let points = [(0.0, 1.0), (3.5, 2.0), (9.0, 0.0)];
        assert_eq!(thin(&points), points);
        assert!(thin(&[]).is_empty());
    }

    #[test]
    fn a_single_spike_among_many_is_kept() {
        let mut points: Vec<Point> = (0..10_000)
            .map(|index| (f64::from(index) / 100.0, 5.0))
            .collect();
        points[4321].1 = 99.0;
        points[8765].1 = -7.0;
        let kept = thin(&points);
        assert!(kept.len() <= 400, "{}", kept.len());
        assert!(kept.contains(&(43.21, 99.0)));
        assert!(kept.contains(&(87.65, -7.0)));
        assert_eq!(kept.first(), points.first());
        assert_eq!(kept.last(), points.last());
        assert!(kept.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    }
}
