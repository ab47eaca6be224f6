//! Get, put and delete.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvorum_coordinator::{
    Condition, DeleteOptions, Detail, GetOptions, PutKind, PutOptions, PutRequest,
};
use kvorum_encoding::{Address, Bucket, BucketType, Key};
use kvorum_object::{Clock, Object};
use kvorum_properties::{Quorum, SyncOnWrite};
use kvorum_protocol::{MessageCode, pb};
use prost::Message as _;

use crate::connection::Connection;
use crate::content::{GivenTime, check_pieces, content_of};
use crate::object_reply::{ObjectReply, Values};
use crate::refusal::{Failure, Refusal};

impl Connection {
    pub(crate) async fn get(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::RpbGetReq::decode(payload)?;
        let options = get_options(&request);
        let seen = request.if_modified.as_deref().map(clock_of).transpose()?;
        let wants_tombstone = request.deletedvclock();
        let address = address_of(request.r#type, request.bucket, request.key)?;
        let coordinator = &self.shared.coordinator;
        let found = coordinator.get(&address, &options, self.arrived).await?;
        match found {
            None => self.reply_empty(MessageCode::RPB_GET_RESP),
            Some(object) if object.is_tombstone() => match wants_tombstone {
                true => self.reply_clock(&object),
                false => self.reply_empty(MessageCode::RPB_GET_RESP),
            },
            Some(object) if seen.is_some_and(|seen| seen == *object.clock()) => {
                let unchanged = Some(true);
                self.reply(&pb::RpbGetResp {
                    unchanged,
                    ..Default::default()
                })
            }
            Some(object) => {
                let object = match options.detail {
                    Detail::Head if object.siblings().len() > 1 => {
                        self.with_values(&address, options.clone()).await?
                    }
                    _ => None,
                }
                .unwrap_or(object);
                self.reply_object(&ObjectReply {
                    code: MessageCode::RPB_GET_RESP,
                    object: &object,
                    values: Values::of(options.detail),
                    key: None,
                })
            }
        }
    }

    /// Reads an object again with its values, since they determine the order of siblings even if
    /// not sent.
    async fn with_values(
        &self,
        address: &Address,
        options: GetOptions,
    ) -> Result<Option<Arc<Object>>, Failure> {
        let detail = Detail::Whole;
        let options = GetOptions { detail, ..options };
        let coordinator = &self.shared.coordinator;
        let whole = coordinator.get(address, &options, self.arrived).await?;
        Ok(whole.filter(|object| !object.is_tombstone()))
    }

    pub(crate) async fn put(&mut self, payload: Bytes) -> Result<(), Failure> {
        check_pieces(&payload)?;
        let request = pb::RpbPutReq::decode(payload)?;
        let options = put_options(&request)?;
        let returned = match (request.return_body(), request.return_head()) {
            // A request for both gets the smaller.
            (_, true) => Some(Values::Empty),
            (true, false) => Some(Values::Whole),
            (false, false) => None,
        };
        let (context, condition) = context_of(&request)?;
        let (kind, time) = match request.asis() {
            true => (PutKind::AsIs, GivenTime::Keep),
            false => (PutKind::Versioned, GivenTime::Drop),
        };
        let coordinator = &self.shared.coordinator;
        let put = PutRequest {
            context,
            condition,
            content: content_of(request.content, time, coordinator.runtime())?,
            kind,
        };
        let is_generated = request.key.is_none();
        let key = match request.key {
            Some(key) => key,
            None => coordinator.generate_key().to_bytes(),
        };
        let address = address_of(request.r#type, request.bucket, key)?;
        let object = coordinator
            .put(&address, put, &options, self.arrived)
            .await?;
        let key = is_generated.then(|| address.key.to_bytes());
        match (returned, key) {
            (None, None) => self.reply_empty(MessageCode::RPB_PUT_RESP),
            (None, key) => self.reply(&pb::RpbPutResp {
                key,
                ..Default::default()
            }),
            (Some(values), key) => self.reply_object(&ObjectReply {
                code: MessageCode::RPB_PUT_RESP,
                object: &object,
                values,
                key: key.as_deref(),
            }),
        }
    }

    pub(crate) async fn delete(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::RpbDelReq::decode(payload)?;
        let options = delete_options(&request);
        // An empty vclock counts as absent: a tombstone with a fresh one would become the object's
        // sibling.
        let given = request.vclock.as_deref();
        let context = given.filter(|vclock| !vclock.is_empty());
        let context = context.map(clock_of).transpose()?;
        if request.bucket.is_empty() || request.key.is_empty() {
            // Nothing can be stored under an empty name, so there is nothing to delete.
            type_of(request.r#type)?;
            return self.reply_empty(MessageCode::RPB_DEL_RESP);
        }
        let address = address_of(request.r#type, request.bucket, request.key)?;
        let coordinator = &self.shared.coordinator;
        coordinator
            .delete(&address, context, &options, self.arrived)
            .await?;
        self.reply_empty(MessageCode::RPB_DEL_RESP)
    }

    /// The vclock of a tombstone, so that a client can overwrite it.
    fn reply_clock(&mut self, tombstone: &Object) -> Result<(), Failure> {
        let vclock = Some(tombstone.clock().encode());
        self.reply(&pb::RpbGetResp {
            vclock,
            ..Default::default()
        })
    }

    fn reply_object(&mut self, reply: &ObjectReply<'_>) -> Result<(), Failure> {
        Ok(reply.encode(&mut self.output)?)
    }
}

/// A bucket type as a request names it: absent is the default type, empty is a mistake.
pub(crate) fn type_of(bucket_type: Option<Bytes>) -> Result<BucketType, Refusal> {
    match bucket_type {
        None => Ok(BucketType::default_type()),
        Some(name) if name.is_empty() => Err(Refusal::ZeroLength { what: "Type" }),
        Some(name) => Ok(BucketType::new(name)),
    }
}

/// A bucket as a request names it.
pub(crate) fn bucket_of(bucket: Bytes) -> Result<Bucket, Refusal> {
    match bucket.is_empty() {
        true => Err(Refusal::ZeroLength { what: "Bucket" }),
        false => Ok(Bucket::new(bucket)),
    }
}

/// The address of an object as a request names it.
pub(crate) fn address_of(
    bucket_type: Option<Bytes>,
    bucket: Bytes,
    key: Bytes,
) -> Result<Address, Refusal> {
    let bucket_type = type_of(bucket_type)?;
    let bucket = bucket_of(bucket)?;
    if key.is_empty() {
        return Err(Refusal::ZeroLength { what: "Key" });
    }
    Ok(Address {
        bucket_type,
        bucket,
        key: Key::new(key),
    })
}

/// A timeout as requests carry it.
pub(crate) fn timeout_of(milliseconds: Option<u32>) -> Option<Duration> {
    milliseconds.map(|milliseconds| Duration::from_millis(milliseconds.into()))
}

fn get_options(request: &pb::RpbGetReq) -> GetOptions {
    GetOptions {
        r: quorum(request.r),
        pr: quorum(request.pr),
        node_confirms: quorum(request.node_confirms),
        basic_quorum: request.basic_quorum,
        notfound_ok: request.notfound_ok,
        n_val: request.n_val,
        sloppy_quorum: request.sloppy_quorum,
        timeout: timeout_of(request.timeout),
        detail: match request.head() {
            true => Detail::Head,
            false => Detail::Whole,
        },
    }
}

fn put_options(request: &pb::RpbPutReq) -> Result<PutOptions, Refusal> {
    Ok(PutOptions {
        w: quorum(request.w),
        dw: quorum(request.dw),
        pw: quorum(request.pw),
        node_confirms: quorum(request.node_confirms),
        sync_on_write: request.sync_on_write.as_deref().map(sync_of).transpose()?,
        n_val: request.n_val,
        sloppy_quorum: request.sloppy_quorum,
        timeout: timeout_of(request.timeout),
    })
}

fn delete_options(request: &pb::RpbDelReq) -> DeleteOptions {
    DeleteOptions {
        rw: quorum(request.rw),
        r: quorum(request.r),
        pr: quorum(request.pr),
        w: quorum(request.w),
        dw: quorum(request.dw),
        pw: quorum(request.pw),
        n_val: request.n_val,
        sloppy_quorum: request.sloppy_quorum,
        timeout: timeout_of(request.timeout),
    }
}

/// The client's context, and the condition of its write.
fn context_of(request: &pb::RpbPutReq) -> Result<(Clock, Condition), Refusal> {
    let context = clock_of(request.vclock())?;
    let condition = if request.if_none_match() {
        Condition::Absent
    } else if request.if_not_modified() {
        Condition::Version(context.clone())
    } else {
        Condition::Always
    };
    Ok((context, condition))
}

pub(crate) fn quorum(wire: Option<u32>) -> Option<Quorum> {
    wire.and_then(Quorum::from_wire)
}

fn clock_of(vclock: &[u8]) -> Result<Clock, Refusal> {
    Clock::decode(vclock).map_err(Refusal::InvalidVclock)
}

fn sync_of(word: &[u8]) -> Result<SyncOnWrite, Refusal> {
    let text = String::from_utf8_lossy(word);
    let known = SyncOnWrite::from_word(&text);
    known.ok_or_else(|| Refusal::InvalidSyncOnWrite(text.into_owned()))
}
