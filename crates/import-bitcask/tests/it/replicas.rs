//! Copies of an object in several partitions.

use crate::basho::{CaskFile, key};
use crate::riak_objects::{dotted, object_v0, object_v1, plain};
use crate::world::World;

/// Writes one object to each partition, with or without hint files.
fn spread(world: &World, has_hints: bool, objects: &[Vec<u8>]) {
    for (partition, object) in (0..).zip(objects) {
        let mut file = CaskFile::default();
        file.put(&key("b", "k"), object);
        let write = if has_hints {
            World::closed
        } else {
            World::data
        };
        write(world, partition, 1, &file);
    }
}

#[test]
fn equal_copies_are_put_once() {
    for has_hints in [false, true] {
        let world = World::new();
        let object = object_v1(&[("a", 1)], &[plain("v")]);
        spread(&world, has_hints, &vec![object; 3]);
        let summary = world.import().unwrap();
        assert_eq!(world.server.store.lock().puts, 1);
        assert_eq!(world.values("b", "k"), ["v"]);
        let counts = summary.counts;
        assert_eq!((counts.equal_copies, counts.merged_objects), (2, 0));
    }
}

#[test]
fn a_copy_that_missed_a_write_is_superseded() {
    let old = object_v1(&[("a", 1)], &[dotted("old", "a", 1)]);
    let new = object_v0(&[("a", 1), ("b", 1)], &[dotted("new", "b", 1)]);
    for objects in [[old.clone(), new.clone()], [new, old]] {
        let world = World::new();
        spread(&world, false, &objects);
        let summary = world.import().unwrap();
        assert_eq!(world.values("b", "k"), ["new"]);
        assert_eq!(summary.counts.merged_objects, 1);
    }
}

#[test]
fn concurrent_copies_become_siblings_and_what_both_have_stays_once() {
    let world = World::new();
    let (x, y, z) = (
        dotted("x", "a", 1),
        dotted("y", "b", 1),
        dotted("z", "c", 1),
    );
    let left = object_v1(&[("a", 1), ("b", 1)], &[x.clone(), y]);
    let right = object_v1(&[("a", 1), ("c", 1)], &[x, z]);
    spread(&world, true, &[left, right]);
    world.import().unwrap();
    assert_eq!(world.values("b", "k"), ["x", "y", "z"]);
}

/// Each node is imported separately, with its own state, so only clocks can order the objects.
#[test]
fn nodes_imported_one_after_the_other_agree_in_any_order() {
    let old = object_v1(&[("a", 1)], &[dotted("old", "a", 1)]);
    let new = object_v1(&[("a", 1), ("b", 1)], &[dotted("new", "b", 1)]);
    for objects in [[&old, &new, &old], [&new, &old, &new]] {
        let mut world = World::new();
        for (node, object) in objects.into_iter().enumerate() {
            let mut file = CaskFile::default();
            file.put(&key("b", "k"), object);
            world.write(&format!("node{node}/0/1.bitcask.data"), &file.data);
            world.options.shared.directories = vec![format!("node{node}").into()];
            world.options.shared.state_directory = format!("state{node}").into();
            world.import().unwrap();
        }
        assert_eq!(world.values("b", "k"), ["new"]);
    }
}

#[test]
fn a_copy_that_cannot_be_read_is_made_good_by_another() {
    let world = World::new();
    let object = object_v1(&[("a", 1)], &[plain("v")]);
    for partition in 0..2 {
        let mut file = CaskFile::default();
        file.put(&key("b", "k"), &object);
        let hint = file.hint();
        if partition == 0 {
            let last = file.data.len() - 1;
            file.data[last] ^= 1;
        }
        world.data(partition, 1, &file);
        let directory = crate::partitions::partition(partition);
        world.write(&format!("riak/{directory}/1.bitcask.hint"), &hint);
    }
    let summary = world.import().unwrap();
    assert_eq!(world.values("b", "k"), ["v"]);
    assert_eq!(summary.counts.unreadable, 1);
    assert_eq!(summary.counts.objects, 1);
}
