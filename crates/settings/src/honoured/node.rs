//! Keys of the node, its directories and its partitions.

use crate::key::{Change, Key, key, own_key};
use crate::kind::{Choice, Kind};
use crate::settings::StorageBackend;

/// Values of `storage_backend` for a single engine, also as one of several backends.
pub(super) const ENGINES: [Choice; 6] = [
    Choice("bitcask", |settings| {
        settings.node.storage_backend = StorageBackend::Bitcask;
    }),
    Choice("leveldb", |settings| {
        settings.node.storage_backend = StorageBackend::Leveldb;
    }),
    Choice("leveled", |settings| {
        settings.node.storage_backend = StorageBackend::Leveled;
    }),
    Choice("hanoidb", |settings| {
        settings.node.storage_backend = StorageBackend::Hanoidb;
    }),
    Choice("innostore", |settings| {
        settings.node.storage_backend = StorageBackend::Innostore;
    }),
    Choice("memory", |settings| {
        settings.node.storage_backend = StorageBackend::Memory;
    }),
];

pub(super) const KEYS: &[Key] = &[
    key(
        "nodename",
        Kind::NodeName(|settings, value| settings.node.nodename = value),
        "kvorum@127.0.0.1",
        "The node's name, as other nodes, logs and `/stats` show it. \
         Give each node of a cluster its own.",
    ),
    own_key(
        "cluster_name",
        Kind::Word(|settings, value| settings.node.cluster_name = value),
        "kvorum",
        "The cluster's name. All its nodes need the same: a node of another name is refused, so \
         that a mistyped address joins no foreign cluster.",
    ),
    own_key(
        "worker_threads",
        Kind::IntegerOr("auto", 1..=1024, |settings, value| {
            settings.node.worker_threads = value;
        }),
        "auto",
        "The number of threads that answer requests; `auto` is one for each core that the process \
         may use. If several nodes share a machine, give each its part of the cores: a node with \
         more threads than cores loses much time to switching between them.",
    ),
    Key {
        change: Change::Fixed,
        ..key(
            "ring_size",
            Kind::PowerOfTwo(1..=4096, |settings, value| settings.node.ring_size = value),
            "64",
            "The number of partitions of the key space. Choose at least two for each core of the \
             largest cluster you expect; more cost memory and open files on every node.",
        )
    },
    key(
        "ring.state_dir",
        Kind::Path(|settings, value| settings.node.ring_state_dir = value),
        "$(platform_data_dir)/ring",
        "The directory of the agreed state of the cluster: its name, members, ring and bucket \
         types.",
    ),
    key(
        "platform_data_dir",
        Kind::Path(|settings, value| settings.node.data_dir = value),
        "./data",
        "The directory for everything that must survive a restart. Other paths refer to it as \
         `$(platform_data_dir)`. One server at a time may use it.",
    ),
    key(
        "platform_log_dir",
        Kind::Path(|settings, value| settings.node.log_dir = value),
        "./log",
        "The directory for log files. Other paths refer to it as `$(platform_log_dir)`.",
    ),
    key(
        "storage_backend",
        Kind::Choice(&[
            ENGINES[0],
            ENGINES[1],
            ENGINES[2],
            ENGINES[3],
            ENGINES[4],
            ENGINES[5],
            Choice("multi", |settings| {
                settings.node.storage_backend = StorageBackend::Multi;
            }),
            Choice("prefix_multi", |settings| {
                settings.node.storage_backend = StorageBackend::Multi;
                settings.multi.goes_by_prefix = true;
            }),
        ]),
        "bitcask",
        "The engine that stores objects. `bitcask` keeps all keys in memory and values in \
         append-only files. `leveldb` keeps sorted tables that are merged in the background, \
         needs little memory, and has secondary indexes. `leveled` is the same for keys and \
         heads, and keeps bodies in a journal, where merges do not move them. `hanoidb` is like \
         `leveldb`, but each write does a bounded share of merging, and none waits for a merge. \
         `innostore` is a tree of pages with secondary indexes, for ranges and for data that is \
         read far more than written. `memory` keeps everything in memory and loses it at a stop. \
         `multi` mixes several of them on one node (`multi_backend.NAME.storage_backend` declares \
         each), and the property `backend` of a bucket or its type chooses one. With \
         `prefix_multi` a prefix of a bucket's name may choose it as well \
         (`multi_backend.NAME.bucket_prefix`).",
    ),
    own_key(
        "colocated_replicas",
        Kind::Flag(|settings, value| settings.node.colocated_replicas = value),
        "off",
        "Lets a cluster with fewer nodes than `n_val` keep several replicas of an object on one \
         node, as Riak does. Off, an object has at most one replica on each node: further copies \
         on the same disks cost as much as elsewhere and protect little. On, a node also stands \
         in for replicas of keys of which it has a replica itself: a node that reaches no other \
         takes writes at any `w`, and has the only copies.",
    ),
];
