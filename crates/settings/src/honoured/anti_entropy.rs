//! Keys of anti-entropy: one implementation, under the names of both of Riak's.

use std::time::Duration;

use crate::duration::Unit;
use crate::key::{Key, key, own_key};
use crate::kind::{Choice, Kind};

pub(super) const KEYS: &[Key] = &[
    key(
        "tictacaae_active",
        Kind::Choice(&[
            Choice("active", |settings| settings.anti_entropy.is_active = true),
            Choice("passive", |settings| {
                settings.anti_entropy.is_active = false;
            }),
        ]),
        "passive",
        "Finds and mends differences between replicas without reads (`active`). With `passive` \
         this node keeps no trees and compares nothing; other nodes leave out its replicas, so \
         that no comparison is complete. Trees take about a byte of memory for each key of a \
         vnode.",
    ),
    key(
        "tictacaae_exchangetick",
        Kind::Duration(
            Unit::Milliseconds,
            Duration::from_secs(1)..,
            |settings, value| settings.anti_entropy.interval = value,
        ),
        "480000",
        "The time between comparisons of the replicas of each preference list. If nothing \
         differs, a comparison is one question to each replica.",
    ),
    key(
        "anti_entropy.concurrency_limit",
        Kind::Integer(1..=256, |settings, value| {
            settings.anti_entropy.exchanges_max = value;
        }),
        "2",
        "The number of exchanges that this node has under way at once.",
    ),
    key(
        "tictacaae_maxresults",
        Kind::Integer(1..=65_536, |settings, value| {
            settings.anti_entropy.leaves_max = value;
        }),
        "64",
        "The number of differing leaves of a tree that one exchange compares by keys. The next \
         exchange takes the others.",
    ),
    key(
        "tictacaae_repairloops",
        Kind::Integer(0..=1_000, |settings, value| {
            settings.anti_entropy.loops_max = value;
        }),
        "4",
        "The number of exchanges that follow at once on one that found differences. Each compares \
         the bucket and the times in which the one before found them.",
    ),
    key(
        "tictacaae_rebuildwait",
        Kind::Integer(1..=87_600, |settings, value| {
            settings.anti_entropy.rebuild_wait = Duration::from_secs(value * 3_600);
        }),
        "336",
        "The hours after which the trees of a vnode are built again from its entries, which finds \
         entries that a store has lost without a report.",
    ),
    key(
        "tictacaae_rebuilddelay",
        Kind::Duration(Unit::Seconds, Duration::ZERO.., |settings, value| {
            settings.anti_entropy.rebuild_delay = value;
        }),
        "345600",
        "The greatest random addition to `tictacaae_rebuildwait`, so that vnodes are not all \
         rebuilt at the same time.",
    ),
    own_key(
        "tictacaae_repairs_per_second_max",
        Kind::IntegerOr("unlimited", 1..=1_000_000, |settings, value| {
            settings.anti_entropy.repairs_per_second_max = value;
        }),
        "200",
        "The number of keys a second that all exchanges of this node together mend. To mend a key \
         is to read it from all of its replicas.",
    ),
];
