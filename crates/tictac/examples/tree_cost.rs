//! Measures the cost of a tree: of each write, in memory, as a file, and of a merge of two trees.
//!
//! Run with `cargo run --release -p kvorum-tictac --example tree_cost [KEYS]`.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measuring tool reads the clock, prints, and gives up when something fails"
)]

use std::time::Instant;

use kvorum_encoding::checksum;
use kvorum_tictac::{LeafHash, Stamp, Tree, TreeSize};

fn key(number: u32) -> String {
    format!("a_bucket/key_number_{number:010}")
}

fn hash(key: &str, counter: u64) -> LeafHash {
    LeafHash::new(
        key.as_bytes(),
        [(7, counter), (8, 1), (9, 2)],
        counter,
        false,
    )
}

fn print_each(what: &str, began: Instant, times: u32) {
    let nanos = began.elapsed().as_nanos() / u128::from(times.max(1));
    println!("{what:34} {nanos:>10} ns");
}

fn main() {
    let keys: u32 = std::env::args()
        .nth(1)
        .map_or(1_000_000, |it| it.parse().unwrap());
    let size = TreeSize::for_keys(u64::from(keys));
    let names: Vec<(u32, String)> = (0..keys)
        .map(key)
        .map(|it| (checksum(it.as_bytes()), it))
        .collect();

    let mut tree = Tree::new(size);
    let began = Instant::now();
    for (segment, key) in &names {
        tree.change(*segment, None, Some(hash(key, 1)));
    }
    print_each("a new key, three dots", began, keys);

    let began = Instant::now();
    for (segment, key) in &names {
        tree.change(*segment, Some(hash(key, 1)), Some(hash(key, 2)));
    }
    print_each("an overwrite, three dots", began, keys);

    let stamp = Stamp {
        store: 1,
        sequence: 2,
    };
    let began = Instant::now();
    let bytes = tree.encode(stamp);
    print_each("to a file", began, 1);
    let began = Instant::now();
    let (read, _) = Tree::decode(&bytes).unwrap();
    print_each("from a file", began, 1);
    let began = Instant::now();
    let merged = read.merged(&tree);
    print_each("merged with another", began, 1);
    println!("{} branches, {} keys", size.branches(), merged.keys() / 2);
    println!(
        "{} bytes of memory, {} in a file",
        tree.memory_bytes(),
        bytes.len()
    );
}
