//! From a message code to the handler that answers it, and from a refusal to its reply.

use std::io;

use bytes::Bytes;
use kvorum_protocol::frame::{self, Frame};
use kvorum_protocol::{MessageCode, pb};
use prost::Message as _;

use crate::connection::Connection;
use crate::refusal::{Failure, Refusal};

impl Connection {
    /// Answers one request. An error means that the peer cannot be reached any more.
    pub(crate) async fn answer(&mut self, frame: Frame) -> io::Result<()> {
        match self.dispatch(frame).await {
            Ok(()) => Ok(()),
            Err(Failure::Lost(error)) => Err(error),
            Err(Failure::Refused(refusal)) => {
                if let Some(fault) = refusal.fault() {
                    self.note(fault, &refusal.in_full());
                }
                let text = refusal.to_string();
                frame::encode_error(text.as_bytes(), self.output.buffer());
                Ok(())
            }
        }
    }

    async fn dispatch(&mut self, frame: Frame) -> Result<(), Failure> {
        let Frame { code, payload } = frame;
        match code {
            MessageCode::RPB_GET_REQ => self.get(payload).await,
            MessageCode::RPB_PUT_REQ => self.put(payload).await,
            MessageCode::RPB_DEL_REQ => self.delete(payload).await,
            MessageCode::RPB_PING_REQ => self.reply_empty(MessageCode::RPB_PING_RESP),
            MessageCode::RPB_GET_CLIENT_ID_REQ => self.client_id(),
            MessageCode::RPB_SET_CLIENT_ID_REQ => self.set_client_id(payload),
            MessageCode::RPB_GET_SERVER_INFO_REQ => self.server_info(),
            MessageCode::RPB_LIST_BUCKETS_REQ => self.list_buckets(payload).await,
            MessageCode::RPB_LIST_KEYS_REQ => self.list_keys(payload).await,
            MessageCode::RPB_GET_BUCKET_REQ => self.bucket_properties(payload),
            MessageCode::RPB_SET_BUCKET_REQ => self.set_bucket_properties(payload).await,
            MessageCode::RPB_RESET_BUCKET_REQ => self.reset_bucket_properties(payload).await,
            MessageCode::RPB_GET_BUCKET_TYPE_REQ => self.type_properties(payload),
            MessageCode::RPB_SET_BUCKET_TYPE_REQ => self.set_type_properties(payload).await,
            MessageCode::RPB_GET_BUCKET_KEY_PREFLIST_REQ => self.preference_list(payload),
            MessageCode::RPB_MAP_RED_REQ => self.map_reduce(payload).await,
            MessageCode::RPB_INDEX_REQ => self.query_index(payload).await,
            MessageCode::RPB_CS_BUCKET_REQ => self.list_objects(payload).await,
            MessageCode::RPB_COUNTER_UPDATE_REQ => self.update_counter(payload).await,
            MessageCode::RPB_COUNTER_GET_REQ => self.get_counter(payload).await,
            MessageCode::DT_FETCH_REQ => self.fetch_data_type(payload).await,
            MessageCode::DT_UPDATE_REQ => self.update_data_type(payload).await,
            MessageCode::RPB_AAE_FOLD_MERGE_TREES_RANGE_REQ => self.fold_merge_trees(payload).await,
            MessageCode::RPB_AAE_FOLD_FETCH_CLOCKS_RANGE_REQ => {
                self.fold_fetch_clocks(payload).await
            }
            MessageCode::RPB_AAE_FOLD_FIND_KEYS_REQ => self.fold_find_keys(payload).await,
            MessageCode::RPB_AAE_FOLD_OBJECT_STATS_REQ => self.fold_object_stats(payload).await,
            MessageCode::RPB_AAE_FOLD_FIND_TOMBS_REQ => self.fold_find_tombstones(payload).await,
            MessageCode::RPB_AAE_FOLD_REPAIR_KEYS_REQ => self.fold_repair_keys(payload).await,
            MessageCode::RPB_AAE_FOLD_LIST_BUCKETS_REQ => self.fold_list_buckets(payload).await,
            MessageCode::RPB_AAE_FOLD_REAP_TOMBS_REQ => self.fold_reap_tombstones(payload).await,
            MessageCode::RPB_AAE_FOLD_ERASE_KEYS_REQ => self.fold_erase_keys(payload).await,
            MessageCode::RPB_START_TLS => Err(Refusal::NoTls.into()),
            code => Err(not_served(code).into()),
        }
    }

    /// Appends a reply without fields.
    pub(crate) fn reply_empty(&mut self, code: MessageCode) -> Result<(), Failure> {
        frame::encode_empty(code, self.output.buffer());
        Ok(())
    }

    /// Appends a reply.
    pub(crate) fn reply(
        &mut self,
        message: &impl kvorum_protocol::CodedMessage,
    ) -> Result<(), Failure> {
        Ok(frame::encode(message, self.output.buffer())?)
    }

    fn client_id(&mut self) -> Result<(), Failure> {
        let client_id = self.client_id.clone();
        self.reply(&pb::RpbGetClientIdResp { client_id })
    }

    fn set_client_id(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::RpbSetClientIdReq::decode(payload)?;
        // Copied: it outlives the request, and a slice would hold the receive buffer.
        self.client_id = Bytes::copy_from_slice(&request.client_id);
        self.reply_empty(MessageCode::RPB_SET_CLIENT_ID_RESP)
    }

    fn server_info(&mut self) -> Result<(), Failure> {
        let settings = &self.shared.settings;
        let reply = pb::RpbGetServerInfoResp {
            node: Some(settings.node_name.clone().into()),
            server_version: Some(settings.server_version.clone().into()),
        };
        self.reply(&reply)
    }

    /// Refuses a request whose class is switched off.
    pub(crate) fn check_job(&self, is_enabled: bool, class: &'static str) -> Result<(), Refusal> {
        match is_enabled {
            true => Ok(()),
            false => Err(Refusal::Disabled { class }),
        }
    }
}

/// The refusal of a code without a handler. Riak serves some of these codes, and has no handler for
/// the others.
fn not_served(code: MessageCode) -> Refusal {
    let what = match code {
        // No queue is defined; clients must expect that answer from Riak too.
        MessageCode::RPB_FETCH_REQ => return Refusal::NoSuchQueue,
        MessageCode::RPB_PUSH_REQ | MessageCode::RPB_AAE_FOLD_REPL_KEYS_REQ => {
            "replication queues are"
        }
        MessageCode::RPB_MEMBERSHIP_REQ => "membership queries are",
        MessageCode(210..=212) => "folds over cached trees are",
        code => return Refusal::UnknownCode(code),
    };
    Refusal::NotSupported { what }
}
