//! Scales: from a value to its place between the ends of an axis.

use super::scale_kind::ScaleKind;
use super::ticks;
use super::unit::Unit;

/// An axis: its ends, its unit and its ticks.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    /// Its growth.
    pub kind: ScaleKind,
    /// Its unit.
    pub unit: Unit,
    /// The value at its beginning.
    pub min: f64,
    /// The value at its end; greater than `min`.
    pub max: f64,
    /// Round values, ascending, within the ends.
    pub ticks: Vec<f64>,
}

impl Scale {
    /// An axis from zero to a round value at or above `max`, with at most about `count` ticks.
    pub fn from_zero(unit: Unit, max: f64, count: u32) -> Self {
        let max = if max > 0.0 { max } else { 1.0 };
        let step = ticks::step(unit, max, count);
        let top = (max / step - 1e-9).ceil().max(1.0) * step;
        Self {
            kind: ScaleKind::Linear,
            unit,
            min: 0.0,
            max: top,
            ticks: ticks::multiples(step, top),
        }
    }

    /// An axis from zero to exactly `max`, which ends with the data.
    pub fn up_to(unit: Unit, max: f64, count: u32) -> Self {
        let max = if max > 0.0 { max } else { 1.0 };
        let step = ticks::step(unit, max, count);
        Self {
            kind: ScaleKind::Linear,
            unit,
            min: 0.0,
            max,
            ticks: ticks::multiples(step, max),
        }
    }

    /// A logarithmic axis over all positive values given; one decade around 1 if no value is
    /// positive.
    pub fn logarithmic(unit: Unit, values: impl Iterator<Item = f64>) -> Self {
        let positive = values.filter(|value| *value > 0.0);
        let (least, greatest) = positive
            .fold((f64::INFINITY, 0.0_f64), |(least, greatest), value| {
                (least.min(value), greatest.max(value))
            });
        let (least, greatest) = if greatest > 0.0 {
            (least, greatest)
        } else {
            (1.0, 10.0)
        };
        let (min, max) = ticks::enclosing(least, greatest);
        Self {
            kind: ScaleKind::Logarithmic,
            unit,
            min,
            max,
            ticks: ticks::logarithmic(min, max),
        }
    }

    /// Position of a value between the ends: zero at `min`, one at `max`. A value below the
    /// beginning of a logarithmic axis is at the beginning.
    pub fn place(&self, value: f64) -> f64 {
        match self.kind {
            ScaleKind::Linear => (value - self.min) / (self.max - self.min),
            ScaleKind::Logarithmic => {
                let value = value.max(self.min);
                (value / self.min).ln() / (self.max / self.min).ln()
            }
        }
    }

    /// The ticks with their texts.
    pub fn labelled_ticks(&self) -> impl Iterator<Item = (f64, String)> {
        let largest = self.ticks.last().copied().unwrap_or(self.max);
        self.ticks
            .iter()
            .map(move |tick| (*tick, self.unit.tick(*tick, largest, self.kind)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ends_and_middle_lie_where_they_belong() {
        let linear = Scale::from_zero(Unit::Rate, 100.0, 5);
        assert_eq!((linear.min, linear.max), (0.0, 100.0));
        assert_eq!(linear.place(25.0), 0.25);
        let logarithmic = Scale::logarithmic(Unit::Microseconds, [10.0, 1000.0].into_iter());
        assert_eq!((logarithmic.min, logarithmic.max), (10.0, 1000.0));
        assert!((logarithmic.place(100.0) - 0.5).abs() < 1e-9);
        assert_eq!(logarithmic.place(0.0), 0.0);
    }

    #[test]
    fn an_axis_without_data_still_has_ends() {
        for scale in [
            Scale::from_zero(Unit::Bytes, 0.0, 5),
            Scale::up_to(Unit::Seconds, 0.0, 5),
            Scale::logarithmic(Unit::Microseconds, [0.0].into_iter()),
        ] {
            assert!(scale.max > scale.min);
            assert!(!scale.ticks.is_empty());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_value_lies_on_its_axis_and_ticks_ascend(
            values in prop::collection::vec(1e-3..1e12_f64, 1..20),
            count in 2_u32..9,
        ) {
            let largest = values.iter().copied().fold(0.0, f64::max);
            for scale in [
                Scale::from_zero(Unit::Rate, largest, count),
                Scale::from_zero(Unit::Bytes, largest, count),
                Scale::up_to(Unit::Seconds, largest, count),
                Scale::logarithmic(Unit::Microseconds, values.iter().copied()),
            ] {
                for value in &values {
                    let place = scale.place(*value);
                    prop_assert!((-1e-9..=1.0 + 1e-9).contains(&place), "{place}");
                }
                prop_assert!(scale.ticks.windows(2).all(|pair| pair[0] < pair[1]));
                prop_assert!(scale.ticks.len() <= 14, "{:?}", scale.ticks);
                prop_assert!(scale.ticks.len() >= 2 || scale.unit == Unit::Seconds);
            }
        }
    }
}
