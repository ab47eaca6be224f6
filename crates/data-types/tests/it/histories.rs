//! Random histories of sets and maps at several replicas: updates with and without contexts, whole
//! values and deltas between them, in any order. After each step every replica's value is the model's,
//! and in the end all are equal, for any order of merging.

use bytes::Bytes;
use kvorum_data_types::{
    Actor, Clock, DataType, Dot, FieldChange, FieldKind, FieldName, FieldOperation, Map, MapDelta,
    Set, SetChange, SetDelta, Update,
};
use proptest::prelude::*;

use crate::trace::{Known, Trace};

const REPLICAS: usize = 3;

#[derive(Clone, Debug)]
enum Step<C> {
    /// An update at a replica: its changes, and the context of a replica or none.
    Update {
        at: usize,
        changes: Vec<C>,
        context: Option<usize>,
        micros: u64,
    },
    /// One replica merges another's whole value.
    Merge { at: usize, from: usize },
    /// A replica joins an old delta, or merges its whole origin after a gap.
    Join { at: usize, delta: usize },
}

fn step<C: Clone + std::fmt::Debug + 'static>(
    changes: impl Strategy<Value = C> + 'static,
) -> impl Strategy<Value = Step<C>> {
    let replica = 0..REPLICAS;
    let update = (
        replica.clone(),
        prop::collection::vec(changes, 1..3),
        prop::option::of(replica.clone()),
        1..20u64,
    );
    prop_oneof![
        4 => update.prop_map(|(at, changes, context, micros)| Step::Update {
            at, changes, context, micros
        }),
        1 => (replica.clone(), replica.clone()).prop_map(|(at, from)| Step::Merge { at, from }),
        3 => (replica, any::<prop::sample::Index>()).prop_map(|(at, index)| Step::Join {
            at,
            delta: index.index(1 << 16),
        }),
    ]
}

fn member() -> impl Strategy<Value = Bytes> {
    prop::sample::select(vec!["a", "b", "c"]).prop_map(|name| Bytes::from_static(name.as_bytes()))
}

fn set_change() -> impl Strategy<Value = SetChange> {
    prop_oneof![
        member().prop_map(SetChange::Add),
        member().prop_map(SetChange::Remove)
    ]
}

fn field_change() -> impl Strategy<Value = FieldChange> {
    let leaf = prop_oneof![
        (-5..9i128).prop_map(FieldOperation::Counter),
        member().prop_map(FieldOperation::Register),
        any::<bool>().prop_map(FieldOperation::Flag),
        prop::collection::vec(set_change(), 0..3).prop_map(FieldOperation::Set),
    ];
    let change = leaf.prop_recursive(3, 8, 2, |inner| {
        prop::collection::vec(change_of(inner), 0..3).prop_map(FieldOperation::Map)
    });
    change_of(change)
}

fn change_of(
    operation: impl Strategy<Value = FieldOperation>,
) -> impl Strategy<Value = FieldChange> {
    let name = prop::sample::select(vec!["f", "g"]);
    (name, operation, 0..4u8).prop_map(|(name, operation, remove)| {
        let name = Bytes::from_static(name.as_bytes());
        match remove {
            0 => FieldChange::Remove(FieldName::new(name, operation.kind())),
            _ => FieldChange::Update { name, operation },
        }
    })
}

/// A value with the operations of the tests.
trait Replicated: Clone + Default + PartialEq + std::fmt::Debug {
    type Change;
    type Delta: Clone;
    type Shown: PartialEq + std::fmt::Debug;

    fn change(&mut self, changes: &[Self::Change], update: Update<'_>) -> Option<Self::Delta>;
    fn take_in(&mut self, other: &Self);
    fn join_delta(&mut self, delta: Self::Delta) -> bool;
    fn seen(&self) -> Clock;
    fn shown(&self) -> Self::Shown;
    fn whole(self) -> DataType;
    fn modelled(trace: &Trace, known: &Known) -> Self::Shown;
    fn model_change(
        trace: &mut Trace,
        known: &mut Known,
        changes: &[Self::Change],
        at: (Dot, u64, Option<&Clock>),
    ) -> bool;
}

impl Replicated for Set {
    type Change = SetChange;
    type Delta = SetDelta;
    type Shown = Vec<Bytes>;

    fn change(&mut self, changes: &[SetChange], update: Update<'_>) -> Option<Self::Delta> {
        self.update(changes, update).ok()
    }

    fn take_in(&mut self, other: &Self) {
        self.merge(other.clone());
    }

    fn join_delta(&mut self, delta: Self::Delta) -> bool {
        let sent = Self::Delta::decode(&delta.encode()).unwrap();
        assert_eq!(sent, delta);
        self.join(sent).is_ok()
    }

    fn seen(&self) -> Clock {
        self.context()
    }

    fn shown(&self) -> Vec<Bytes> {
        self.value()
    }

    fn whole(self) -> DataType {
        DataType::Set(self)
    }

    fn modelled(trace: &Trace, known: &Known) -> Vec<Bytes> {
        trace.members(known)
    }

    fn model_change(
        trace: &mut Trace,
        known: &mut Known,
        changes: &[SetChange],
        (dot, _, context): (Dot, u64, Option<&Clock>),
    ) -> bool {
        trace.update_set(known, changes, (dot, context))
    }
}

impl Replicated for Map {
    type Change = FieldChange;
    type Delta = MapDelta;
    type Shown = Vec<(FieldName, kvorum_data_types::FieldValue)>;

    fn change(&mut self, changes: &[FieldChange], update: Update<'_>) -> Option<Self::Delta> {
        self.update(changes, update).ok()
    }

    fn take_in(&mut self, other: &Self) {
        self.merge(other.clone());
    }

    fn join_delta(&mut self, delta: Self::Delta) -> bool {
        let sent = Self::Delta::decode(&delta.encode()).unwrap();
        assert_eq!(sent, delta);
        self.join(sent).is_ok()
    }

    fn seen(&self) -> Clock {
        self.context()
    }

    fn shown(&self) -> Self::Shown {
        self.value()
    }

    fn whole(self) -> DataType {
        DataType::Map(self)
    }

    fn modelled(trace: &Trace, known: &Known) -> Self::Shown {
        trace.fields(known)
    }

    fn model_change(
        trace: &mut Trace,
        known: &mut Known,
        changes: &[FieldChange],
        at: (Dot, u64, Option<&Clock>),
    ) -> bool {
        trace.update(known, changes, at)
    }
}

/// Replicas, and the model's updates of each.
struct World<V: Replicated> {
    values: Vec<V>,
    known: Vec<Known>,
    trace: Trace,
    /// Each with the update that it carries, and the whole value after it.
    deltas: Vec<(V::Delta, usize, V, Known)>,
    counter: u64,
}

impl<V: Replicated> World<V> {
    fn new() -> Self {
        Self {
            values: vec![V::default(); REPLICAS],
            known: vec![Known::new(); REPLICAS],
            trace: Trace::default(),
            deltas: Vec::new(),
            counter: 0,
        }
    }

    fn take(&mut self, step: &Step<V::Change>) {
        match step {
            Step::Update {
                at,
                changes,
                context,
                micros,
            } => self.update(*at, changes, *context, *micros),
            Step::Merge { at, from } => {
                let (other, known) = (self.values[*from].clone(), self.known[*from].clone());
                self.values[*at].take_in(&other);
                self.known[*at].extend(known);
            }
            Step::Join { at, delta } => self.join(*at, *delta),
        }
    }

    fn update(&mut self, at: usize, changes: &[V::Change], context: Option<usize>, micros: u64) {
        // Counters of an actor have gaps: others' writes of the same vnode are between them.
        self.counter += 3;
        let dot = Dot::new(Actor(at as u64 + 1), self.counter);
        let context = context.map(|from| self.values[from].seen());
        let update = Update {
            dot,
            micros,
            context: context.as_ref(),
        };
        let before = self.values[at].clone();
        let delta = self.values[at].change(changes, update);
        let modelled = V::model_change(
            &mut self.trace,
            &mut self.known[at],
            changes,
            (dot, micros, context.as_ref()),
        );
        assert_eq!(delta.is_some(), modelled, "refused by one of the two");
        match delta {
            None => assert_eq!(self.values[at], before, "changed by what was refused"),
            Some(delta) => {
                let event = *self.known[at].last().unwrap();
                let whole = (self.values[at].clone(), self.known[at].clone());
                self.deltas.push((delta, event, whole.0, whole.1));
            }
        }
    }

    fn join(&mut self, at: usize, index: usize) {
        if self.deltas.is_empty() {
            return;
        }
        let (delta, event, whole, known) = self.deltas[index % self.deltas.len()].clone();
        if self.values[at].join_delta(delta) {
            self.known[at].insert(event);
        } else {
            self.values[at].take_in(&whole);
            self.known[at].extend(known);
        }
    }

    fn check(&self) {
        for (value, known) in self.values.iter().zip(&self.known) {
            assert_eq!(value.shown(), V::modelled(&self.trace, known), "{value:#?}");
        }
    }

    /// The laws of merging, on the final values of the history.
    fn check_laws(&self) {
        let merged = |values: &[&V]| {
            let mut all = values[0].clone();
            values[1..].iter().for_each(|value| all.take_in(value));
            all
        };
        let [a, b, c] = &self.values[..] else {
            panic!("three replicas");
        };
        let all = merged(&[a, b, c]);
        assert_eq!(merged(&[a, b]), merged(&[b, a]));
        assert_eq!(all, merged(&[a, &merged(&[b, c])]));
        assert_eq!(all, merged(&[c, b, a]));
        assert_eq!(all, merged(&[&all, b]));
        for value in &self.values {
            assert_eq!(*value, merged(&[value, value]));
        }
        let encoded = all.clone().whole().encode();
        assert_eq!(DataType::decode(&encoded), Ok(all.whole()));
    }
}

fn run<V: Replicated>(steps: &[Step<V::Change>]) {
    let mut world = World::<V>::new();
    for step in steps {
        world.take(step);
        world.check();
    }
    world.check_laws();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn sets_show_what_the_model_says(steps in prop::collection::vec(step(set_change()), 1..25)) {
        run::<Set>(&steps);
    }

    #[test]
    fn maps_show_what_the_model_says(steps in prop::collection::vec(step(field_change()), 1..25)) {
        run::<Map>(&steps);
    }
}

/// Fields of one name and several kinds are several fields, listed in Riak's order.
#[test]
fn fields_of_one_name_are_listed_by_kind() {
    let mut map = Map::default();
    let operations = [
        FieldOperation::Set(vec![]),
        FieldOperation::Map(vec![]),
        FieldOperation::Flag(true),
        FieldOperation::Register(Bytes::new()),
        FieldOperation::Counter(1),
    ];
    for (operation, counter) in operations.into_iter().zip(1..) {
        let name = Bytes::from_static(b"x");
        let changes = [FieldChange::Update { name, operation }];
        let update = Update {
            dot: Dot::new(Actor(1), counter),
            micros: 1,
            context: None,
        };
        map.update(&changes, update).unwrap();
    }
    let kinds: Vec<FieldKind> = map.value().iter().map(|(name, _)| name.kind).collect();
    assert_eq!(kinds, FieldKind::ALL);
}
