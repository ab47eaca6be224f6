//! The number of every message on the wire, and its generated message.
//!
//! A newtype over the byte and not an enum: an unknown code is an ordinary value that a server
//! answers with an error, so decoding a frame cannot fail on it.

use std::fmt;

#[cfg(test)]
use prost::Message as _;

use crate::pb;

/// A message code: the fifth byte of a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageCode(pub u8);

/// A generated message that travels under a code of its own.
///
/// Messages without fields have no type; they are sent with [`crate::frame::encode_empty`].
pub trait CodedMessage: prost::Message + Default {
    /// The code under which the message is sent.
    const CODE: MessageCode;
}

impl MessageCode {
    /// Riak's name of the message, if the code is known.
    pub fn name(self) -> Option<&'static str> {
        name_of(self.0)
    }
}

impl fmt::Display for MessageCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "code {}", self.0),
        }
    }
}

impl fmt::Debug for MessageCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// One table for constant, name and message: as three lists they would drift apart.
macro_rules! message_codes {
    ($($code:literal $constant:ident $name:literal $(=> $message:ident)?;)+) => {
        impl MessageCode {
            $(
                #[doc = concat!("`", $name, "`, code ", stringify!($code), ".")]
                pub const $constant: MessageCode = MessageCode($code);
            )+
        }

        fn name_of(code: u8) -> Option<&'static str> {
            match code {
                $($code => Some($name),)+
                _ => None,
            }
        }

        /// Decodes a payload as the message of a code, and encodes it again.
        #[cfg(test)]
        fn encoded_again(code: u8, payload: &[u8]) -> Option<Vec<u8>> {
            match code {
                $($($code => pb::$message::decode(payload).ok().map(|it| it.encode_to_vec()),)?)+
                _ => None,
            }
        }

        $($(
            impl CodedMessage for pb::$message {
                const CODE: MessageCode = MessageCode($code);
            }
        )?)+
    };
}

message_codes! {
    0 RPB_ERROR_RESP "RpbErrorResp" => RpbErrorResp;
    1 RPB_PING_REQ "RpbPingReq";
    2 RPB_PING_RESP "RpbPingResp";
    3 RPB_GET_CLIENT_ID_REQ "RpbGetClientIdReq";
    4 RPB_GET_CLIENT_ID_RESP "RpbGetClientIdResp" => RpbGetClientIdResp;
    5 RPB_SET_CLIENT_ID_REQ "RpbSetClientIdReq" => RpbSetClientIdReq;
    6 RPB_SET_CLIENT_ID_RESP "RpbSetClientIdResp";
    7 RPB_GET_SERVER_INFO_REQ "RpbGetServerInfoReq";
    8 RPB_GET_SERVER_INFO_RESP "RpbGetServerInfoResp" => RpbGetServerInfoResp;
    9 RPB_GET_REQ "RpbGetReq" => RpbGetReq;
    10 RPB_GET_RESP "RpbGetResp" => RpbGetResp;
    11 RPB_PUT_REQ "RpbPutReq" => RpbPutReq;
    12 RPB_PUT_RESP "RpbPutResp" => RpbPutResp;
    13 RPB_DEL_REQ "RpbDelReq" => RpbDelReq;
    14 RPB_DEL_RESP "RpbDelResp";
    15 RPB_LIST_BUCKETS_REQ "RpbListBucketsReq" => RpbListBucketsReq;
    16 RPB_LIST_BUCKETS_RESP "RpbListBucketsResp" => RpbListBucketsResp;
    17 RPB_LIST_KEYS_REQ "RpbListKeysReq" => RpbListKeysReq;
    18 RPB_LIST_KEYS_RESP "RpbListKeysResp" => RpbListKeysResp;
    19 RPB_GET_BUCKET_REQ "RpbGetBucketReq" => RpbGetBucketReq;
    20 RPB_GET_BUCKET_RESP "RpbGetBucketResp" => RpbGetBucketResp;
    21 RPB_SET_BUCKET_REQ "RpbSetBucketReq" => RpbSetBucketReq;
    22 RPB_SET_BUCKET_RESP "RpbSetBucketResp";
    23 RPB_MAP_RED_REQ "RpbMapRedReq" => RpbMapRedReq;
    24 RPB_MAP_RED_RESP "RpbMapRedResp" => RpbMapRedResp;
    25 RPB_INDEX_REQ "RpbIndexReq" => RpbIndexReq;
    26 RPB_INDEX_RESP "RpbIndexResp" => RpbIndexResp;
    27 RPB_SEARCH_QUERY_REQ "RpbSearchQueryReq";
    28 RPB_SEARCH_QUERY_RESP "RpbSearchQueryResp";
    29 RPB_RESET_BUCKET_REQ "RpbResetBucketReq" => RpbResetBucketReq;
    30 RPB_RESET_BUCKET_RESP "RpbResetBucketResp";
    31 RPB_GET_BUCKET_TYPE_REQ "RpbGetBucketTypeReq" => RpbGetBucketTypeReq;
    32 RPB_SET_BUCKET_TYPE_REQ "RpbSetBucketTypeReq" => RpbSetBucketTypeReq;
    33 RPB_GET_BUCKET_KEY_PREFLIST_REQ "RpbGetBucketKeyPreflistReq" => RpbGetBucketKeyPreflistReq;
    34 RPB_GET_BUCKET_KEY_PREFLIST_RESP "RpbGetBucketKeyPreflistResp" => RpbGetBucketKeyPreflistResp;
    40 RPB_CS_BUCKET_REQ "RpbCSBucketReq" => RpbCsBucketReq;
    41 RPB_CS_BUCKET_RESP "RpbCSBucketResp" => RpbCsBucketResp;
    42 RPB_INDEX_BODY_RESP "RpbIndexBodyResp" => RpbIndexBodyResp;
    50 RPB_COUNTER_UPDATE_REQ "RpbCounterUpdateReq" => RpbCounterUpdateReq;
    51 RPB_COUNTER_UPDATE_RESP "RpbCounterUpdateResp" => RpbCounterUpdateResp;
    52 RPB_COUNTER_GET_REQ "RpbCounterGetReq" => RpbCounterGetReq;
    53 RPB_COUNTER_GET_RESP "RpbCounterGetResp" => RpbCounterGetResp;
    54 RPB_YOKOZUNA_INDEX_GET_REQ "RpbYokozunaIndexGetReq";
    55 RPB_YOKOZUNA_INDEX_GET_RESP "RpbYokozunaIndexGetResp";
    56 RPB_YOKOZUNA_INDEX_PUT_REQ "RpbYokozunaIndexPutReq";
    57 RPB_YOKOZUNA_INDEX_DELETE_REQ "RpbYokozunaIndexDeleteReq";
    58 RPB_YOKOZUNA_SCHEMA_GET_REQ "RpbYokozunaSchemaGetReq";
    59 RPB_YOKOZUNA_SCHEMA_GET_RESP "RpbYokozunaSchemaGetResp";
    60 RPB_YOKOZUNA_SCHEMA_PUT_REQ "RpbYokozunaSchemaPutReq";
    70 RPB_COVERAGE_REQ "RpbCoverageReq" => RpbCoverageReq;
    71 RPB_COVERAGE_RESP "RpbCoverageResp" => RpbCoverageResp;
    80 DT_FETCH_REQ "DtFetchReq" => DtFetchReq;
    81 DT_FETCH_RESP "DtFetchResp" => DtFetchResp;
    82 DT_UPDATE_REQ "DtUpdateReq" => DtUpdateReq;
    83 DT_UPDATE_RESP "DtUpdateResp" => DtUpdateResp;
    128 RPB_REPL_GET_REQ "RpbReplGetReq";
    129 RPB_REPL_GET_CLUSTER_ID_REQ "RpbReplGetClusterIdReq";
    130 RPB_REPL_GET_CLUSTER_ID_RESP "RpbReplGetClusterIdResp";
    200 RPB_RTE_REQ "RpbRTEReq" => RpbRteReq;
    201 RPB_RTE_RESP "RpbRTEResp";
    202 RPB_FETCH_REQ "RpbFetchReq" => RpbFetchReq;
    203 RPB_FETCH_RESP "RpbFetchResp" => RpbFetchResp;
    204 RPB_PUSH_REQ "RpbPushReq" => RpbPushReq;
    205 RPB_PUSH_RESP "RpbPushResp" => RpbPushResp;
    206 RPB_MEMBERSHIP_REQ "RpbMembershipReq" => RpbMembershipReq;
    207 RPB_MEMBERSHIP_RESP "RpbMembershipResp" => RpbMembershipResp;
    210 RPB_AAE_FOLD_MERGE_ROOT_NVAL_REQ "RpbAaeFoldMergeRootNValReq" => RpbAaeFoldMergeRootNValReq;
    211 RPB_AAE_FOLD_MERGE_BRANCH_NVAL_REQ "RpbAaeFoldMergeBranchNValReq" => RpbAaeFoldMergeBranchNValReq;
    212 RPB_AAE_FOLD_FETCH_CLOCKS_NVAL_REQ "RpbAaeFoldFetchClocksNValReq" => RpbAaeFoldFetchClocksNValReq;
    213 RPB_AAE_FOLD_MERGE_TREES_RANGE_REQ "RpbAaeFoldMergeTreesRangeReq" => RpbAaeFoldMergeTreesRangeReq;
    214 RPB_AAE_FOLD_FETCH_CLOCKS_RANGE_REQ "RpbAaeFoldFetchClocksRangeReq" => RpbAaeFoldFetchClocksRangeReq;
    215 RPB_AAE_FOLD_FIND_KEYS_REQ "RpbAaeFoldFindKeysReq" => RpbAaeFoldFindKeysReq;
    216 RPB_AAE_FOLD_OBJECT_STATS_REQ "RpbAaeFoldObjectStatsReq" => RpbAaeFoldObjectStatsReq;
    217 RPB_AAE_FOLD_REPL_KEYS_REQ "RpbAaeFoldReplKeysReq" => RpbAaeFoldReplKeysReq;
    218 RPB_AAE_FOLD_FIND_TOMBS_REQ "RpbAaeFoldFindTombsReq" => RpbAaeFoldFindTombsReq;
    219 RPB_AAE_FOLD_REPAIR_KEYS_REQ "RpbAaeFoldRepairKeysReq" => RpbAaeFoldRepairKeysReq;
    220 RPB_AAE_FOLD_TREE_RESP "RpbAaeFoldTreeResp" => RpbAaeFoldTreeResp;
    221 RPB_AAE_FOLD_KEY_VALUE_RESP "RpbAaeFoldKeyValueResp" => RpbAaeFoldKeyValueResp;
    222 RPB_AAE_FOLD_KEY_COUNT_RESP "RpbAaeFoldKeyCountResp" => RpbAaeFoldKeyCountResp;
    223 RPB_AAE_FOLD_LIST_BUCKETS_REQ "RpbAaeFoldListBucketsReq" => RpbAaeFoldListBucketsReq;
    224 RPB_AAE_FOLD_LIST_BUCKETS_RESP "RpbAaeFoldListBucketsResp" => RpbAaeFoldListBucketsResp;
    230 RPB_AAE_FOLD_REAP_TOMBS_REQ "RpbAaeFoldReapTombsReq" => RpbAaeFoldReapTombsReq;
    231 RPB_AAE_FOLD_ERASE_KEYS_REQ "RpbAaeFoldEraseKeysReq" => RpbAaeFoldEraseKeysReq;
    253 RPB_AUTH_REQ "RpbAuthReq" => RpbAuthReq;
    254 RPB_AUTH_RESP "RpbAuthResp";
    255 RPB_START_TLS "RpbStartTls";
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Fields as they travel: numbers and texts, and messages in messages.
    fn fields() -> impl Strategy<Value = Vec<u8>> {
        let number = (1..=33_u8, any::<u8>()).prop_map(|(field, value)| {
            let mut bytes = Vec::new();
            prost::encoding::encode_varint(u64::from(field) << 3, &mut bytes);
            prost::encoding::encode_varint(u64::from(value), &mut bytes);
            bytes
        });
        number.prop_recursive(4, 64, 6, |inner| {
            let within = prop::collection::vec(inner, 0..6).prop_map(|it| it.concat());
            let noise = prop::collection::vec(any::<u8>(), 0..20);
            (1..=33_u8, prop_oneof![within, noise]).prop_map(|(field, content)| {
                let mut bytes = Vec::new();
                prost::encoding::encode_varint(u64::from(field) << 3 | 2, &mut bytes);
                prost::encoding::encode_varint(content.len() as u64, &mut bytes);
                [bytes, content].concat()
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..Default::default() })]

        #[test]
        fn what_a_message_decodes_it_encodes_so_that_it_decodes_again(
            code in any::<u8>(),
            payload in prop_oneof![
                prop::collection::vec(fields(), 0..8).prop_map(|it| it.concat()),
                prop::collection::vec(any::<u8>(), 0..200),
            ],
        ) {
            if let Some(once) = encoded_again(code, &payload) {
                prop_assert_eq!(encoded_again(code, &once), Some(once.clone()));
            }
        }
    }

    #[test]
    fn every_message_with_fields_is_decoded() {
        let decoded = (0..=255).filter(|code| encoded_again(*code, &[]).is_some());
        assert!(decoded.count() > 55);
    }

    #[test]
    fn codes_carry_their_names_and_messages() {
        assert_eq!(MessageCode::RPB_GET_REQ, MessageCode(9));
        assert_eq!(
            <pb::RpbGetReq as CodedMessage>::CODE,
            MessageCode::RPB_GET_REQ
        );
        assert_eq!(<pb::DtUpdateResp as CodedMessage>::CODE, MessageCode(83));
        assert_eq!(MessageCode::RPB_START_TLS.name(), Some("RpbStartTls"));
        assert_eq!(MessageCode(9).to_string(), "RpbGetReq (9)");
        assert_eq!(MessageCode(99).to_string(), "code 99");
    }
}
