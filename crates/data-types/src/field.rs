//! The fields of a map, and changes of their content.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::clock::{Clock, Seen};
use crate::counter::Counter;
use crate::deferred::{Deferred, Removal, Target};
use crate::dot::Dot;
use crate::dot_store::{DotStore, Dots};
use crate::field_name::{FieldKind, FieldName};
use crate::operation::{
    DEPTH_MAX, FieldChange, FieldOperation, Missing, OperationError, SetChange, Update,
};
use crate::register::Register;

/// The members of a set, each with the dots of its additions.
pub type Members = BTreeMap<Bytes, Dots>;

/// The fields of a map.
pub type Fields = BTreeMap<FieldName, Field>;

/// A field: the updates that keep it in the map, and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The latest updates of the field. They keep it in the map when its value holds nothing, such as
    /// an empty set.
    pub presence: Dots,
    /// The value.
    pub content: Content,
}

/// The value in a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A counter.
    Counter(Counter),
    /// A register.
    Register(Register),
    /// A flag, with the dots of the updates that enabled it.
    Flag(Dots),
    /// A set.
    Set(Members),
    /// A map.
    Map(Fields),
}

impl Content {
    /// The value of a field that was never updated.
    pub fn new(kind: FieldKind) -> Self {
        match kind {
            FieldKind::Counter => Self::Counter(Counter::default()),
            FieldKind::Register => Self::Register(Register::default()),
            FieldKind::Flag => Self::Flag(Dots::default()),
            FieldKind::Set => Self::Set(Members::new()),
            FieldKind::Map => Self::Map(Fields::new()),
        }
    }

    /// The kind of the value.
    pub fn kind(&self) -> FieldKind {
        match self {
            Self::Counter(_) => FieldKind::Counter,
            Self::Register(_) => FieldKind::Register,
            Self::Flag(_) => FieldKind::Flag,
            Self::Set(_) => FieldKind::Set,
            Self::Map(_) => FieldKind::Map,
        }
    }
}

impl Field {
    /// A field that is not in the map yet.
    pub(crate) fn vacant(kind: FieldKind) -> Self {
        Self {
            presence: Dots::default(),
            content: Content::new(kind),
        }
    }
}

impl DotStore for Field {
    fn is_empty(&self) -> bool {
        self.presence.is_empty() && self.content.is_empty()
    }

    fn remove_seen(&mut self, context: &dyn Seen) {
        self.presence.remove_seen(context);
        self.content.remove_seen(context);
    }

    fn reconcile(&mut self, other: Self, ours: &dyn Seen, theirs: &dyn Seen) {
        self.presence.reconcile(other.presence, ours, theirs);
        self.content.reconcile(other.content, ours, theirs);
    }

    fn each_dot(&self, visit: &mut dyn FnMut(Dot)) {
        self.presence.each_dot(visit);
        self.content.each_dot(visit);
    }
}

impl DotStore for Content {
    fn is_empty(&self) -> bool {
        match self {
            Self::Counter(counter) => counter.is_empty(),
            Self::Register(register) => register.is_empty(),
            Self::Flag(dots) => dots.is_empty(),
            Self::Set(members) => members.is_empty(),
            Self::Map(fields) => fields.is_empty(),
        }
    }

    fn remove_seen(&mut self, context: &dyn Seen) {
        match self {
            Self::Counter(counter) => counter.remove_seen(context),
            Self::Register(register) => register.remove_seen(context),
            Self::Flag(dots) => dots.remove_seen(context),
            Self::Set(members) => members.remove_seen(context),
            Self::Map(fields) => fields.remove_seen(context),
        }
    }

    /// Both sides have the kind in the field's name; decoders check it.
    fn reconcile(&mut self, other: Self, ours: &dyn Seen, theirs: &dyn Seen) {
        match (self, other) {
            (Self::Counter(our), Self::Counter(their)) => our.reconcile(their, ours, theirs),
            (Self::Register(our), Self::Register(their)) => our.reconcile(their, ours, theirs),
            (Self::Flag(our), Self::Flag(their)) => our.reconcile(their, ours, theirs),
            (Self::Set(our), Self::Set(their)) => our.reconcile(their, ours, theirs),
            (Self::Map(our), Self::Map(their)) => our.reconcile(their, ours, theirs),
            (our, their) => {
                let (our, their) = (our.kind(), their.kind());
                assert_eq!(our, their, "fields of one name have one kind");
            }
        }
    }

    fn each_dot(&self, visit: &mut dyn FnMut(Dot)) {
        match self {
            Self::Counter(counter) => counter.each_dot(visit),
            Self::Register(register) => register.each_dot(visit),
            Self::Flag(dots) => dots.each_dot(visit),
            Self::Set(members) => members.each_dot(visit),
            Self::Map(fields) => fields.each_dot(visit),
        }
    }
}

/// The place of a change in the value, and its context.
pub(crate) struct Scope<'a> {
    /// The operation's circumstances.
    pub(crate) update: Update<'a>,
    /// Removes with a context, for replicas that have not seen all of it.
    pub(crate) removes: &'a mut Deferred,
    /// The maps around the changed value, outermost first.
    pub(crate) path: Vec<FieldName>,
}

impl Scope<'_> {
    /// Removes the part that the client has seen. A replica that lacks some of these writes removes
    /// them when they arrive.
    fn remove(&mut self, part: &mut impl DotStore, context: &Clock, removal: Removal) {
        part.remove_seen(context);
        let path = self.path.clone();
        self.removes
            .insert(context.clone(), Target { path, removal });
    }
}

/// Changes a set's members.
pub(crate) fn change_members(
    members: &mut Members,
    changes: &[SetChange],
    scope: &mut Scope<'_>,
) -> Result<(), OperationError> {
    for change in changes {
        match change {
            SetChange::Add(member) => {
                members.insert(member.clone(), Dots::of(scope.update.dot));
            }
            SetChange::Remove(member) => remove_member(members, member, scope)?,
        }
    }
    Ok(())
}

fn remove_member(
    members: &mut Members,
    member: &Bytes,
    scope: &mut Scope<'_>,
) -> Result<(), OperationError> {
    let found = members.remove(member);
    let Some(context) = scope.update.context else {
        let missing = || OperationError::NotPresent(Missing::Member(member.clone()));
        return found.map(drop).ok_or_else(missing);
    };
    let mut dots = found.unwrap_or_default();
    scope.remove(&mut dots, context, Removal::Member(member.clone()));
    if !dots.is_empty() {
        members.insert(member.clone(), dots);
    }
    Ok(())
}

/// Changes a map's fields.
pub(crate) fn change_fields(
    fields: &mut Fields,
    changes: &[FieldChange],
    scope: &mut Scope<'_>,
) -> Result<(), OperationError> {
    for change in changes {
        let name = change.field();
        match change {
            FieldChange::Remove(_) => remove_field(fields, name, scope)?,
            FieldChange::Update { operation, .. } => {
                update_field(fields, name, operation, scope)?;
            }
        }
    }
    Ok(())
}

fn remove_field(
    fields: &mut Fields,
    name: FieldName,
    scope: &mut Scope<'_>,
) -> Result<(), OperationError> {
    let found = fields.remove(&name);
    let Some(context) = scope.update.context else {
        let missing = || OperationError::NotPresent(Missing::Field(name));
        return found.map(drop).ok_or_else(missing);
    };
    let mut field = found.unwrap_or_else(|| Field::vacant(name.kind));
    scope.remove(&mut field, context, Removal::Field(name.clone()));
    if !field.is_empty() {
        fields.insert(name, field);
    }
    Ok(())
}

fn update_field(
    fields: &mut Fields,
    name: FieldName,
    operation: &FieldOperation,
    scope: &mut Scope<'_>,
) -> Result<(), OperationError> {
    if scope.path.len() >= DEPTH_MAX {
        return Err(OperationError::TooDeep);
    }
    let field = fields
        .entry(name.clone())
        .or_insert_with(|| Field::vacant(name.kind));
    field.presence = Dots::of(scope.update.dot);
    scope.path.push(name);
    let changed = change_content(&mut field.content, operation, scope);
    scope.path.pop();
    changed
}

fn change_content(
    content: &mut Content,
    operation: &FieldOperation,
    scope: &mut Scope<'_>,
) -> Result<(), OperationError> {
    let Update { dot, micros, .. } = scope.update;
    match (content, operation) {
        (Content::Counter(counter), FieldOperation::Counter(by)) => counter.count(*by, dot),
        (Content::Register(register), FieldOperation::Register(value)) => {
            register.assign(value.clone(), micros, dot);
            Ok(())
        }
        (Content::Flag(dots), FieldOperation::Flag(enable)) => {
            change_flag(dots, *enable, scope);
            Ok(())
        }
        (Content::Set(members), FieldOperation::Set(changes)) => {
            change_members(members, changes, scope)
        }
        (Content::Map(fields), FieldOperation::Map(changes)) => {
            change_fields(fields, changes, scope)
        }
        (content, operation) => {
            let (content, operation) = (content.kind(), operation.kind());
            assert_eq!(content, operation, "a field's name says its kind");
            Ok(())
        }
    }
}

fn change_flag(dots: &mut Dots, enable: bool, scope: &mut Scope<'_>) {
    match (enable, scope.update.context) {
        (true, _) => *dots = Dots::of(scope.update.dot),
        (false, None) => *dots = Dots::default(),
        (false, Some(context)) => scope.remove(dots, context, Removal::Flag),
    }
}

/// Carries out a deferred remove.
pub(crate) fn forget_in_fields(
    fields: &mut Fields,
    path: &[FieldName],
    removal: &Removal,
    context: &Clock,
) {
    match (path.split_first(), removal) {
        (Some((name, path)), _) => {
            if let Some(field) = fields.get_mut(name) {
                forget_in_content(&mut field.content, path, removal, context);
            }
            remove_if_empty(fields, name);
        }
        (None, Removal::Field(name)) => forget_part(fields, name, context),
        (None, Removal::Member(_) | Removal::Flag) => {}
    }
}

/// Carries out a deferred remove of a member.
pub(crate) fn forget_in_members(members: &mut Members, removal: &Removal, context: &Clock) {
    if let Removal::Member(member) = removal {
        forget_part(members, member, context);
    }
}

fn forget_in_content(
    content: &mut Content,
    path: &[FieldName],
    removal: &Removal,
    context: &Clock,
) {
    match (content, removal) {
        (Content::Map(fields), _) => forget_in_fields(fields, path, removal, context),
        (Content::Set(members), _) => forget_in_members(members, removal, context),
        (Content::Flag(dots), Removal::Flag) => dots.remove_seen(context),
        (Content::Counter(_) | Content::Register(_) | Content::Flag(_), _) => {}
    }
}

fn forget_part<K: Ord, S: DotStore>(parts: &mut BTreeMap<K, S>, key: &K, context: &Clock) {
    if let Some(part) = parts.get_mut(key) {
        part.remove_seen(context);
    }
    remove_if_empty(parts, key);
}

fn remove_if_empty<K: Ord, S: DotStore>(parts: &mut BTreeMap<K, S>, key: &K) {
    if parts.get(key).is_some_and(DotStore::is_empty) {
        parts.remove(key);
    }
}
