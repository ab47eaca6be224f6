//! Convergent data types: counters, sets, maps and hyperloglogs, as Riak's clients use them.
//!
//! Each replica changes its own value by [`DataType::update`], under a dot from its vnode, and merges the
//! others' values by [`DataType::merge`], in any order and any number of times. Sets and maps remove no
//! more than the client has seen: the client sends back the context of its read ([`encode_context`],
//! [`decode_context`]). A remove that comes before its target waits ([`Deferred`]).
//!
//! An update of a set or a map gives a [`Delta`], which carries only the changes to the other
//! replicas. A large set is stored in pages ([`PagedSet`]), so that reads and writes of an update
//! do not grow with the set.
//!
//! Bytes: [`DataType::encode`] is the stored form. [`decode_riak_value`] and [`encode_riak_value`] are
//! Riak's own forms. [`operation_from_json`] and [`fetched_json`] are those of the HTTP interface.
//!
//! Everything here is a pure function of its arguments: dots, times and pages come from the caller.
//! Outside this crate: the place of a value, and the identity of its replica.

mod ascii_json;
mod causal;
mod clock;
mod clock_encoding;
mod context;
mod counter;
mod data_type;
mod decode_error;
mod deferred;
mod delta;
mod delta_encoding;
mod dot;
mod dot_store;
mod encoding;
mod field;
mod field_name;
mod grow_set;
mod hyper_log_log;
mod json_operation;
mod json_value;
mod kind;
mod operation;
mod operation_encoding;
mod paged_set;
mod part_encoding;
mod register;
mod riak_clock;
mod riak_parts;
mod riak_sketch;
mod riak_text;
mod riak_value;
mod value;

pub use causal::{Causal, Map, MapDelta, Set, SetDelta};
pub use clock::Clock;
pub use context::{decode_context, encode_context};
pub use counter::{Counter, Tally};
pub use data_type::{DataType, KindMismatch};
pub use decode_error::DecodeError;
pub use deferred::{Deferred, Removal, Target};
pub use delta::{Delta, Gap, Touched};
pub use dot::{Actor, Dot};
pub use dot_store::Dots;
pub use field::{Content, Field, Fields, Members};
pub use field_name::{FieldKind, FieldName};
pub use grow_set::GrowSet;
pub use hyper_log_log::{HyperLogLog, PRECISION_DEFAULT, PRECISION_MAX, PRECISION_MIN};
pub use json_operation::{JsonError, operation_from_json};
pub use json_value::{NotText, fetched_json, not_found_json};
pub use kind::Kind;
pub use operation::{
    DEPTH_MAX, FieldChange, FieldOperation, Missing, Operation, OperationError, SetChange, Update,
};
pub use paged_set::{
    PAGE_BYTES, PageChange, PageSource, PagedSet, PagedSetError, WHOLE_BYTES_MAX, page_of,
};
pub use register::{Assignment, Register};
pub use riak_value::{
    RIAK_TAG, RiakFormError, RiakValue, decode_riak_value, encode_legacy_counter, encode_riak_value,
};
pub use value::{FieldValue, Value};
