//! The model of sets and maps: a list of updates and of the updates that each had seen.
//!
//! A replica's value follows from the updates that it has. An update writes a few places: the
//! fields on its path, and the member, flag, tally or register at its end. A place has the values
//! written there that no other update of the replica has overwritten or removed.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use kvorum_data_types::{
    Actor, Clock, Dot, FieldChange, FieldKind, FieldName, FieldOperation, FieldValue, SetChange,
};

type Path = Vec<FieldName>;

/// A place that updates write to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Field(Path),
    Member(Path, Bytes),
    Flag(Path),
    Tally(Path, Actor),
    Register(Path),
}

impl Place {
    fn path(&self) -> &Path {
        match self {
            Self::Field(path)
            | Self::Member(path, _)
            | Self::Flag(path)
            | Self::Tally(path, _)
            | Self::Register(path) => path,
        }
    }
}

/// The content that an update left in a place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Written {
    Mark,
    Sum(i128),
    Value(u64, Bytes),
}

/// The area that an update removes, and the writes there that count.
#[derive(Clone, Debug)]
struct Removed {
    area: Area,
    of: Of,
}

#[derive(Clone, Debug)]
enum Area {
    Below(Path),
    Place(Place),
}

impl Area {
    fn has(&self, place: &Place) -> bool {
        match self {
            Self::Below(path) => place.path().starts_with(path),
            Self::Place(one) => place == one,
        }
    }
}

#[derive(Clone, Debug)]
enum Of {
    /// The writes that the client had seen.
    Context(Clock),
    /// The writes that the replica held.
    Held(BTreeSet<(usize, Place)>),
}

/// One update.
#[derive(Debug)]
struct Event {
    dot: Dot,
    writes: BTreeMap<Place, Written>,
    /// The overwritten writes.
    replaced: BTreeSet<(usize, Place)>,
    removed: Vec<Removed>,
}

/// All updates of a key.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    events: Vec<Event>,
}

/// The updates that a replica has.
pub(crate) type Known = BTreeSet<usize>;

impl Trace {
    /// Adds an update of a map at a replica, which has it from then on; false when a remove finds
    /// nothing.
    pub(crate) fn update(
        &mut self,
        known: &mut Known,
        changes: &[FieldChange],
        (dot, micros, context): (Dot, u64, Option<&Clock>),
    ) -> bool {
        let mut draft = self.draft(known, dot, micros, context);
        changes.iter().all(|change| draft.field(&[], change)) && self.finish(known, draft)
    }

    /// Like [`Trace::update`], of a set.
    pub(crate) fn update_set(
        &mut self,
        known: &mut Known,
        changes: &[SetChange],
        (dot, context): (Dot, Option<&Clock>),
    ) -> bool {
        let mut draft = self.draft(known, dot, 0, context);
        changes.iter().all(|change| draft.member(&[], change)) && self.finish(known, draft)
    }

    fn draft(&self, known: &Known, dot: Dot, micros: u64, context: Option<&Clock>) -> Draft {
        Draft {
            held: self.held(known),
            dots: self.events.iter().map(|event| event.dot).collect(),
            dot,
            micros,
            context: context.cloned(),
            writes: BTreeMap::new(),
            replaced: BTreeSet::new(),
            removed: Vec::new(),
        }
    }

    fn finish(&mut self, known: &mut Known, draft: Draft) -> bool {
        known.insert(self.events.len());
        self.events.push(Event {
            dot: draft.dot,
            writes: draft.writes,
            replaced: draft.replaced,
            removed: draft.removed,
        });
        true
    }

    /// A replica's content: each place with the updates whose writes are there.
    fn held(&self, known: &Known) -> BTreeMap<Place, BTreeMap<usize, Written>> {
        let mut held = BTreeMap::<Place, BTreeMap<usize, Written>>::new();
        for index in known {
            for (place, written) in &self.events[*index].writes {
                if !self.is_gone(*index, place, known) {
                    let writes = held.entry(place.clone()).or_default();
                    writes.insert(*index, written.clone());
                }
            }
        }
        held
    }

    fn is_gone(&self, index: usize, place: &Place, known: &Known) -> bool {
        let key = (index, place.clone());
        known.iter().map(|it| &self.events[*it]).any(|other| {
            let is_removed = |removed: &Removed| {
                removed.area.has(place)
                    && match &removed.of {
                        Of::Context(context) => context.contains(self.events[index].dot),
                        Of::Held(held) => held.contains(&key),
                    }
            };
            other.replaced.contains(&key) || other.removed.iter().any(is_removed)
        })
    }

    /// The members of a set that a replica shows.
    pub(crate) fn members(&self, known: &Known) -> Vec<Bytes> {
        members_at(&self.held(known), &[])
    }

    /// The fields of a map that a replica shows.
    pub(crate) fn fields(&self, known: &Known) -> Vec<(FieldName, FieldValue)> {
        fields_at(&self.held(known), &[])
    }
}

type Held = BTreeMap<Place, BTreeMap<usize, Written>>;

fn members_at(held: &Held, path: &[FieldName]) -> Vec<Bytes> {
    let members = held.keys().filter_map(|place| match place {
        Place::Member(at, member) if at == path => Some(member.clone()),
        _ => None,
    });
    members.collect()
}

fn fields_at(held: &Held, path: &[FieldName]) -> Vec<(FieldName, FieldValue)> {
    let below = held.keys().filter(|it| it.path().starts_with(path));
    let names: BTreeSet<&FieldName> = below.filter_map(|it| it.path().get(path.len())).collect();
    let fields = names.into_iter().map(|name| {
        let path = [path, std::slice::from_ref(name)].concat();
        let value = match name.kind {
            FieldKind::Counter => FieldValue::Counter(sum_at(held, &path)),
            FieldKind::Register => FieldValue::Register(register_at(held, &path).1),
            FieldKind::Flag => FieldValue::Flag(held.contains_key(&Place::Flag(path))),
            FieldKind::Set => FieldValue::Set(members_at(held, &path)),
            FieldKind::Map => FieldValue::Map(fields_at(held, &path)),
        };
        (name.clone(), value)
    });
    fields.collect()
}

fn sum_at(held: &Held, path: &[FieldName]) -> i128 {
    let sums = held.iter().filter_map(|(place, writes)| match place {
        Place::Tally(at, _) if at == path => writes.last_key_value(),
        _ => None,
    });
    sums.map(|(_, written)| match written {
        Written::Sum(sum) => *sum,
        Written::Mark | Written::Value(..) => 0,
    })
    .sum()
}

fn register_at(held: &Held, path: &[FieldName]) -> (u64, Bytes) {
    let writes = held.get(&Place::Register(path.to_vec()));
    let values = writes.into_iter().flat_map(BTreeMap::values);
    let values = values.filter_map(|written| match written {
        Written::Value(micros, value) => Some((*micros, value.clone())),
        Written::Mark | Written::Sum(_) => None,
    });
    values.max().unwrap_or_default()
}

/// An update under construction.
struct Draft {
    /// The replica's content, with the writes of the update itself.
    held: Held,
    /// The dots of all updates before.
    dots: Vec<Dot>,
    dot: Dot,
    micros: u64,
    context: Option<Clock>,
    writes: BTreeMap<Place, Written>,
    replaced: BTreeSet<(usize, Place)>,
    removed: Vec<Removed>,
}

/// The update under construction, among those of [`Held`].
const SELF: usize = usize::MAX;

impl Draft {
    fn write(&mut self, place: Place, written: Written) {
        let before = self.held.remove(&place).unwrap_or_default();
        let others = before.into_keys().filter(|index| *index != SELF);
        let others = others.map(|index| (index, place.clone()));
        self.replaced.extend(others);
        self.held
            .insert(place.clone(), BTreeMap::from([(SELF, written.clone())]));
        self.writes.insert(place, written);
    }

    /// Removes an area; false when it must exist and does not.
    fn remove(&mut self, area: Area, must_exist: bool) -> bool {
        let places = self.held.keys().filter(|place| area.has(place)).cloned();
        let places: Vec<Place> = places.collect();
        let Some(context) = self.context.clone() else {
            let mut of = BTreeSet::new();
            for place in &places {
                let writes = self.held.remove(place).unwrap_or_default();
                of.extend(writes.into_keys().map(|index| (index, place.clone())));
                self.writes.remove(place);
            }
            let of = Of::Held(of);
            self.removed.push(Removed { area, of });
            return !must_exist || !places.is_empty();
        };
        for place in &places {
            let writes = self.held.remove(place).unwrap_or_default().into_iter();
            let is_unseen = |index: &usize| match self.dots.get(*index) {
                Some(dot) => !context.contains(*dot),
                None => true,
            };
            let kept: BTreeMap<_, _> = writes.filter(|(index, _)| is_unseen(index)).collect();
            if !kept.is_empty() {
                self.held.insert(place.clone(), kept);
            }
        }
        let of = Of::Context(context);
        self.removed.push(Removed { area, of });
        true
    }

    fn member(&mut self, path: &[FieldName], change: &SetChange) -> bool {
        let place = Place::Member(path.to_vec(), change.member().clone());
        match change {
            SetChange::Add(_) => {
                self.write(place, Written::Mark);
                true
            }
            SetChange::Remove(_) => self.remove(Area::Place(place), true),
        }
    }

    fn field(&mut self, path: &[FieldName], change: &FieldChange) -> bool {
        let path = [path, &[change.field()]].concat();
        let FieldChange::Update { operation, .. } = change else {
            return self.remove(Area::Below(path), true);
        };
        self.write(Place::Field(path.clone()), Written::Mark);
        match operation {
            FieldOperation::Counter(by) => {
                let place = Place::Tally(path, self.dot.actor);
                let written = self.held.get(&place).and_then(BTreeMap::last_key_value);
                let sum = match written {
                    Some((_, Written::Sum(sum))) => *sum,
                    _ => 0,
                };
                self.write(place, Written::Sum(sum + by));
                true
            }
            FieldOperation::Register(value) => {
                let old = register_at(&self.held, &path);
                let writes = self.held.get(&Place::Register(path.clone()));
                let is_own = writes.is_some_and(|writes| writes.contains_key(&SELF));
                let (micros, value) = match self.micros > old.0 || is_own {
                    true => (self.micros, value.clone()),
                    false => old,
                };
                self.write(Place::Register(path), Written::Value(micros, value));
                true
            }
            FieldOperation::Flag(true) => {
                self.write(Place::Flag(path), Written::Mark);
                true
            }
            FieldOperation::Flag(false) => self.remove(Area::Place(Place::Flag(path)), false),
            FieldOperation::Set(changes) => changes.iter().all(|it| self.member(&path, it)),
            FieldOperation::Map(changes) => changes.iter().all(|it| self.field(&path, it)),
        }
    }
}
