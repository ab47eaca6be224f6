//! The backlog stays bounded at all rates that the device sustains, and is done in idle time.

use std::time::Duration;

use kvorum_arbiter::Budgets;
use kvorum_backend::{TaskKind, Urgency};
use proptest::prelude::*;

use crate::world::{Settings, World};

const SECOND: Duration = Duration::from_secs(1);

/// The rate that the device sustains with this amplification, in bytes put per second.
fn carried(settings: &Settings) -> f64 {
    settings.bytes_per_second / (1.0 + settings.amplification)
}

/// Long steps, so that long times pass quickly.
fn coarse() -> Budgets {
    Budgets {
        step_time: Duration::from_millis(20),
        ..Budgets::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 12,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Phases of any load, each up to the sustained rate, with continuously slowed foreground
    /// requests: the backlog never exceeds the new work of a fixed time.
    #[test]
    fn the_backlog_is_bounded_at_any_ingest_that_the_device_carries(
        seed in any::<u64>(),
        stores in prop_oneof![Just(64u16), Just(256)],
        amplification in 0.5..8.0f64,
        speed in prop_oneof![Just(60e6), Just(400e6), Just(2e9)],
        phases in prop::collection::vec((0.0..0.95f64, 5..30u32, any::<bool>()), 3..6),
    ) {
        let settings = Settings {
            stores,
            bytes_per_second: speed,
            amplification,
            lump_bytes: speed / 100.0,
            pressing_bytes: u64::MAX,
            seed,
            budgets: coarse(),
            ..Settings::default()
        };
        let most = carried(&settings);
        let mut world = World::new(settings);
        for (part, seconds, is_skewed) in phases {
            if is_skewed {
                world.put_skewed(most * part);
            } else {
                world.put_evenly(most * part);
            }
            world.run(SECOND * seconds);
        }
        // The work of eight seconds at full load, and the lumps that no store has worked on.
        let lumps = f64::from(stores) * (speed / 100.0) * amplification;
        let bound = most * amplification * 8.0 + lumps;
        prop_assert!(
            (world.backlog_max as f64) < bound,
            "{} MB of {} MB", world.backlog_max / 1_000_000, bound / 1e6
        );
    }
}

#[test]
fn a_constant_load_for_an_hour_leaves_a_steady_backlog() {
    let settings = Settings {
        pressing_bytes: u64::MAX,
        stores: 16,
        budgets: coarse(),
        ..Settings::default()
    };
    let most = carried(&settings);
    let mut world = World::new(settings);
    world.put_evenly(most * 0.8);
    world.run(SECOND * 600);
    let early = world.backlog_max;
    world.run(SECOND * 3000);
    assert!(
        world.backlog_max < early + early / 10,
        "{} after {early}",
        world.backlog_max
    );
}

#[test]
fn bursts_beyond_what_the_device_carries_are_paid_between_them() {
    let settings = Settings {
        pressing_bytes: u64::MAX,
        stores: 32,
        budgets: coarse(),
        ..Settings::default()
    };
    let most = carried(&settings);
    let mut world = World::new(settings);
    let mut highest = Vec::new();
    for _ in 0..12 {
        world.backlog_max = 0;
        world.put_skewed(most * 2.5);
        world.run(SECOND * 3);
        world.put_evenly(most * 0.2);
        world.run(SECOND * 12);
        highest.push(world.backlog_max);
    }
    let (first, last) = (highest[1], highest[11]);
    assert!(last < first * 2, "{highest:?}");
}

#[test]
fn idle_time_works_the_backlog_off() {
    let settings = Settings {
        lump_bytes: 40e6,
        ..Settings::default()
    };
    let most = carried(&settings);
    let mut world = World::new(settings);
    world.put_skewed(most * 2.0);
    world.run(SECOND * 20);
    let backlog = world.backlog_bytes();
    assert!(backlog > 1_000_000_000, "{backlog}");
    world.put_evenly(0.0);
    // The time at the full rate, and a little for looks.
    world.run(Duration::from_secs_f64(backlog as f64 / 400e6 * 1.3) + SECOND * 3);
    assert_eq!(world.backlog_bytes(), 0);
    let report = world.arbiter.report(world.now);
    world.run(SECOND * 12);
    assert_eq!(
        world.arbiter.report(world.now).backlog_bytes,
        0,
        "{report:?}"
    );
}

#[test]
fn writers_that_heed_the_delay_keep_the_backlog_bounded_beyond_what_the_device_carries() {
    let settings = Settings {
        budgets: coarse(),
        pressing_bytes: 32 << 20,
        ..Settings::default()
    };
    let most = carried(&settings);
    let pressing = u64::from(settings.stores) * settings.pressing_bytes;
    let mut world = World::new(settings);
    world.honours_delay = true;
    world.put_evenly(most * 2.5);
    world.run(SECOND * 60);
    let before = world.put_total;
    let mut delays = Vec::new();
    for _ in 0..600 {
        world.run(SECOND / 10);
        delays.push(world.arbiter.put_delay());
    }
    assert!(
        world.backlog_max < 2 * pressing,
        "{} MB",
        world.backlog_max / 1_000_000
    );
    assert!(delays.iter().any(|delay| *delay > Duration::ZERO));
    for pair in delays.windows(2) {
        assert!(
            pair[0].abs_diff(pair[1]) < Duration::from_millis(4),
            "{pair:?} is a jump"
        );
    }
    let accepted = (world.put_total - before) / 60.0;
    assert!(
        accepted > most * 0.9,
        "{accepted} of {most}: slowed, not stopped"
    );
}

#[test]
fn a_backlog_bound_of_the_operator_slows_writers_before_it_is_reached() {
    let settings = Settings {
        pressing_bytes: u64::MAX,
        budgets: Budgets {
            backlog_bytes_max: Some(2_000_000_000),
            ..Budgets::default()
        },
        ..Settings::default()
    };
    let most = carried(&settings);
    let mut world = World::new(settings);
    world.honours_delay = true;
    world.put_evenly(most * 2.5);
    world.run(SECOND * 120);
    // Writers are slowed from one half on. The work that arises before the delay takes effect adds
    // to it.
    assert!(world.backlog_max < 3_000_000_000, "{}", world.backlog_max);
    assert!(world.arbiter.put_delay() > Duration::ZERO);
}

#[test]
fn the_same_seed_gives_the_same_decisions() {
    let run = |seed| {
        let mut world = World::new(Settings {
            seed,
            ..Settings::default()
        });
        world.put_skewed(80e6);
        world.run(SECOND * 20);
        (world.decisions, world.backlog_bytes(), world.steps)
    };
    assert!(run(7) == run(7));
    assert!(run(7).2 != run(8).2);
}

#[test]
fn an_io_ceiling_is_kept_to() {
    let settings = Settings {
        budgets: Budgets {
            io_bytes_per_second_max: Some(20_000_000),
            ..Budgets::default()
        },
        ..Settings::default()
    };
    let mut world = World::new(settings);
    world.put_evenly(40e6);
    world.run(SECOND * 20);
    let before = world.background_total;
    world.run(SECOND * 40);
    let rate = (world.background_total - before) / 40.0;
    assert!((19.5e6..20.3e6).contains(&rate), "{rate}");
}

#[test]
fn a_processor_share_is_kept_to() {
    let settings = Settings {
        budgets: Budgets {
            cpu_share_max_percent: 5,
            cores: 2,
            ..Budgets::default()
        },
        ..Settings::default()
    };
    let mut world = World::new(settings);
    world.put_evenly(60e6);
    world.run(SECOND * 60);
    // Steps of the model compute for three tenths of their time.
    let busy: Duration = world
        .steps
        .iter()
        .map(|(_, _, took)| took.mul_f64(0.3))
        .sum();
    assert!(busy < Duration::from_secs_f64(0.1 * 60.5), "{busy:?}");
    assert!(busy > Duration::from_secs_f64(0.09 * 60.0), "{busy:?}");
}

#[test]
fn without_a_processor_share_only_what_presses_is_done() {
    let settings = Settings {
        budgets: Budgets {
            cpu_share_max_percent: 0,
            ..Budgets::default()
        },
        ..Settings::default()
    };
    let mut world = World::new(settings);
    world.add_backlog(0, TaskKind::Merge, Urgency::Normal, 1_000_000);
    world.add_backlog(1, TaskKind::Merge, Urgency::Pressing, 1_000_000);
    world.run(SECOND * 30);
    assert_eq!(world.stores[0].steps, 0);
    assert_eq!(world.stores[1].backlog_bytes(), 0);
    // There is no busy loop meanwhile.
    assert!(world.decisions < 2000, "{}", world.decisions);
}

#[test]
fn the_estimate_of_when_the_backlog_is_done_comes_true() {
    let mut world = World::new(Settings::default());
    world.add_backlog(3, TaskKind::Merge, Urgency::Normal, 8_000_000_000);
    world.run(SECOND * 8);
    let paid_in = world.arbiter.report(world.now).paid_in.unwrap();
    let mut waited = Duration::ZERO;
    while world.backlog_bytes() > 0 {
        world.run(SECOND / 10);
        waited += SECOND / 10;
    }
    let ratio = waited.as_secs_f64() / paid_in.as_secs_f64();
    assert!((0.8..1.25).contains(&ratio), "{waited:?} for {paid_in:?}");
}
