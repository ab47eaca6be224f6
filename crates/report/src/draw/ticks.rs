//! Ticks: the round values at which an axis is labelled.

use super::unit::Unit;

/// Round lengths of time in seconds, up to a day; longer steps are whole days.
const TIME_STEPS: [f64; 20] = [
    0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0,
    3600.0, 7200.0, 10_800.0, 21_600.0, 43_200.0,
];

/// The least round step that divides a length into at most `count` pieces.
pub(super) fn step(unit: Unit, length: f64, count: u32) -> f64 {
    let rough = length / f64::from(count.max(1));
    if unit == Unit::Seconds {
        // An axis has minutes from two minutes on, and hours from two hours on; a step is never a
        // fraction of that unit.
        let least = match length {
            length if length >= 7200.0 => 3600.0,
            length if length >= 120.0 => 60.0,
            _ => 0.0,
        };
        let rough = rough.max(least);
        let fitting = TIME_STEPS
            .iter()
            .find(|step| **step >= rough * (1.0 - 1e-9));
        return fitting.copied().unwrap_or_else(|| {
            let days = rough / 86_400.0;
            86_400.0 * if days <= 1.0 { 1.0 } else { round_up(days) }
        });
    }
    round_up(rough)
}

/// The least of 1, 2, 5 times a power of ten that is no less than `value`, which is positive.
fn round_up(value: f64) -> f64 {
    let power = 10.0_f64.powf(value.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    let fits = |factor: &&f64| **factor * power >= value * (1.0 - 1e-9);
    power * factors.iter().find(fits).copied().unwrap_or(10.0)
}

/// The greatest of 1, 2, 5 times a power of ten that is no greater than `value`.
fn round_down(value: f64) -> f64 {
    let power = 10.0_f64.powf(value.log10().floor());
    let fits = |factor: &&f64| **factor * power <= value * (1.0 + 1e-9);
    power * [5.0, 2.0, 1.0].iter().find(fits).copied().unwrap_or(1.0)
}

/// Zero and the multiples of `step` up to `max`.
pub(super) fn multiples(step: f64, max: f64) -> Vec<f64> {
    (0_u32..1000)
        .map(|index| f64::from(index) * step)
        .take_while(|tick| *tick <= max * (1.0 + 1e-9))
        .collect()
}

/// Round ends of a logarithmic axis around positive values, at least a factor of ten apart.
pub(super) fn enclosing(least: f64, greatest: f64) -> (f64, f64) {
    let min = round_down(least);
    let max = round_up(greatest).max(min * 10.0);
    (min, max)
}

/// Ticks of a logarithmic axis: 1, 2 and 5 of every decade if there is room, else 1 of every decade
/// or of every few.
pub(super) fn logarithmic(min: f64, max: f64) -> Vec<f64> {
    let decades = (max / min).log10();
    let factors: &[f64] = if decades <= 2.0 {
        &[1.0, 2.0, 5.0]
    } else {
        &[1.0]
    };
    let stride = if decades <= 9.0 { 1 } else { 3 };
    let mut ticks = Vec::new();
    let mut power = 10.0_f64.powf(min.log10().floor());
    let mut decade = 0_u32;
    while power <= max * (1.0 + 1e-9) {
        let within = factors
            .iter()
            .map(|factor| factor * power)
            .filter(|tick| *tick >= min * (1.0 - 1e-9) && *tick <= max * (1.0 + 1e-9));
        if decade.is_multiple_of(stride) {
            ticks.extend(within);
        }
        power *= 10.0;
        decade += 1;
    }
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        for (length, count, expected) in [
            (100.0, 5, 20.0),
            (61_234.0, 5, 20_000.0),
            (0.9, 4, 0.5),
            (1.0, 10, 0.1),
        ] {
            assert_eq!(
                step(Unit::Rate, length, count),
                expected,
                "{length} by {count}"
            );
        }
    }

    #[test]
    fn steps_of_time_are_those_of_clocks() {
        for (seconds, expected) in [
            (10.0, 2.0),
            (60.0, 10.0),
            (180.0, 60.0),
            (3600.0, 600.0),
            (86_400.0, 21_600.0),
            (10.0 * 86_400.0, 2.0 * 86_400.0),
        ] {
            assert_eq!(step(Unit::Seconds, seconds, 6), expected, "{seconds}");
        }
    }

    #[test]
    fn few_decades_get_ticks_within_and_many_do_not() {
        assert_eq!(logarithmic(10.0, 100.0), [10.0, 20.0, 50.0, 100.0]);
        assert_eq!(logarithmic(200.0, 2000.0), [200.0, 500.0, 1000.0, 2000.0]);
        assert_eq!(logarithmic(10.0, 1e5), [10.0, 100.0, 1000.0, 1e4, 1e5]);
    }

    #[test]
    fn ends_of_a_logarithmic_axis_enclose_and_are_round() {
        assert_eq!(enclosing(13.0, 4800.0), (10.0, 5000.0));
        assert_eq!(enclosing(20.0, 20.0), (20.0, 200.0));
    }
}
