//! The key of a journal's record: the position of a write among all writes of its store, its kind,
//! and its key in the ledger.

use bytes::Bytes;
use kvorum_encoding::Address;
use kvorum_erlang_terms::external_term::{FORMAT_BYTE, Term, TermError};
use kvorum_import::metadata::{address_of, bucket_of_term};

/// The first bytes of every key: an external term that is a tuple of three.
pub(crate) const KEY_START: [u8; 3] = [FORMAT_BYTE, 104, 3];
/// The tag of Riak's objects.
const RIAK_TAG: &str = "o_rkv";

/// A record's key.
#[derive(Clone, Debug, PartialEq)]
pub struct JournalKey {
    /// Number of the write, unique in the store.
    pub sequence: u64,
    /// Kind of the write.
    pub kind: RecordKind,
    /// Target of the write.
    pub subject: Subject,
}

/// Content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// An object and its index changes.
    Object,
    /// The deletion of a key.
    Tombstone,
    /// Index changes of a replaced object, which compaction has dropped.
    IndexChanges,
    /// A batch of head-only entries.
    Batch,
}

/// Target of a write.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// An object of Riak's.
    Object(Address),
    /// Any other key.
    Other(Term),
}

/// Failure to decode a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The bytes are no Erlang term.
    #[error("no Erlang term: {0}")]
    Term(#[from] TermError),
    /// The term has another shape.
    #[error("a term that is no key of a journal")]
    Shape,
}

impl JournalKey {
    /// Decodes a key, an external term:
    ///
    /// ```text
    /// {Sequence, stnd | tomb | keyd | mput, LedgerKey}
    /// LedgerKey = {Tag, Bucket, Key, null}     Tag is o_rkv for objects of Riak's
    /// Bucket    = binary | {Type, Bucket}
    /// ```
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, KeyError> {
        let Term::Tuple(fields) = Term::decode(bytes)? else {
            return Err(KeyError::Shape);
        };
        let fields: Result<[Term; 3], _> = fields.try_into();
        let [sequence, kind, ledger_key] = fields.map_err(|_| KeyError::Shape)?;
        let kinds = [
            ("stnd", RecordKind::Object),
            ("tomb", RecordKind::Tombstone),
            ("keyd", RecordKind::IndexChanges),
            ("mput", RecordKind::Batch),
        ];
        let known = kinds.into_iter().find(|(name, _)| kind.is_atom(name));
        let (_, kind) = known.ok_or(KeyError::Shape)?;
        Ok(Self {
            sequence: sequence.as_u64().ok_or(KeyError::Shape)?,
            kind,
            subject: subject(ledger_key)?,
        })
    }
}

fn subject(ledger_key: Term) -> Result<Subject, KeyError> {
    match ledger_key.as_tuple() {
        Some([tag, bucket, key, _]) if tag.is_atom(RIAK_TAG) => {
            let (bucket_type, bucket) = bucket_of_term(bucket).ok_or(KeyError::Shape)?;
            let key = key.as_binary().ok_or(KeyError::Shape)?.clone();
            let address = address_of(bucket_type, bucket, key);
            address.map(Subject::Object).ok_or(KeyError::Shape)
        }
        _ => Ok(Subject::Other(ledger_key)),
    }
}

/// The tag of a key that is not Riak's, for people.
pub(crate) fn tag_of(ledger_key: &Term) -> String {
    let tag = match ledger_key.as_tuple() {
        Some([tag, ..]) => tag.to_text(),
        _ => None,
    };
    tag.map_or_else(
        || "none".to_owned(),
        |tag| String::from_utf8_lossy(&tag).into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key that a node of Riak 3.2 wrote.
    const KEY: &[u8] = b"\x83h\x03a\xe5d\0\x04stndh\x04d\0\x05o_rkvh\x02m\0\0\0\x06fx_lwwm\0\0\0\
        \x09alpha_idxm\0\0\0\x03i17d\0\x04null";

    fn decode(bytes: &[u8]) -> Result<JournalKey, KeyError> {
        JournalKey::decode(&Bytes::copy_from_slice(bytes))
    }

    #[test]
    fn a_key_of_a_node_is_understood_and_no_truncation_of_it() {
        let key = decode(KEY).unwrap();
        assert_eq!((key.sequence, key.kind), (229, RecordKind::Object));
        let Subject::Object(address) = key.subject else {
            unreachable!();
        };
        assert_eq!(address.to_string(), "fx_lww/alpha_idx/i17");
        assert!(KEY.starts_with(&KEY_START));
        for len in 0..KEY.len() {
            assert!(decode(&KEY[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn keys_of_other_tags_are_no_objects_and_empty_names_are_refused() {
        let other = decode(b"\x83h\x03a\x01w\x04mputw\x05dummy").unwrap();
        assert_eq!(other.kind, RecordKind::Batch);
        assert!(matches!(other.subject, Subject::Other(ref key) if tag_of(key) == "none"));
        let head = decode(b"\x83h\x03a\x01w\x04stndh\x04w\x01hm\0\0\0\x01bm\0\0\0\x01kw\x04null");
        let Subject::Other(key) = head.unwrap().subject else {
            unreachable!();
        };
        assert_eq!(tag_of(&key), "h");
        for wrong in [
            &b"\x83h\x03a\x01w\x04stndh\x04w\x05o_rkvm\0\0\0\x01bm\0\0\0\0w\x04null"[..],
            b"\x83h\x03a\x01w\x04whatw\x05dummy",
            b"\x83h\x03b\xff\xff\xff\xffw\x04stndw\x05dummy",
            b"\x83a\x01",
        ] {
            assert_eq!(decode(wrong), Err(KeyError::Shape));
        }
    }
}
