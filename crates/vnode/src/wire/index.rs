//! Parts of index queries as bytes.

use bytes::{BufMut as _, Bytes};
use kvorum_encoding::{Bucket, BucketType, Key, put_varint};
use kvorum_ring::{Epoch, Partition};

use super::message::{KEY_BYTES_MAX, Reader, WireError, put_bound, put_owners, put_prefixed};
use crate::index_page_request::{IndexPage, IndexPageRequest, IndexPosition, IndexScan};
use crate::term_pattern::TermPattern;

/// The longest term that is accepted.
const TERM_BYTES_MAX: usize = 128 << 20;
/// The longest pattern that is accepted.
const PATTERN_BYTES_MAX: usize = 64 << 10;

/// The rest of a request, behind its common beginning.
///
/// ```text
/// hash u8 (0 standard, 1 bucket only), ring size u16, owners as in a page,
/// type, bucket, scan u8 (0 keys, 1 terms), of 1 the field; bound, bound as in a page,
/// has_pattern u8, of 1 its text; position; entries_max u32
/// position            = is_there u8, of 1 term and key
/// type, bucket, field,
/// text, term, key     = varint length, bytes
/// ```
pub(super) fn put_index_page_request(out: &mut Vec<u8>, request: &IndexPageRequest) {
    out.put_u8(u8::from(request.hash == kvorum_ring::KeyHash::BucketOnly));
    out.put_u16_le(request.size.get());
    put_owners(out, request.owners.as_deref());
    put_prefixed(out, request.bucket_type.as_bytes());
    put_prefixed(out, request.bucket.as_bytes());
    let (IndexScan::Keys { from, to } | IndexScan::Terms { from, to, .. }) = &request.scan;
    match &request.scan {
        IndexScan::Keys { .. } => out.put_u8(0),
        IndexScan::Terms { field, .. } => {
            out.put_u8(1);
            put_prefixed(out, field);
        }
    }
    put_bound(out, from);
    put_bound(out, to);
    match &request.pattern {
        None => out.put_u8(0),
        Some(pattern) => {
            out.put_u8(1);
            put_prefixed(out, pattern.as_str().as_bytes());
        }
    }
    put_position(out, request.after.as_ref());
    out.put_u32_le(request.entries_max);
}

/// The rest of an answer, behind its common beginning.
///
/// ```text
/// position, as in the request; varint count; entries, each term and key
/// ```
pub(super) fn put_index_page(out: &mut Vec<u8>, page: &IndexPage) {
    put_position(out, page.next.as_ref());
    put_varint(out, page.entries.len() as u64);
    for entry in &page.entries {
        put_prefixed(out, &entry.term);
        put_prefixed(out, entry.key.as_bytes());
    }
}

/// Room for [`put_index_page`].
pub(super) fn index_page_bytes(page: &IndexPage) -> usize {
    let of = |it: &IndexPosition| it.term.len() + it.key.as_bytes().len() + 6;
    page.entries.iter().map(of).sum::<usize>() + page.next.as_ref().map_or(0, of) + 8
}

fn put_position(out: &mut Vec<u8>, position: Option<&IndexPosition>) {
    out.put_u8(u8::from(position.is_some()));
    if let Some(position) = position {
        put_prefixed(out, &position.term);
        put_prefixed(out, position.key.as_bytes());
    }
}

impl Reader<'_> {
    pub(super) fn index_page_request(
        &mut self,
        partition: Partition,
        epoch: Epoch,
    ) -> Result<IndexPageRequest, WireError> {
        let hash = self.key_hash()?;
        let size = self.ring_size()?;
        let owners = self.owners()?;
        let bucket_type = BucketType::from(self.prefixed(KEY_BYTES_MAX)?);
        let bucket = Bucket::new(self.prefixed(KEY_BYTES_MAX)?);
        let scan = match self.bytes.u8()? {
            0 => IndexScan::Keys {
                from: self.bound()?,
                to: self.bound()?,
            },
            1 => IndexScan::Terms {
                field: self.prefixed(KEY_BYTES_MAX)?,
                from: self.term_bound()?,
                to: self.term_bound()?,
            },
            _ => return Err(self.malformed()),
        };
        let pattern = match self.bytes.u8()? {
            0 => None,
            1 => Some(self.pattern()?),
            _ => return Err(self.malformed()),
        };
        Ok(IndexPageRequest {
            partition,
            epoch,
            hash,
            size,
            owners,
            bucket_type,
            bucket,
            scan,
            pattern,
            after: self.index_position()?,
            entries_max: self.bytes.u32()?,
        })
    }

    pub(super) fn index_page(&mut self) -> Result<IndexPage, WireError> {
        let next = self.index_position()?;
        let count = self.bytes.varint_len()?;
        // Each entry takes two bytes at least.
        if count > self.bytes.remaining() / 2 {
            return Err(self.malformed());
        }
        let entries = (0..count).map(|_| self.index_entry());
        let entries = entries.collect::<Result<_, _>>()?;
        Ok(IndexPage { entries, next })
    }

    fn index_position(&mut self) -> Result<Option<IndexPosition>, WireError> {
        match self.bytes.u8()? {
            0 => Ok(None),
            1 => self.index_entry().map(Some),
            _ => Err(self.malformed()),
        }
    }

    fn index_entry(&mut self) -> Result<IndexPosition, WireError> {
        Ok(IndexPosition {
            term: self.prefixed(TERM_BYTES_MAX)?,
            key: Key::new(self.prefixed(KEY_BYTES_MAX)?),
        })
    }

    fn term_bound(&mut self) -> Result<std::ops::Bound<Bytes>, WireError> {
        self.bound_up_to(TERM_BYTES_MAX)
    }

    fn pattern(&mut self) -> Result<TermPattern, WireError> {
        let text = self.prefixed(PATTERN_BYTES_MAX)?;
        let text = std::str::from_utf8(&text).map_err(|_| self.malformed())?;
        TermPattern::new(text).map_err(|_| self.malformed())
    }
}
