//! An entry in a walk. Few walks need all parts of an entry, so the parts' offsets are decoded at
//! once, and a part is sliced on demand.

use bytes::Bytes;
use kvorum_backend::Fields;

use crate::entry::{Parts, ValueParts};
use crate::merge::Taken;
use crate::{Body, Entry, Value};

/// A batch's write to a key.
pub(crate) struct WalkEntry {
    pub(crate) sequence: u64,
    /// `None` when the key was removed.
    pub(crate) value: Option<WalkValue>,
}

/// The value of a key.
pub(crate) enum WalkValue {
    /// The bytes of a table or a memtable.
    Packed { bytes: Bytes, parts: ValueParts },
    /// A value too large for a memtable's piece of memory.
    Apart(Value),
}

impl WalkValue {
    pub(crate) fn fields(&self) -> &Fields {
        match self {
            Self::Packed { parts, .. } => &parts.fields,
            Self::Apart(value) => &value.fields,
        }
    }

    pub(crate) fn head(&self) -> Bytes {
        match self {
            Self::Packed { bytes, parts } => bytes.slice(parts.head.clone()),
            Self::Apart(value) => value.head.clone(),
        }
    }

    pub(crate) fn body(&self) -> Body {
        match self {
            Self::Packed { bytes, parts } => parts.body.cut_from(bytes),
            Self::Apart(value) => value.body.clone(),
        }
    }

    pub(crate) fn value(&self) -> Value {
        match self {
            Self::Packed { bytes, parts } => parts.cut_from(bytes),
            Self::Apart(value) => value.clone(),
        }
    }
}

impl Taken for WalkEntry {
    fn of_entry(entry: Entry) -> Self {
        Self {
            sequence: entry.sequence,
            value: entry.value.map(WalkValue::Apart),
        }
    }

    fn of_bytes(bytes: Bytes) -> Option<Self> {
        let parts = Parts::decode(&bytes).ok()?;
        Some(Self {
            sequence: parts.sequence,
            value: parts.value.map(|parts| WalkValue::Packed { bytes, parts }),
        })
    }

    fn sequence(&self) -> u64 {
        self.sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::tests::full_entry;

    #[test]
    fn packed_or_apart_it_says_the_same() {
        let (entry, mut bytes) = (full_entry(), Vec::new());
        entry.encode(&mut bytes);
        let packed = WalkEntry::of_bytes(bytes.into()).unwrap();
        for held in [packed, WalkEntry::of_entry(entry.clone())] {
            assert_eq!(held.sequence(), entry.sequence);
            let (held, value) = (held.value.unwrap(), entry.value.clone().unwrap());
            assert_eq!(held.fields(), &value.fields);
            assert_eq!(
                (held.head(), held.body()),
                (value.head.clone(), value.body.clone())
            );
            assert_eq!(held.value(), value);
        }
    }

    #[test]
    fn a_removal_holds_nothing_and_what_does_not_decode_is_none() {
        let (removal, mut bytes) = (Entry::removal(3), Vec::new());
        removal.encode(&mut bytes);
        let packed = WalkEntry::of_bytes(bytes.clone().into()).unwrap();
        assert!(packed.sequence() == 3 && packed.value.is_none());
        assert!(WalkEntry::of_entry(removal).value.is_none());
        bytes.truncate(1);
        assert!(WalkEntry::of_bytes(bytes.into()).is_none());
    }
}
