//! Fetches and updates of data types, and the counters of Riak 1.4.

use std::time::Duration;

use bytes::Bytes;
use kvorum_coordinator::{GetOptions, PutOptions, RequestError};
use kvorum_data_types::{Kind, Operation, Value, decode_context};
use kvorum_encoding::{Bucket, BucketType};
use kvorum_protocol::pb;
use prost::Message as _;

use crate::connection::Connection;
use crate::data_type_fields::{context_of, operation_of, wire_kind, wire_value, within_64_bits};
use crate::object_requests::{address_of, quorum, timeout_of, type_of};
use crate::refusal::{Failure, Refusal};

impl Connection {
    pub(crate) async fn fetch_data_type(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::DtFetchReq::decode(payload)?;
        let bucket_type = type_of(Some(request.r#type.clone()))?;
        let kind = self.kind_of(&bucket_type, &request.bucket)?;
        let kind = kind.ok_or(Refusal::NoDataType { prefix: "" })?;
        let r#type = wire_kind(kind);
        let nothing = pb::DtFetchResp {
            r#type,
            ..pb::DtFetchResp::default()
        };
        if request.bucket.is_empty() || request.key.is_empty() {
            // Nothing can be stored under an empty name.
            return self.reply(&nothing);
        }
        let options = GetOptions {
            r: quorum(request.r),
            pr: quorum(request.pr),
            node_confirms: quorum(request.node_confirms),
            basic_quorum: request.basic_quorum,
            notfound_ok: request.notfound_ok,
            n_val: request.n_val,
            sloppy_quorum: request.sloppy_quorum,
            timeout: timeout_above_zero(request.timeout),
            ..GetOptions::default()
        };
        let has_context = request.include_context();
        let address = address_of(Some(request.r#type), request.bucket, request.key)?;
        let coordinator = &self.shared.coordinator;
        let found = coordinator.fetch_data_type(&address, kind, &options, self.arrived);
        match found.await? {
            None => self.reply(&nothing),
            Some(value) => self.reply(&pb::DtFetchResp {
                context: context_of(&value).filter(|_| has_context),
                r#type,
                value: Some(wire_value(value.value())),
            }),
        }
    }

    pub(crate) async fn update_data_type(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::DtUpdateReq::decode(payload)?;
        let bucket_type = type_of(Some(request.r#type.clone()))?;
        let kind = self.kind_of(&bucket_type, &request.bucket)?;
        let prefix = "Bucket datatype ";
        let bucket = kind.ok_or(Refusal::NoDataType { prefix })?;
        let (returns_body, has_context) = (request.return_body(), request.include_context());
        let options = PutOptions {
            w: quorum(request.w),
            dw: quorum(request.dw),
            pw: quorum(request.pw),
            node_confirms: quorum(request.node_confirms),
            n_val: request.n_val,
            sloppy_quorum: request.sloppy_quorum,
            timeout: timeout_above_zero(request.timeout),
            ..PutOptions::default()
        };
        let operation = operation_of(request.op)?;
        if operation.kind() != bucket {
            let operation = operation.kind();
            return Err(Refusal::OtherDataType { operation, bucket }.into());
        }
        let context = seen(request.context.as_ref().filter(|_| bucket.has_context()))?;
        let coordinator = &self.shared.coordinator;
        let is_generated = request.key.is_none();
        let generated = || coordinator.generate_key().to_bytes();
        let key = request.key.unwrap_or_else(generated);
        let address = address_of(Some(request.r#type), request.bucket, key)?;
        let mut reply = pb::DtUpdateResp {
            key: is_generated.then(|| address.key.to_bytes()),
            ..pb::DtUpdateResp::default()
        };
        if !returns_body {
            coordinator
                .change_data_type(&address, operation, context, &options, self.arrived)
                .await?;
        } else {
            let value = coordinator
                .update_data_type(&address, operation, context, &options, self.arrived)
                .await?;
            reply.context = context_of(&value).filter(|_| has_context);
            let value = wire_value(value.value());
            reply.counter_value = value.counter_value;
            reply.set_value = value.set_value;
            reply.map_value = value.map_value;
            reply.hll_value = value.hll_value;
            reply.gset_value = value.gset_value;
        }
        self.reply(&reply)
    }

    pub(crate) async fn get_counter(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::RpbCounterGetReq::decode(payload)?;
        let options = GetOptions {
            r: quorum(request.r),
            pr: quorum(request.pr),
            node_confirms: quorum(request.node_confirms),
            basic_quorum: request.basic_quorum,
            notfound_ok: request.notfound_ok,
            ..GetOptions::default()
        };
        let address = address_of(None, request.bucket, request.key)?;
        let coordinator = &self.shared.coordinator;
        let found = coordinator.fetch_data_type(&address, Kind::Counter, &options, self.arrived);
        let value = found.await?.and_then(|counter| counted(&counter.value()));
        self.reply(&pb::RpbCounterGetResp { value })
    }

    pub(crate) async fn update_counter(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::RpbCounterUpdateReq::decode(payload)?;
        let options = PutOptions {
            w: quorum(request.w),
            dw: quorum(request.dw),
            pw: quorum(request.pw),
            node_confirms: quorum(request.node_confirms),
            ..PutOptions::default()
        };
        let operation = Operation::Counter(request.amount.into());
        let returns_value = request.returnvalue();
        let address = address_of(None, request.bucket, request.key)?;
        let coordinator = &self.shared.coordinator;
        let counter = coordinator
            .update_data_type(&address, operation, None, &options, self.arrived)
            .await?;
        let value = counted(&counter.value()).filter(|_| returns_value);
        self.reply(&pb::RpbCounterUpdateResp { value })
    }

    /// The data type of a bucket; the default type has the older counters.
    fn kind_of(&self, bucket_type: &BucketType, bucket: &Bytes) -> Result<Option<Kind>, Refusal> {
        if bucket_type.is_default() {
            return Ok(Some(Kind::Counter));
        }
        let bucket = Bucket::new(bucket.clone());
        match self.shared.coordinator.data_type_of(bucket_type, &bucket) {
            Err(RequestError::UnknownBucketType) => Err(Refusal::NoBucketType(bucket_type.clone())),
            kind => Ok(kind?),
        }
    }
}

/// For data types, a time limit of zero means none, as in Riak: clients send zero if their callers
/// set none.
fn timeout_above_zero(milliseconds: Option<u32>) -> Option<Duration> {
    timeout_of(milliseconds).filter(|limit| !limit.is_zero())
}

fn seen(context: Option<&Bytes>) -> Result<Option<kvorum_data_types::Clock>, Refusal> {
    let context = context.filter(|context| !context.is_empty());
    context
        .map(decode_context)
        .transpose()
        .map_err(Refusal::InvalidContext)
}

fn counted(value: &Value) -> Option<i64> {
    match value {
        Value::Counter(value) => Some(within_64_bits(*value)),
        Value::Set(_) | Value::GrowSet(_) | Value::Map(_) | Value::HyperLogLog(_) => None,
    }
}
