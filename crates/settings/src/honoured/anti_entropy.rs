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
        "Whether replicas find and mend their differences without reads (`active`). \
         With `passive` this node keeps no trees and compares nothing; other nodes leave its replicas out, \
         so that nothing is known to be complete. \
         Trees take about a byte of memory for each key of a vnode.",
    ),
    key(
        "tictacaae_exchangetick",
        Kind::Duration(
            Unit::Milliseconds,
            Duration::from_secs(1)..,
            |settings, value| settings.anti_entropy.interval = value,
        ),
        "480000",
        "How often the replicas of each preference list are compared. \
         Where nothing differs that is one question to each.",
    ),
    key(
        "anti_entropy.concurrency_limit",
        Kind::Integer(1..=256, |settings, value| {
            settings.anti_entropy.exchanges_max = value;
        }),
        "2",
        "How many exchanges this node has under way at once.",
    ),
    key(
        "tictacaae_maxresults",
        Kind::Integer(1..=65_536, |settings, value| {
            settings.anti_entropy.leaves_max = value;
        }),
        "64",
        "How many differing leaves of a tree one exchange looks into. \
         What is left is looked into by the next one.",
    ),
    key(
        "tictacaae_repairloops",
        Kind::Integer(0..=1_000, |settings, value| {
            settings.anti_entropy.loops_max = value;
        }),
        "4",
        "How many exchanges follow at once on one that found differences, \
         each for the bucket and the time in which the one before found them.",
    ),
    key(
        "tictacaae_rebuildwait",
        Kind::Integer(1..=87_600, |settings, value| {
            settings.anti_entropy.rebuild_wait = Duration::from_secs(value * 3_600);
        }),
        "336",
        "After how many hours the trees of a vnode are built again from what is stored, \
         which finds what a store has lost without noticing.",
    ),
    key(
        "tictacaae_rebuilddelay",
        Kind::Duration(Unit::Seconds, Duration::ZERO.., |settings, value| {
            settings.anti_entropy.rebuild_delay = value;
        }),
        "345600",
        "The most that is added to `tictacaae_rebuildwait`, by chance, \
         so that vnodes are not all rebuilt at the same time.",
    ),
    own_key(
        "tictacaae_repairs_per_second_max",
        Kind::IntegerOr("unlimited", 1..=1_000_000, |settings, value| {
            settings.anti_entropy.repairs_per_second_max = value;
        }),
        "200",
        "How many keys a second the exchanges of this node have mended, all together. \
         Mending a key reads it from all of its replicas.",
    ),
];
