//! A small file in two copies, written one after the other: damage to one copy costs nothing, and a crash
//! between the writes leaves one intact. A reader takes the newer copy that belongs to its store.
//!
//! The copies decide the identity of a store. A copy of another store, restored into the wrong
//! directory, may be the newer one; using it would lose all later writes of both stores. So each
//! copy names its store, and [`choose_copy`] compares the name with the opener's record.

use std::path::Path;

use kvorum_disk::{Disk, DiskError, Operation, create_directory_durably, replace_file};

use crate::{BackendError, Belonging, ErrorKind, LOST_NAME, Result, StoreId};

/// The description of a store in a copy.
pub trait StoreCopy: Clone + PartialEq {
    /// Number of writes of the file.
    fn generation(&self) -> u64;
    /// The identity of the store's contents.
    fn identity(&self) -> u64;
    /// The identity before the last erasure.
    fn erased(&self) -> u64;
    /// The label of the store, as in [`Belonging::label`]; empty if an earlier version wrote the
    /// copy.
    fn label(&self) -> &str;
}

/// A copy as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadCopy<T> {
    /// Missing file.
    Missing,
    /// Its bytes are not those written.
    Damaged,
    /// Intact file, which may belong to any store.
    Whole(T),
}

/// A copy that belongs to another store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignCopy {
    /// The name of its file.
    pub name: &'static str,
    /// A description of the store that it belongs to.
    pub of: String,
}

/// The valid copy, and the defects of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenCopy<T> {
    /// The newest whole copy that belongs to the store.
    pub content: Option<T>,
    /// Names of damaged copies.
    pub damaged: Vec<&'static str>,
    /// Copies of other stores.
    pub foreign: Vec<ForeignCopy>,
    /// Names of missing copies.
    pub missing: Vec<&'static str>,
    /// True when the copies have to be rewritten.
    pub is_uneven: bool,
    /// The reason why no copy is valid although there are files; the text names them.
    pub refusal: Option<String>,
}

/// Chooses between the two copies in `directory`. `is_witnessed` is called only if nothing else
/// decides: it is true when another file of the directory has the store's identity.
///
/// # Errors
/// Those of `is_witnessed`.
pub fn choose_copy<T: StoreCopy>(
    directory: &Path,
    names: [&'static str; 2],
    copies: [ReadCopy<T>; 2],
    belonging: &Belonging,
    is_witnessed: &dyn Fn(u64) -> Result<bool>,
) -> Result<ChosenCopy<T>> {
    let mut chosen = ChosenCopy {
        content: None,
        damaged: Vec::new(),
        foreign: Vec::new(),
        missing: Vec::new(),
        is_uneven: false,
        refusal: None,
    };
    let mut whole = Vec::new();
    for (name, copy) in names.into_iter().zip(copies) {
        match copy {
            ReadCopy::Missing => chosen.missing.push(name),
            ReadCopy::Damaged => chosen.damaged.push(name),
            ReadCopy::Whole(copy) => whole.push((name, copy)),
        }
    }
    let is_any_there = chosen.missing.len() < names.len();
    let mut own = belonging_ones(whole, belonging, &mut chosen.foreign);
    if let [one, other] = &own[..]
        && !is_same_store(&one.1, &other.1)
    {
        let witnessed = [
            is_witnessed(one.1.identity())?,
            is_witnessed(other.1.identity())?,
        ];
        match witnessed {
            [true, false] => put_aside(&mut own, 1, &mut chosen.foreign),
            [false, true] => put_aside(&mut own, 0, &mut chosen.foreign),
            _ => {
                chosen.refusal = Some(format!(
                    "{} and {} in {} belong to two stores ({:#018x} and {:#018x}), and neither is \
                     certainly the store of this directory: put back the copy that was here",
                    names[0],
                    names[1],
                    directory.display(),
                    one.1.identity(),
                    other.1.identity()
                ));
                return Ok(chosen);
            }
        }
    }
    chosen.is_uneven = own.len() < names.len() || own[0].1 != own[1].1;
    let newest = own.into_iter().max_by_key(|(_, copy)| copy.generation());
    chosen.content = newest.map(|(_, copy)| copy);
    if chosen.content.is_none() && is_any_there {
        chosen.refusal = Some(refusal(directory, names, &chosen));
    }
    Ok(chosen)
}

/// The copies that may belong to the store; the others are added to the foreign ones.
fn belonging_ones<T: StoreCopy>(
    whole: Vec<(&'static str, T)>,
    belonging: &Belonging,
    foreign: &mut Vec<ForeignCopy>,
) -> Vec<(&'static str, T)> {
    let is_of_another = |copy: &T| {
        let (label, own) = (copy.label(), &belonging.label[..]);
        !label.is_empty() && !own.is_empty() && label != own
    };
    let is_known = |copy: &T| belonging.identity.is_some_and(|it| is_or_was(copy, it));
    let is_labelled = |copy: &T| !belonging.label.is_empty() && copy.label() == belonging.label;
    let mut own = Vec::new();
    for (name, copy) in whole {
        if is_of_another(&copy) {
            foreign.push(ForeignCopy {
                name,
                of: whose(&copy),
            });
        } else {
            own.push((name, copy));
        }
    }
    // The known identity counts more than the label alone: another node has the same partitions.
    for is_it in [&is_known as &dyn Fn(&T) -> bool, &is_labelled] {
        if let [one, other] = &own[..]
            && !is_same_store(&one.1, &other.1)
        {
            match [is_it(&one.1), is_it(&other.1)] {
                [true, false] => put_aside(&mut own, 1, foreign),
                [false, true] => put_aside(&mut own, 0, foreign),
                _ => {}
            }
        }
    }
    own
}

fn put_aside<T: StoreCopy>(
    own: &mut Vec<(&'static str, T)>,
    at: usize,
    foreign: &mut Vec<ForeignCopy>,
) {
    let (name, copy) = own.remove(at);
    foreign.push(ForeignCopy {
        name,
        of: whose(&copy),
    });
}

/// True when a copy belongs to the store of an identity, or had that identity before an erasure.
fn is_or_was<T: StoreCopy>(copy: &T, identity: StoreId) -> bool {
    copy.identity() == identity.0 || copy.erased() == identity.0
}

/// True when two copies belong to one store, even if one of them is from before an erasure.
fn is_same_store<T: StoreCopy>(one: &T, other: &T) -> bool {
    one.identity() == other.identity()
        || one.erased() == other.identity()
        || other.erased() == one.identity()
}

fn whose<T: StoreCopy>(copy: &T) -> String {
    match copy.label() {
        "" => format!("the store {:#018x}", copy.identity()),
        label => format!("the store {label} ({:#018x})", copy.identity()),
    }
}

fn refusal<T>(directory: &Path, names: [&str; 2], chosen: &ChosenCopy<T>) -> String {
    let of_name = |name: &str| {
        if let Some(foreign) = chosen.foreign.iter().find(|it| it.name == name) {
            return format!("{name} belongs to {}", foreign.of);
        }
        match chosen.damaged.contains(&name) {
            true => format!("{name} is damaged"),
            false => format!("{name} is missing"),
        }
    };
    let [one, other] = names.map(of_name);
    let directory = directory.display();
    let remedy = match chosen.foreign.is_empty() {
        true => "restore one of the two from a backup of this directory",
        false => "put back the directory, or the files, that belong here",
    };
    format!("{directory} has no copy of its own: {one}, {other}; {remedy}")
}

/// Moves a copy of another store below `lost/`, where it is kept for the operator. On a full disk
/// it stays, and the next opening skips it again.
///
/// # Errors
/// Those of the disk, except for a full one.
pub fn set_copy_aside(disk: &dyn Disk, directory: &Path, name: &str) -> Result<()> {
    let lost = directory.join(LOST_NAME);
    let moved = create_directory_durably(disk, &lost)
        .and_then(|()| disk.rename(&directory.join(name), &lost.join(format!("{name}.foreign"))))
        .and_then(|()| disk.sync_directory(&lost))
        .and_then(|()| disk.sync_directory(directory));
    match moved {
        Err(error) if error.kind() != kvorum_disk::ErrorKind::NoSpace => Err((&error).into()),
        _ => Ok(()),
    }
}

/// The progress of a write of two copies.
#[derive(Debug)]
pub enum Written {
    /// Both are durable.
    Both,
    /// The change is durable, and the second copy is unchanged or missing.
    First(BackendError),
    /// Both are unchanged.
    None(BackendError),
    /// The state is unknown.
    Unknown(BackendError),
}

impl Written {
    /// An error unless both are durable.
    pub fn both(self) -> Result<()> {
        match self {
            Self::Both => Ok(()),
            Self::First(error) | Self::None(error) | Self::Unknown(error) => Err(error),
        }
    }
}

/// Writes both.
pub fn write_two_copies(
    disk: &dyn Disk,
    directory: &Path,
    names: [&str; 2],
    bytes: &[u8],
) -> Written {
    let put = |name: &str| replace_file(disk, &directory.join(name), bytes);
    // Space runs out before the old file is replaced, or when its directory is synced after that.
    let is_unchanged = |it: &DiskError| {
        it.kind() == kvorum_disk::ErrorKind::NoSpace && it.operation() != Operation::SyncDirectory
    };
    match put(names[0]) {
        Err(error) if is_unchanged(&error) => return Written::None((&error).into()),
        Err(error) => return Written::Unknown((&error).into()),
        Ok(()) => {}
    }
    match put(names[1]) {
        Ok(()) => Written::Both,
        Err(error) => Written::First((&error).into()),
    }
}

/// Writes both when a store is opened. A node has to start on a full disk: then the files stay
/// unchanged, are made durable as they were read, and are rewritten with the next change.
pub fn settle_two_copies(
    disk: &dyn Disk,
    directory: &Path,
    names: [&str; 2],
    bytes: &[u8],
) -> Result<()> {
    match write_two_copies(disk, directory, names, bytes) {
        Written::First(error) | Written::None(error) if error.kind() == ErrorKind::Full => {
            // Their bytes were synced before they got their names.
            let synced = disk.sync_directory(directory);
            synced.map_err(|error| BackendError::from(&error))
        }
        written => written.both(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Copy {
        generation: u64,
        identity: u64,
        erased: u64,
        label: &'static str,
    }

    impl StoreCopy for Copy {
        fn generation(&self) -> u64 {
            self.generation
        }

        fn identity(&self) -> u64 {
            self.identity
        }

        fn erased(&self) -> u64 {
            self.erased
        }

        fn label(&self) -> &str {
            self.label
        }
    }

    fn copy(generation: u64, identity: u64, label: &'static str) -> Copy {
        Copy {
            generation,
            identity,
            erased: 0,
            label,
        }
    }

    const NAMES: [&str; 2] = ["a", "b"];

    fn choose(copies: [Copy; 2], belonging: &Belonging, witnessed: &[u64]) -> ChosenCopy<Copy> {
        let copies = copies.map(ReadCopy::Whole);
        let is_witnessed = |identity| Ok(witnessed.contains(&identity));
        choose_copy(Path::new("d"), NAMES, copies, belonging, &is_witnessed).unwrap()
    }

    fn known(label: &str, identity: u64) -> Belonging {
        Belonging {
            label: label.to_owned(),
            identity: (identity > 0).then_some(StoreId(identity)),
        }
    }

    /// Regression: a copy of another store was used because it was newer, and all later writes of
    /// both stores were lost.
    #[test]
    fn a_newer_copy_of_another_store_never_counts() {
        for (own, other, belonging, witnessed) in [
            // By label, by the known identity, by both, and by the other files of the directory.
            (copy(3, 7, "1"), copy(9, 8, "2"), known("1", 0), &[][..]),
            (copy(3, 7, ""), copy(9, 8, "2"), known("1", 0), &[]),
            (copy(3, 7, "1"), copy(9, 8, ""), known("1", 0), &[]),
            (copy(3, 7, ""), copy(9, 8, ""), known("1", 7), &[]),
            (copy(3, 7, "1"), copy(9, 8, "1"), known("1", 7), &[]),
            (copy(3, 7, "1"), copy(9, 8, "2"), known("1", 7), &[]),
            (copy(3, 7, ""), copy(9, 8, ""), known("1", 0), &[7]),
            (copy(3, 7, ""), copy(9, 8, ""), Belonging::default(), &[7]),
        ] {
            let chosen = choose([own.clone(), other.clone()], &belonging, witnessed);
            assert_eq!(chosen.content.as_ref(), Some(&own), "{belonging:?}");
            assert_eq!(chosen.foreign[0].name, "b");
            assert!(chosen.is_uneven && chosen.refusal.is_none());
            let chosen = choose([other, own.clone()], &belonging, witnessed);
            assert_eq!(chosen.content, Some(own), "{belonging:?}");
            assert_eq!(chosen.foreign[0].name, "a");
        }
    }

    #[test]
    fn where_nothing_decides_no_copy_counts() {
        for witnessed in [&[][..], &[7, 8]] {
            let copies = [copy(3, 7, ""), copy(9, 8, "")];
            let chosen = choose(copies, &known("1", 0), witnessed);
            assert_eq!(chosen.content, None);
            assert!(chosen.refusal.unwrap().contains("belong to two stores"));
        }
    }

    #[test]
    fn an_exchanged_directory_is_refused_by_its_label_and_named() {
        let copies = [copy(3, 8, "2"), copy(3, 8, "2")];
        let chosen = choose(copies, &known("1", 7), &[]);
        assert_eq!(chosen.content, None);
        let refusal = chosen.refusal.unwrap();
        assert!(refusal.contains("a belongs to the store 2"), "{refusal}");
        assert!(refusal.contains("put back the directory"), "{refusal}");
        // Without labels its content is used, and the caller compares the identity.
        let copies = [copy(3, 8, ""), copy(3, 8, "")];
        let chosen = choose(copies, &known("1", 7), &[]);
        assert_eq!(chosen.content.unwrap().identity, 8);
    }

    #[test]
    fn an_erasure_and_a_write_that_was_cut_short_leave_one_store() {
        let erased = Copy {
            erased: 7,
            ..copy(4, 9, "1")
        };
        for belonging in [known("1", 7), known("1", 9), known("1", 0)] {
            let chosen = choose([erased.clone(), copy(3, 7, "1")], &belonging, &[]);
            assert_eq!(chosen.content.as_ref(), Some(&erased));
            assert!(chosen.foreign.is_empty() && chosen.is_uneven);
        }
        let chosen = choose([copy(4, 7, "1"), copy(3, 7, "")], &known("1", 7), &[]);
        assert_eq!(chosen.content.unwrap().generation, 4);
    }

    #[test]
    fn without_a_whole_copy_the_refusal_names_both_files() {
        let none = |copies| {
            choose_copy::<Copy>(Path::new("d"), NAMES, copies, &known("1", 7), &|_| Ok(true))
                .unwrap()
        };
        let chosen = none([ReadCopy::Damaged, ReadCopy::Missing]);
        let refusal = chosen.refusal.unwrap();
        assert!(refusal.contains("a is damaged, b is missing"), "{refusal}");
        let chosen = none([ReadCopy::Missing, ReadCopy::Missing]);
        assert_eq!((chosen.refusal, chosen.content), (None, None));
    }
}
