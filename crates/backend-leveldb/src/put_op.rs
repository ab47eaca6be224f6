//! The change of a write to its object, as the store takes it.

use bytes::Bytes;
use kvorum_backend::Write;
use kvorum_index_entries::keyspace::object_key;
use kvorum_lsm::{Body, Op, Value};

/// The change of one write to its object. Requests are slices of what a connection read, so what is
/// kept in memory is copied. A body of `kept_from` bytes or more is not: it goes to the value log as it is,
/// and stays there.
pub(crate) fn put_op(write: &Write, extra: Bytes, kept_from: usize) -> Op {
    match write {
        Write::Remove { key, .. } => Op::Remove {
            key: object_key(key.as_bytes()),
        },
        Write::Put {
            key,
            fields,
            head,
            body,
            ..
        } => {
            let key = key.as_bytes();
            let stays = body.len() >= kept_from;
            let copied = if stays { &[][..] } else { &body[..] };
            let mut all = Vec::with_capacity(1 + key.len() + head.len() + copied.len());
            all.extend_from_slice(&object_key(key));
            all.extend_from_slice(head);
            all.extend_from_slice(copied);
            let all = Bytes::from(all);
            let (key_end, head_end) = (1 + key.len(), 1 + key.len() + head.len());
            Op::Put {
                key: all.slice(..key_end),
                value: Value {
                    fields: *fields,
                    extra,
                    head: all.slice(key_end..head_end),
                    body: Body::Inline(match stays {
                        true => body.clone(),
                        false => all.slice(head_end..),
                    }),
                },
            }
        }
    }
}
