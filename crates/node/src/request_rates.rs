//! Gets and puts of the last second and the last minute, as Riak's protection from overload counted them.
//!
//! The statistics have totals and minutes. A rate is the difference of two totals that were read a
//! second or more apart; arrivals are the requests that ended, and the growth of those under way.

use std::time::Duration;

use kvorum_coordinator::InProgress;
use kvorum_stats::{Counter, Stats};
use parking_lot::Mutex;

/// Two looks are at least this far apart.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// Rates of gets and puts.
#[derive(Default)]
pub(crate) struct RequestRates {
    seen: Mutex<Option<Seen>>,
}

/// The last look, and the rates since the look before.
#[derive(Clone, Copy)]
struct Seen {
    at: Duration,
    gets: Requests,
    puts: Requests,
    get_rates: Rates,
    put_rates: Rates,
}

/// Requests of one kind at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Requests {
    ended: u64,
    rejected: u64,
    active: u64,
}

/// Requests a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rates {
    arrived: u64,
    ended: u64,
    rejected: u64,
}

impl Requests {
    fn rates_since(&self, before: &Self, elapsed: Duration) -> Rates {
        let micros = elapsed.as_micros().max(1);
        let per_second = |events: u64| {
            let rate = (u128::from(events) * 1_000_000 + micros / 2) / micros;
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        let ended = self.ended.saturating_sub(before.ended);
        let rejected = self.rejected.saturating_sub(before.rejected);
        let arrived = (ended + self.active).saturating_sub(before.active);
        Rates {
            arrived: per_second(arrived),
            ended: per_second(ended),
            rejected: per_second(rejected),
        }
    }
}

/// Counters of all gets, those of data types among them.
fn gets(stats: &Stats) -> [&Counter; 5] {
    let Stats {
        node_gets,
        counter,
        set,
        map,
        hll,
        ..
    } = stats;
    [node_gets, &counter.gets, &set.gets, &map.gets, &hll.gets]
}

/// Counters of all puts, those of data types and the write-once ones among them.
fn puts(stats: &Stats) -> [&Counter; 6] {
    let Stats {
        node_puts,
        write_once_puts,
        counter,
        set,
        map,
        hll,
        ..
    } = stats;
    [
        node_puts,
        write_once_puts,
        &counter.puts,
        &set.puts,
        &map.puts,
        &hll.puts,
    ]
}

fn total<const N: usize>(counters: [&Counter; N]) -> u64 {
    counters.into_iter().map(Counter::total).sum()
}

/// Requests that were under way at some time in the last minute: the requests that ended in it, and those
/// that have not ended.
fn active_in_minute<const N: usize>(counters: [&Counter; N], active: usize, now: Duration) -> u64 {
    let ended = counters.into_iter().map(|it| it.last_minute(now));
    ended.sum::<u64>() + active as u64
}

impl RequestRates {
    /// Reads the present counts of requests; called about once a second.
    pub(crate) fn look(&self, stats: &Stats, in_progress: InProgress, now: Duration) {
        let mut seen = self.seen.lock();
        let before = *seen;
        if before.is_some_and(|before| now.saturating_sub(before.at) < BETWEEN_LOOKS) {
            return;
        }
        let gets = Requests {
            ended: total(gets(stats)),
            rejected: stats.node_get_fsm_rejected.total(),
            active: in_progress.gets as u64,
        };
        let puts = Requests {
            ended: total(puts(stats)),
            rejected: stats.node_put_fsm_rejected.total(),
            active: in_progress.puts as u64,
        };
        let rates = |before: Seen| {
            let elapsed = now.saturating_sub(before.at);
            let get_rates = gets.rates_since(&before.gets, elapsed);
            (get_rates, puts.rates_since(&before.puts, elapsed))
        };
        let (get_rates, put_rates) = before.map(rates).unwrap_or_default();
        *seen = Some(Seen {
            at: now,
            gets,
            puts,
            get_rates,
            put_rates,
        });
    }

    /// The figures under Riak's names. Rates are there once a second has passed.
    pub(crate) fn values(
        &self,
        stats: &Stats,
        in_progress: InProgress,
        now: Duration,
    ) -> Vec<(&'static str, u64)> {
        let seen = *self.seen.lock();
        let rates = |of: fn(&Seen) -> Rates| seen.as_ref().map(of).unwrap_or_default();
        let (get_rates, put_rates) = (rates(|it| it.get_rates), rates(|it| it.put_rates));
        let active_gets = active_in_minute(gets(stats), in_progress.gets, now);
        let active_puts = active_in_minute(puts(stats), in_progress.puts, now);
        vec![
            ("node_get_fsm_active_60s", active_gets),
            ("node_get_fsm_in_rate", get_rates.arrived),
            ("node_get_fsm_out_rate", get_rates.ended),
            ("node_get_fsm_rejected", get_rates.rejected),
            ("node_put_fsm_active_60s", active_puts),
            ("node_put_fsm_in_rate", put_rates.arrived),
            ("node_put_fsm_out_rate", put_rates.ended),
            ("node_put_fsm_rejected", put_rates.rejected),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A node whose gets and puts ended and are under way.
    #[derive(Default)]
    struct World {
        stats: Stats,
        rates: RequestRates,
        in_progress: InProgress,
    }

    impl World {
        fn look(&self, now: Duration) -> BTreeMap<&'static str, u64> {
            self.rates.look(&self.stats, self.in_progress, now);
            let values = self.rates.values(&self.stats, self.in_progress, now);
            values.into_iter().collect()
        }
    }

    #[test]
    fn all_names_are_zero_on_an_idle_node_and_each_moves() {
        let mut world = World::default();
        assert!(world.look(at(1)).values().all(|value| *value == 0));
        let (now, stats) = (at(3), &world.stats);
        for gets in gets(stats) {
            gets.add(now, 2);
        }
        for puts in puts(stats) {
            puts.add(now, 4);
        }
        stats.node_get_fsm_rejected.add(now, 6);
        stats.node_put_fsm_rejected.add(now, 8);
        world.in_progress.gets = 6;
        world.in_progress.puts = 2;
        let expected = [
            ("node_get_fsm_active_60s", 10 + 6),
            ("node_get_fsm_in_rate", 8),
            ("node_get_fsm_out_rate", 5),
            ("node_get_fsm_rejected", 3),
            ("node_put_fsm_active_60s", 24 + 2),
            ("node_put_fsm_in_rate", 13),
            ("node_put_fsm_out_rate", 12),
            ("node_put_fsm_rejected", 4),
        ];
        assert_eq!(world.look(now), BTreeMap::from(expected));
    }

    #[test]
    fn rates_end_with_the_load_and_a_minute_with_its_requests() {
        let mut world = World::default();
        world.look(at(1));
        world.stats.node_gets.add(at(1), 50);
        world.in_progress.gets = 10;
        assert_eq!(world.look(at(2))["node_get_fsm_in_rate"], 60);
        // The ten end, and nothing new arrives.
        world.stats.node_gets.add(at(2), 10);
        world.in_progress.gets = 0;
        let values = world.look(at(3));
        assert_eq!(values["node_get_fsm_in_rate"], 0);
        assert_eq!(values["node_get_fsm_out_rate"], 10);
        assert_eq!(values["node_get_fsm_active_60s"], 60);
        assert_eq!(world.look(at(4))["node_get_fsm_out_rate"], 0);
        assert_eq!(world.look(at(100))["node_get_fsm_active_60s"], 0);
    }

    #[test]
    fn looks_of_collectors_between_two_seconds_change_no_rate() {
        let world = World::default();
        world.look(at(1));
        world.stats.node_puts.add(at(1), 7);
        let seen = world.look(at(2))["node_put_fsm_out_rate"];
        world.stats.node_puts.add(at(2), 100);
        let between = at(2) + Duration::from_millis(300);
        assert_eq!((seen, world.look(between)["node_put_fsm_out_rate"]), (7, 7));
        assert_eq!(world.look(at(4))["node_put_fsm_out_rate"], 50);
    }
}
